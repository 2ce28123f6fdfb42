"""The settings of single groups (``GroupConfig``): definitions, and Kafka's checks of all of them together.

Pure. The error messages are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from protocol.slotted import slotted
from storage.config_def import Check, ConfigError, ConfigKey, ConfigType, Value, validator_of

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


# Written by tests/oracle/tables.py: type, default, check, the broker's setting, internal. As in Kafka, the default is
# that of the broker's setting, not its configured value.
# fmt: off
_ROWS: Final[Mapping[str, tuple[str, Any, Check, str | None, bool]]] = {
    "consumer.assignment.interval.ms": (
        "INT", 1000, ("range", 0, None), "group.consumer.assignment.interval.ms", False),
    "consumer.assignor.offload.enable": ("BOOLEAN", True, None, "group.consumer.assignor.offload.enable", True),
    "consumer.heartbeat.interval.ms": ("INT", 5000, ("range", 1, None), "group.consumer.heartbeat.interval.ms", False),
    "consumer.session.timeout.ms": ("INT", 45000, ("range", 1, None), "group.consumer.session.timeout.ms", False),
    "errors.deadletterqueue.copy.record.enable": ("BOOLEAN", False, None, None, False),
    "errors.deadletterqueue.topic.name": ("STRING", "", None, None, False),
    "share.assignment.interval.ms": ("INT", 1000, ("range", 0, None), "group.share.assignment.interval.ms", False),
    "share.assignor.offload.enable": ("BOOLEAN", True, None, "group.share.assignor.offload.enable", True),
    "share.auto.offset.reset": ("STRING", "latest", ("offset_reset",), None, False),
    "share.delivery.count.limit": ("INT", 5, ("range", 2, None), "group.share.delivery.count.limit", False),
    "share.heartbeat.interval.ms": ("INT", 5000, ("range", 1, None), "group.share.heartbeat.interval.ms", False),
    "share.isolation.level": (
        "STRING", "read_uncommitted", ("one_of", ("read_committed", "read_uncommitted"), False), None, False),
    "share.partition.max.record.locks": (
        "INT", 2000, ("range", 100, None), "group.share.partition.max.record.locks", False),
    "share.record.lock.duration.ms": (
        "INT", 30000, ("range", 1000, None), "group.share.record.lock.duration.ms", False),
    "share.renew.acknowledge.enable": ("BOOLEAN", True, None, None, False),
    "share.session.timeout.ms": ("INT", 45000, ("range", 1, None), "group.share.session.timeout.ms", False),
    "streams.acceptable.recovery.lag": (
        "LONG", 10000, ("range", 0, None), "group.streams.acceptable.recovery.lag", True),
    "streams.assignment.interval.ms": ("INT", 1000, ("range", 0, None), "group.streams.assignment.interval.ms", False),
    "streams.assignor.name": ("STRING", None, None, "group.streams.assignors", False),
    "streams.assignor.offload.enable": ("BOOLEAN", True, None, "group.streams.assignor.offload.enable", True),
    "streams.heartbeat.interval.ms": ("INT", 5000, ("range", 1, None), "group.streams.heartbeat.interval.ms", False),
    "streams.initial.rebalance.delay.ms": (
        "INT", 3000, ("range", 0, None), "group.streams.initial.rebalance.delay.ms", False),
    "streams.num.standby.replicas": ("INT", 0, ("range", 0, None), "group.streams.num.standby.replicas", False),
    "streams.num.warmup.replicas": ("INT", 2, ("range", 0, None), "group.streams.num.warmup.replicas", True),
    "streams.rack.aware.assignment.tags": (
        "LIST", (), ("list", (), True), "group.streams.rack.aware.assignment.tags", False),
    "streams.session.timeout.ms": ("INT", 45000, ("range", 1, None), "group.streams.session.timeout.ms", False),
    "streams.task.offset.interval.ms": (
        "INT", 60000, ("range", 1, None), "group.streams.task.offset.interval.ms", True),
}
# fmt: on

_DOCUMENTATION: Final = {
    "consumer.assignment.interval.ms": "The minimum time between two assignments of a consumer group.",
    "consumer.assignor.offload.enable": (
        "Whether the assignment of a consumer group is computed in a thread of its own."
    ),
    "consumer.heartbeat.interval.ms": "How often members of a consumer group send a heartbeat.",
    "consumer.session.timeout.ms": (
        "The time without a heartbeat after which a member is removed from a consumer group."
    ),
    "errors.deadletterqueue.copy.record.enable": (
        "Whether the dead-letter queue of a share group gets the key and value of a record."
    ),
    "errors.deadletterqueue.topic.name": (
        "The topic that is the dead-letter queue of a share group; empty: the group has none."
    ),
    "share.assignment.interval.ms": "The minimum time between two assignments of a share group.",
    "share.assignor.offload.enable": (
        "Whether the assignment of a share group is computed in a thread of its own."
    ),
    "share.auto.offset.reset": "The offset at which a share group starts in a partition.",
    "share.delivery.count.limit": "The maximum number of deliveries of a record to a share group.",
    "share.heartbeat.interval.ms": "How often members of a share group send a heartbeat.",
    "share.isolation.level": "Whether a share group gets records of aborted and open transactions.",
    "share.partition.max.record.locks": "The maximum number of locked records of a partition.",
    "share.record.lock.duration.ms": "How long a record stays locked for one consumer.",
    "share.renew.acknowledge.enable": "Whether a consumer may renew a lock.",
    "share.session.timeout.ms": (
        "The time without a heartbeat after which a member is removed from a share group."
    ),
    "streams.acceptable.recovery.lag": "The lag up to which a task of a streams group counts as caught up.",
    "streams.assignment.interval.ms": "The minimum time between two assignments of a streams group.",
    "streams.assignor.name": "The assignor of a streams group; none: the first of group.streams.assignors.",
    "streams.assignor.offload.enable": (
        "Whether the assignment of a streams group is computed in a thread of its own."
    ),
    "streams.heartbeat.interval.ms": "How often members of a streams group send a heartbeat.",
    "streams.initial.rebalance.delay.ms": "How long a new streams group waits for further members.",
    "streams.num.standby.replicas": "The number of standby replicas of each task.",
    "streams.num.warmup.replicas": "The maximum number of warm-up tasks of a streams group at a time.",
    "streams.rack.aware.assignment.tags": (
        "The client tags by which a streams group spreads its standby tasks."
    ),
    "streams.session.timeout.ms": (
        "The time without a heartbeat after which a member is removed from a streams group."
    ),
    "streams.task.offset.interval.ms": (
        "How often members of a streams group report the offsets of their tasks."
    ),
}


@cache
def group_configs() -> Mapping[str, GroupConfigKey]:
    """Return the definitions of all group settings by name, including Kafka's internal ones."""
    return {name: _key(name, *row) for name, row in _ROWS.items()}


