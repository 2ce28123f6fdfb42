"""Dynamic broker settings (KIP-226): which settings may change at run time, and the configuration that results.

    layers = Layers(cluster={"log.retention.ms": "1000"}, own={"log.cleaner.backoff.ms": "50"})
    check(layers.own, per_broker=True)
    config = with_dynamic(static, layers)

Pure. The counterpart of Kafka's ``DynamicBrokerConfig``, with its error messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from broker.config.agreement import check_agreement
from broker.config.config import BrokerConfig, attributes, log_defaults_of, synonyms_of
from broker.config.definitions import BrokerConfigKey, alterable_configs, base_name, kafka_configs
from broker.config.endpoints import DEFAULT_CONTROLLER_NAME
from protocol.named_tuple import NamedTuple
from protocol.slotted import field_names
from storage.config_def import ConfigError

PER_BROKER: Final = "per-broker"
READ_ONLY: Final = "read-only"

# `SslConfigs.RECONFIGURABLE_CONFIGS`: dynamic only for one listener, as listener.name.<name>.<setting>.
SECURITY: Final = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "key.password",
        "keystore.certificate.chain",
        "keystore.key",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)
# Settings of listeners that may also be set for all brokers (`CLUSTER_LEVEL_LISTENER_CONFIGS`).
_OF_ALL_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
# `ConnectionQuotas.ListenerConnectionQuota`: with 0 no client could reach the broker.
_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")
_METRIC_REPORTERS: Final = frozenset({"org.apache.kafka.common.metrics.JmxReporter"})
# `DynamicThreadPool`: the new value may be from half of the current one to double.
_THREADS: Final = frozenset(
    {"num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads"}
)
_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")


class Layers(NamedTuple):
    """Dynamic settings: ``cluster`` for all brokers, ``own`` for one broker."""

    cluster: Mapping[str, str]
    own: Mapping[str, str]


def is_dynamic(name: str) -> bool:
    """Whether a setting may change while the broker runs. True also for names that Kafka does not have."""
    key = kafka_configs().get(name)
    return key is None or key.update_mode != READ_ONLY


def check(wanted: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise `ConfigError` if these settings may not be set dynamically, for one broker (``per_broker``) or for
    all, or if a value is invalid."""
    _refuse("Cannot update these configs dynamically", (name for name in wanted if not is_dynamic(name)))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (name for name in wanted if name in SECURITY),
    )
    for name, value in wanted.items():
        key = _key(name)
        if key is not None:
            key.parse(value)
        if name == "cordoned.log.dirs":
            _check_duplicates(name, value)
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name in wanted if _is_per_broker(name)),
        )


def _check_duplicates(name: str, value: str) -> None:
    """Raise `ConfigError` if a list has a member twice. In other lists Kafka ignores the second one."""
    members = re.split(r"\s*,\s*", value.strip())
    if len(set(members)) < len(members):
        raise ConfigError(f"Configuration '{name}' values must not be duplicated.")


def _refuse(message: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        raise ConfigError(f"{message}: [{', '.join(found)}]")


def _key(name: str) -> BrokerConfigKey | None:
    key = alterable_configs().get(base_name(name))
    return key if key is not None and key.update_mode != READ_ONLY else None


def _is_per_broker(name: str) -> bool:
    match = _LISTENER.fullmatch(name)
    if match is not None:
        return match[1] not in _OF_ALL_LISTENERS
    key = kafka_configs().get(name)
    return key is not None and key.update_mode == PER_BROKER


def with_dynamic(static: BrokerConfig, layers: Layers) -> BrokerConfig:
    """Return the configuration of a broker: its static configuration, overridden by the dynamic settings.

    As in Kafka, an invalid dynamic value is ignored, since an earlier release may have accepted it.
    """
    overrides = _resolved(layers)
    if not overrides:
        return static
    keys = kafka_configs()
    values = dict(static.values)
    for name, raw in overrides.items():
        key = keys.get(name)
        if key is not None:
            values[name] = key.default if raw is None else key.parse(raw)
        elif raw is not None and (of_listener := _key(name)) is not None:
            values[name] = of_listener.parse(raw)
    changed: dict[str, Any] = {attribute: values[name] for attribute, name in attributes().items()}
    return replace(static, **changed, log_defaults=log_defaults_of(values), values=values)


def follow(config: BrokerConfig, other: BrokerConfig) -> None:
    """Copy the values of ``other`` into ``config``, to which all components refer (``updateCurrentConfig``)."""
    for name in field_names(BrokerConfig):
        object.__setattr__(config, name, getattr(other, name))


def _resolved(layers: Layers) -> dict[str, str | None]:
    """Return the dynamic values by name; None for a setting that a synonym in the same or a later layer overrides."""
    overrides: dict[str, str | None] = {}
    for layer in layers:
        for name, value in layer.items():
            if is_dynamic(name) and is_valid(name, value):
                overrides |= dict.fromkeys(synonyms_of(name))
                overrides[name] = value
    return overrides


@cache
def is_valid(name: str, value: str) -> bool:
    key = _key(name)
    try:
        if key is not None:
            key.parse(value)
    except ConfigError:
        return False
    return True


def check_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Make the checks that compare the old and the new configuration. Raises `ConfigError` with Kafka's message."""
    changed = {name for name, value in after.values.items() if value != before.values.get(name)}
    _check_together(before, after)
    _check_listeners(changed, after)
    for name in _CONNECTIONS:
        if name in changed and after.values[name] <= 0:
            raise _wrapped(f"Invalid {name} {after.values[name]}")
    if "metric.reporters" in changed and not _METRIC_REPORTERS.issuperset(after.values["metric.reporters"]):
        # The broker cannot load a class that the user has written.
        raise _wrapped(
            f"Validation of dynamic config update of Set({', '.join(sorted(changed))}) failed with class "
            "class kafka.server.DynamicMetricsReporters"
        )
    for name in sorted(_THREADS & changed):
        _check_threads(name, before.values[name], after.values[name])


def _check_together(before: BrokerConfig, after: BrokerConfig) -> None:
    """Reject contradictory settings, unless the current configuration already contradicts itself."""
    try:
        check_agreement(before.values)
    except ConfigError:
        return
    if after.values["log.cleaner.threads"] == 0:
        # Kafka's check divides by the number of threads, and this is the message of the exception.
        raise ConfigError("/ by zero")
    check_agreement(after.values)


def _check_listeners(changed: Collection[str], after: BrokerConfig) -> None:
    """Raise `ConfigError` if new ``listeners`` have no controller listener, as Kafka does on a KRaft controller."""
    controllers = after.values["controller.listener.names"] or (DEFAULT_CONTROLLER_NAME,)
    names = {listener.partition("://")[0].upper() for listener in after.values["listeners"]}
    if "listeners" in changed and names.isdisjoint(name.upper() for name in controllers):
        raise ConfigError(
            "requirement failed: controller.listener.names must contain at least one value appearing in the "
            "'listeners' configuration when running the KRaft controller role"
        )


def _check_threads(name: str, old: int, new: int) -> None:
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new <= 0:
        raise _wrapped(f"{failed}, value should be at least 1")
    if new < old // 2:
        raise _wrapped(f"{failed}, value should be at least half the current value {old}")
    if new > old * 2:
        raise _wrapped(f"{failed}, value should not be greater than double the current value {old}")


def _wrapped(reason: str) -> ConfigError:
    """Return the error with Kafka's odd message: Kafka passes (message, cause) to a constructor of (name, value)."""
    cause = f"org.apache.kafka.common.config.ConfigException: {reason}"
    return ConfigError(f"Invalid value {cause} for configuration Invalid dynamic configuration")
