"""Which replica a consumer should read from (KIP-392), by ``RackAwareReplicaSelector``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.metadata.image import Broker
    from broker.replication.leading import Leading

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one selector there is; without it everybody reads from the leader."""


def preferred_replica(
    leading: Leading, leader_id: int, brokers: Mapping[int, Broker], rack: str, offset: int
) -> int | None:
    """The most advanced in-sync follower in the consumer's rack that has its offset; None: stay with the leader."""
    leader = brokers.get(leader_id)
    if not rack or (leader is not None and leader.rack == rack):
        return None
    candidates = [
        (progress.log_end_offset, progress.last_caught_up_ms, node_id)
        for node_id, progress in leading.followers.items()
        if leading.is_in_sync(node_id)
        and progress.log_start_offset <= offset <= progress.log_end_offset
        and (broker := brokers.get(node_id)) is not None
        and not broker.fenced
        and broker.rack == rack
    ]
    return max(candidates)[2] if candidates else None