def _key(
    name: str, type_name: str, default: Value, check: Check, synonym: str | None, internal: bool
) -> GroupConfigKey:
    validator = _offset_reset if check == ("offset_reset",) else validator_of(check)
    return GroupConfigKey(
        name,
        ConfigType(type_name),
        default,
        validator,
        internal=internal,
        documentation=_DOCUMENTATION[name],
        synonym=synonym,
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
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)
_ASSIGNOR: Final = "streams.assignor.name"
_TAGS: Final = "streams.rack.aware.assignment.tags"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"


def check_group_configs(given: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise `ConfigError` if a group cannot have these settings (`GroupConfig.validate`)."""
    keys = group_configs()
    for name in given:
        if name not in keys:
            raise ConfigError(f"Unknown group config name: {name}")
    tags = re.split(r"\s*,\s*", given.get(_TAGS, "").strip())
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    values = {name: keys[name].parse(text) for name, text in given.items()}
    for name in _BOUNDED:
        if name in given:
            _check_bounds(name, values[name], *bounds(name, config))
    _check_assignor(values, config)
    _check_timeouts(values, config)
    if values.get(_DEAD_LETTERS, "").startswith("__"):
        raise ConfigError(f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")


def _check_assignor(values: Mapping[str, Value], config: BrokerConfig) -> None:
    assignor, registered = values.get(_ASSIGNOR), config.get("group.streams.assignors")
    if assignor is not None and assignor not in registered:
        raise ConfigError(
            f"{_ASSIGNOR} '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(registered)}]."
        )


def _check_timeouts(values: Mapping[str, Value], config: BrokerConfig) -> None:
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = names = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values.keys() & names:
            timeout, interval = (values.get(name, config.get(f"group.{name}")) for name in names)
            if timeout <= interval:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def bounds(name: str, config: BrokerConfig) -> tuple[Value, Value]:
    """Return the broker's lowest and highest value for a setting of groups; None for a bound that it lacks."""
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.") if kind == "streams" else rest
    lowest, highest = (config.values.get(f"group.{kind}.{bound}.{rest}") for bound in ("min", "max"))
    return lowest, highest


def _check_bounds(name: str, value: int, lowest: int | None, highest: int | None) -> None:
    if highest is None:
        if lowest is not None and value < lowest:
            raise ConfigError(f"{name} must be greater than or equal to {lowest}")
    elif lowest is None:
        if value > highest:
            raise ConfigError(f"{name} must be less than or equal to {highest}")
    elif not lowest <= value <= highest:
        raise ConfigError(f"{name} must be in the range {lowest} to {highest} inclusive.")
