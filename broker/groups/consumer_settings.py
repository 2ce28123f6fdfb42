"""The settings of consumer groups: the broker's ``group.consumer.*`` and the dynamic settings of a group (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.config.agreement import CONSUMER_ASSIGNORS
from broker.config.group_configs import bounds, group_configs
from broker.groups.consumer.context import ConsumerGroupSettings, MigrationPolicy
from broker.metadata.values import GROUP_RESOURCE

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata

ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"


def is_enabled(config: BrokerConfig) -> bool:
    """Whether the broker serves the consumer group protocol."""
    return "consumer" in config.group_coordinator_rebalance_protocols


def settings_of(config: BrokerConfig, metadata: ClusterMetadata, group_id: str) -> ConsumerGroupSettings:
    """Return the settings of one group: the group's own value of each setting, otherwise the broker's."""
    own = metadata.image.configs.get((GROUP_RESOURCE, group_id))

    def value(name: str, of_broker: int) -> int:
        if not own or name not in own:
            return of_broker
        # The broker's bounds may have changed since the group's value was checked (``GroupConfig.evaluate``).
        lowest, highest = bounds(name, config)
        found: int = group_configs()[name].parse(own[name])
        return min(max(found, int(lowest)), int(highest))

    return ConsumerGroupSettings(
        assignors=assignors(config),
        assignment_interval_ms=value(ASSIGNMENT_INTERVAL, config.group_consumer_assignment_interval_ms),
        heartbeat_interval_ms=value(HEARTBEAT_INTERVAL, config.group_consumer_heartbeat_interval_ms),
        session_timeout_ms=value(SESSION_TIMEOUT, config.group_consumer_session_timeout_ms),
        group_size_max=config.group_consumer_max_size,
        classic_group_size_max=config.group_max_size,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


def assignors(config: BrokerConfig) -> tuple[str, ...]:
    return tuple(CONSUMER_ASSIGNORS[each] for each in config.group_consumer_assignors)
