"""What the leading and the following side of a partition need of the node and of its neighbours."""

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
    """The replicas of another node, as far as replication asks them."""

    def get(self, topic: str, index: int) -> Partition | None: ...

    def is_offline(self, topic: str, index: int) -> bool: ...


class Truncation(NamedTuple):
    """How a follower's log gives up what its leader does not have."""

    truncate: Callable[[Partition, int], None]
    """Cut every batch that holds this offset or more, and take the producers back to there."""
    truncate_fully_and_start_at: Callable[[Partition, int], None]
    """Drop everything and begin at this offset."""


Peers = Callable[[int], PeerReplicas | None]
"""The replicas of a node, by its id; None while it does not run."""
AlterIsr = Callable[[str, int, int, Sequence[int]], Awaitable[None]]
"""(topic, partition, leader epoch, in-sync replicas): AlterPartition. Raises if the controller refuses."""


@slotted(frozen=True, eq=False)
class ReplicationContext:
    """One for each node."""

    node_id: int
    clock: Clock
    injection: FaultInjection
    peers: Peers
    is_here: Callable[[], bool]
    """Whether this node runs: what a killed one has left behind does nothing any more."""
    alter_isr: AlterIsr
    broker_epoch: Callable[[int], int | None]
    """Of a node's registration; None if it may not be in sync: not registered, fenced, or about to stop."""
    is_led_uncleanly: Callable[[Partition], bool]
    """Whether the leader was not in sync when it was elected, and no follower has joined it since."""
    lag_max_ms: Callable[[], int]
    """``replica.lag.time.max.ms``"""
    watch_lag: Callable[[Partition], None]
    """A follower of this partition, led here, is behind: look at it again in time."""
    truncation: Truncation
