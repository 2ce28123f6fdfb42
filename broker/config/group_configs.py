"""The settings of single groups (``GroupConfig``): definitions, and Kafka's checks of all of them together.

Pure. The error messages are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.config.definitions import kafka_configs
from protocol.slotted import slotted
from storage.config_def import ConfigError, ConfigKey, ConfigType, OneOf, Range, Validator, Value

if TYPE_CHECKING:
    from broker.config.config import BrokerConfig


@slotted(frozen=True)
class GroupConfigKey(ConfigKey):
    documentation: str = ""
    synonym: str | None = None
    """The broker's setting that applies to groups without a value of their own."""


# An ISO 8601 duration, as ``Duration.parse`` accepts it, without a sign.
_DURATION: Final = re.compile(
    r"by_duration:P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:[.,]\d{0,9})?S)?)?", re.IGNORECASE
)


def _offset_reset(name: str, value: Value) -> None:
    if value not in ("earliest", "latest") and not _DURATION.fullmatch(value):
        choices = "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'"
        raise ConfigError.of(
            name, value, f"Invalid value `{value}` for configuration {name}. The value must be {choices}."
        )


def _int(name: str, minimum: int, text: str) -> GroupConfigKey:
    """Define an int setting. As in Kafka, its default is the broker setting's default, not the value that is configured."""
    synonym = f"group.{name}"
    default = kafka_configs()[synonym].default
    return GroupConfigKey(name, ConfigType.INT, default, Range(minimum), documentation=text, synonym=synonym)


def _other(
    name: str, config_type: ConfigType, default: Value, check: Validator | None, text: str
) -> GroupConfigKey:
    return GroupConfigKey(name, config_type, default, check, documentation=text)


def group_configs() -> Mapping[str, GroupConfigKey]:
    """Return the definitions of all group settings by name."""
    if not _KEYS:
        _KEYS.update((key.name, key) for key in _keys())
    return _KEYS


_KEYS: Final[dict[str, GroupConfigKey]] = {}


def _keys() -> tuple[GroupConfigKey, ...]:
    string, boolean = ConfigType.STRING, ConfigType.BOOLEAN
    levels = OneOf(("read_committed", "read_uncommitted"))
    return (
        _int(
            "consumer.assignment.interval.ms",
            0,
            "The minimum time between two assignments of a consumer group.",
        ),
        _int("consumer.heartbeat.interval.ms", 1, "How often members of a consumer group send a heartbeat."),
        _int(
            "consumer.session.timeout.ms",
            1,
            "The time without a heartbeat after which a member is removed from a consumer group.",
        ),
        _int("share.assignment.interval.ms", 0, "The minimum time between two assignments of a share group."),
        _other(
            "share.auto.offset.reset",
            string,
            "latest",
            _offset_reset,
            "The offset at which a share group starts in a partition.",
        ),
        _int(
            "share.delivery.count.limit", 2, "The maximum number of deliveries of a record to a share group."
        ),
        _int("share.heartbeat.interval.ms", 1, "How often members of a share group send a heartbeat."),
        _other(
            "share.isolation.level",
            string,
            "read_uncommitted",
            levels,
            "Whether a share group gets records of aborted and open transactions.",
        ),
        _int("share.partition.max.record.locks", 100, "The maximum number of locked records of a partition."),
        _int("share.record.lock.duration.ms", 1000, "How long a record stays locked for one consumer."),
        _other("share.renew.acknowledge.enable", boolean, True, None, "Whether a consumer may renew a lock."),
        _int(
            "share.session.timeout.ms",
            1,
            "The time without a heartbeat after which a member is removed from a share group.",
        ),
        _int(
            "streams.assignment.interval.ms",
            0,
            "The minimum time between two assignments of a streams group.",
        ),
        _int("streams.heartbeat.interval.ms", 1, "How often members of a streams group send a heartbeat."),
        _int(
            "streams.initial.rebalance.delay.ms", 0, "How long a new streams group waits for further members."
        ),
        _int("streams.num.standby.replicas", 0, "The number of standby replicas of each task."),
        _int(
            "streams.session.timeout.ms",
            1,
            "The time without a heartbeat after which a member is removed from a streams group.",
        ),
    )


# Settings with bounds in the broker's configuration, in Kafka's order (`GroupConfig.validateValues`).
_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)
_IF_GIVEN: Final = "assignment.interval.ms"
_MAX_STANDBY: Final = "group.streams.max.standby.replicas"


def check_group_configs(given: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise `ConfigError` if a group cannot have these settings."""
    keys = group_configs()
    for name in given:
        if name not in keys:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {name: key.parse(given[name]) if name in given else key.default for name, key in keys.items()}
    for name in _BOUNDED:
        if name in given or not name.endswith(_IF_GIVEN):
            _check_bounds(name, values[name], config)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def _check_bounds(name: str, value: int, config: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    lowest, highest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if name == "streams.num.standby.replicas":
        highest = _MAX_STANDBY
    if lowest in config.values and value < config.get(lowest):
        raise ConfigError(f"{name} must be greater than or equal to {lowest}")
    if value > config.get(highest):
        raise ConfigError(f"{name} must be less than or equal to {highest}")
