"""The settings of share groups: the broker's ``group.share.*`` and the dynamic settings of a group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from broker.config.group_configs import bounds, group_configs
from broker.metadata.values import GROUP_RESOURCE
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata

READ_UNCOMMITTED: Final = "read_uncommitted"
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_DURATION: Final = re.compile(
    r"(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d*))?S)?)?", re.IGNORECASE
)


@slotted(frozen=True)
class ShareGroupSettings:
    """The settings of one share group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = LATEST
    """``latest``, ``earliest`` or ``by_duration:`` with a duration in ISO 8601."""
    read_committed: bool = False
    renew_acknowledge: bool = True
    dead_letter_topic: str = ""
    """Topic of the dead-letter queue (KIP-1191); empty: the group has none."""
    dead_letter_copies_record: bool = False


def settings_of(config: BrokerConfig, metadata: ClusterMetadata, group_id: str) -> ShareGroupSettings:
    """Return the settings of one group: the group's own value of each setting, otherwise the broker's."""
    own = metadata.image.configs.get((GROUP_RESOURCE, group_id)) or {}

    def value(name: str, of_broker: Any) -> Any:
        if name not in own:
            return of_broker
        found = group_configs()[name].parse(own[name])
        # The broker's bounds may have changed since the group's value was checked (``GroupConfig.evaluate``).
        lowest, highest = bounds(name, config)
        return found if lowest is None or highest is None else min(max(found, lowest), highest)

    return ShareGroupSettings(
        session_timeout_ms=value("share.session.timeout.ms", config.group_share_session_timeout_ms),
        heartbeat_interval_ms=value("share.heartbeat.interval.ms", config.group_share_heartbeat_interval_ms),
        assignment_interval_ms=value(
            "share.assignment.interval.ms", config.group_share_assignment_interval_ms
        ),
        record_lock_duration_ms=value(
            "share.record.lock.duration.ms", config.group_share_record_lock_duration_ms
        ),
        delivery_count_limit=value("share.delivery.count.limit", config.group_share_delivery_count_limit),
        partition_max_record_locks=value(
            "share.partition.max.record.locks", config.group_share_partition_max_record_locks
        ),
        auto_offset_reset=value("share.auto.offset.reset", LATEST),
        read_committed=value("share.isolation.level", READ_UNCOMMITTED) != READ_UNCOMMITTED,
        renew_acknowledge=value("share.renew.acknowledge.enable", True),
        dead_letter_topic=value("errors.deadletterqueue.topic.name", ""),
        dead_letter_copies_record=value("errors.deadletterqueue.copy.record.enable", False),
    )


def duration_ms(reset: str) -> int:
    """The duration of the value ``by_duration:PnDTnHnMn.nS`` of ``share.auto.offset.reset``, in milliseconds, rounded up."""
    found = _DURATION.fullmatch(reset.partition(":")[2][1:])
    assert found is not None, reset
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    nanoseconds = int((found[5] or "").ljust(9, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 - (-nanoseconds // 1_000_000)
