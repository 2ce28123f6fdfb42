"""The interface through which the leader and follower roles use their own node and the other nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from broker.clock import Clock
from broker.injection.points import FaultInjection
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.replicas.partition import Partition


class PeerReplicas(Protocol):
    """The part of another node's `ReplicaManager` that replication uses."""

    def get(self, topic: str, index: int) -> Partition | None: ...

    def is_offline(self, topic: str, index: int) -> bool: ...


class Truncation(NamedTuple):
    """The operations that truncate a follower's log."""

    truncate: Callable[[Partition, int], None]
    """Remove every batch that contains this offset or a later one, and restore the producer state at that point."""
    truncate_fully_and_start_at: Callable[[Partition, int], None]
    """Remove all batches, and start the log again at this offset."""


Peers = Callable[[int], PeerReplicas | None]
"""Function that returns the replicas of the node with this id; None while that node does not run."""
AlterIsr = Callable[[str, int, int, Sequence[int]], Awaitable[None]]
"""Function that sends AlterPartition: topic, partition, leader epoch, new ISR. Raises if the controller refuses."""


@slotted(frozen=True, eq=False)
class ReplicationContext:
    """The values and functions of a node that the leader and follower roles of its partitions use."""

    node_id: int
    clock: Clock
    injection: FaultInjection
    peers: Peers
    is_here: Callable[[], bool]
    """Whether this life of the node still runs. Objects of a killed node do nothing."""
    alter_isr: AlterIsr
    broker_epoch: Callable[[int], int | None]
    """Broker epoch of a node by its id; None if it may not be in the ISR: unregistered, fenced, or in controlled
    shutdown."""
    is_led_uncleanly: Callable[[Partition], bool]
    """Whether the partition's leader was elected uncleanly, and no follower has joined the ISR since."""
    lag_max_ms: Callable[[], int]
    """Returns ``replica.lag.time.max.ms``."""
    fetch_wait_max_ms: int
    """``replica.fetch.wait.max.ms``."""
    watch_lag: Callable[[Partition], None]
    """Schedule a check of the ISR of a partition that this node leads, because a follower is behind."""
    truncation: Truncation
