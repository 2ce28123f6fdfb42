"""Periodic elections in a cluster of several nodes: unclean elections and leader balancing.

Kafka's ``QuorumController`` schedules these elections.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain, Periodic
from broker.metadata.elections import records_for_balance, records_for_unclean_elections

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata import ClusterMetadata

MS_PER_S: Final = 1000

Run = Callable[[Coroutine[object, object, None]], object]


def leadership_tasks(
    clock: Clock, config: BrokerConfig, metadata: ClusterMetadata, run: Run
) -> list[Periodic]:
    """Start and return the periodic tasks. ``run`` starts a coroutine in the background."""
    control, image, settings = metadata.cluster_control, metadata.image, metadata.settings
    unclean = Periodic(
        clock,
        config.unclean_leader_election_interval_ms,
        lambda: run(control.elect_uncleanly()),
        Domain.REPLICATION,
        lambda: 0 if any(records_for_unclean_elections(image, settings)) else None,
    )
    if not config.auto_leader_rebalance_enable:
        return [unclean]
    balancing = Periodic(
        clock,
        config.leader_imbalance_check_interval_seconds * MS_PER_S,
        lambda: run(control.balance_leaders()),
        Domain.REPLICATION,
        lambda: 0 if any(records_for_balance(image, settings)) else None,
    )
    return [unclean, balancing]
