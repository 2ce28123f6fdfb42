"""What the leading and the following side of a partition need of the node and of its neighbours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.hooks import Hooks

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.replicas import Replicas

Peers = Callable[[int], "Replicas | None"]
"""The replicas of a node, by its id; None while it does not run."""
AlterIsr = Callable[[str, int, int, Sequence[int]], Awaitable[None]]
"""(topic, partition, leader epoch, in-sync replicas): AlterPartition. Raises if the controller refuses."""


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """One for each node."""

    node_id: int
    clock: Clock
    hooks: Hooks
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
