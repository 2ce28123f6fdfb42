"""Selection of the replica that a consumer should read from (KIP-392, ``RackAwareReplicaSelector``). Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.metadata.values import BrokerRegistration
    from broker.replicas.replication.progress import Progress

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only supported ``replica.selector.class``; without it every consumer reads from the leader."""


def preferred_replica(
    followers: Mapping[int, Progress],
    isr: Container[int],
    leader_id: int,
    brokers: Mapping[int, BrokerRegistration],
    rack: str,
    offset: int,
) -> int | None:
    """The most advanced in-sync follower in the consumer's rack that has the offset; None to read from the leader."""
    leader = brokers.get(leader_id)
    if not rack or (leader is not None and leader.rack == rack):
        return None
    candidates = [
        (progress.log_end_offset, progress.last_caught_up_ms, node_id)
        for node_id, progress in followers.items()
        if node_id in isr
        and progress.log_start_offset <= offset <= progress.log_end_offset
        and (broker := brokers.get(node_id)) is not None
        and not broker.fenced
        and broker.rack == rack
    ]
    return max(candidates)[2] if candidates else None
