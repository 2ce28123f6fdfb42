"""Checks of settings against each other, as Kafka makes them at its start.

Pure. The rules and their messages are those of ``KafkaConfig.validateValues`` and ``GroupCoordinatorConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from storage.config_def import ConfigError

KINDS_OF_GROUPS: Final = ("consumer", "share", "streams")
_BOUNDED: Final = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
CLEANER_THREAD_BYTES_MIN: Final = 1024 * 1024
_ASSIGNOR_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor"
CONSUMER_ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    f"{_ASSIGNOR_PACKAGE}.UniformAssignor": "uniform",
    f"{_ASSIGNOR_PACKAGE}.RangeAssignor": "range",
}
"""Names of the assignors, by name and by class, as ``group.consumer.assignors`` has them."""
SHARE_ASSIGNORS: Final = {"simple": "simple", f"{_ASSIGNOR_PACKAGE}.SimpleAssignor": "simple"}
"""The same of ``group.share.assignors``."""

Values = Mapping[str, Any]


def check_agreement(values: Values) -> None:
    """Raise `ConfigError` for the first two settings that contradict each other."""
    for holds, message in _of_the_broker(values):
        if not holds:
            # The prefix of Scala's ``require``, which users of Kafka see, too.
            raise ConfigError(f"requirement failed: {message}")
    for holds, message in _of_groups(values):
        if not holds:
            raise ConfigError(message)


def check_cordoned(values: Values, *more: str) -> None:
    """Raise `ConfigError` if ``cordoned.log.dirs`` has a path that is neither in ``log.dirs`` nor one of ``more``."""
    cordoned, directories = values["cordoned.log.dirs"], values["log.dirs"] or values["log.dir"]
    if "*" in cordoned and len(cordoned) > 1:
        raise ConfigError(
            "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"
        )
    missing = [each for each in cordoned if each not in ("*", *directories, *more)]
    if missing:
        raise ConfigError(
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def _of_the_broker(values: Values) -> Iterator[tuple[bool, str]]:
    buffer, threads = values["log.cleaner.dedupe.buffer.size"], values["log.cleaner.threads"]
    yield (
        threads > 0 and buffer // threads > CLEANER_THREAD_BYTES_MIN,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
    fetch_wait_ms = values["replica.fetch.wait.max.ms"]
    yield (
        fetch_wait_ms <= values["replica.socket.timeout.ms"],
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms"
        " to prevent unnecessary socket timeouts",
    )
    yield (
        fetch_wait_ms <= values["replica.lag.time.max.ms"],
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms"
        " to prevent frequent changes in ISR",
    )
    queued_bytes = values["queued.max.request.bytes"]
    yield (
        queued_bytes <= 0 or queued_bytes >= values["socket.request.max.bytes"],
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    yield (
        values["max.connections.per.ip"] > 0 or bool(values["max.connections.per.ip.overrides"]),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )
    delay_ms, idle_ms = values["connection.failed.authentication.delay.ms"], values["connections.max.idle.ms"]
    yield (
        idle_ms < 0 or delay_ms < idle_ms,
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than"
        f" connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out",
    )


def _of_groups(values: Values) -> Iterator[tuple[bool, str]]:
    for kind, known in (("consumer", CONSUMER_ASSIGNORS), ("share", SHARE_ASSIGNORS)):
        for assignor in values[f"group.{kind}.assignors"]:
            yield assignor in known, f"Class {assignor} cannot be found"
    for kind in KINDS_OF_GROUPS:
        for what in _BOUNDED:
            name, lowest, highest = (f"group.{kind}.{bound}{what}" for bound in ("", "min.", "max."))
            yield _at_least(values, highest, lowest)
            yield _at_least(values, name, lowest)
            yield values[name] <= values[highest], f"{name} must be less than or equal to {highest}"
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        yield values[heartbeat] < values[session], f"{heartbeat} must be less than {session}"
    standby, highest = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    yield values[standby] <= values[highest], f"{standby} must be less than or equal to {highest}"
    yield _at_least(
        values, "group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"
    )
    warmup, highest = "group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"
    yield values[warmup] <= values[highest], f"{warmup} must be less than or equal to {highest}"
    assignors = values["group.share.assignors"]
    yield (
        len(assignors) == 1,
        f"group.share.assignors must contain exactly one assignor, but found {len(assignors)}",
    )


def _at_least(values: Values, name: str, lowest: str) -> tuple[bool, str]:
    return values[name] >= values[lowest], f"{name} must be greater than or equal to {lowest}"
