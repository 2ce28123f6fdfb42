"""Settings whose values are never returned: passwords, and settings unknown to Kafka (``KafkaConfig.maybeSensitive``).

is_sensitive(BROKER_RESOURCE, "listener.name.internal.ssl.key.password")  # True
broker_key("listener.name.internal.max.connections")  # the key of max.connections
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.config.definitions import BrokerConfigKey, alterable_configs, kafka_configs
from broker.config.group_configs import group_configs
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from storage.config import ALL_TOPIC_CONFIGS
from storage.config_def import ConfigKey

LOGGER_RESOURCE: Final = 8

# `DynamicBrokerConfig.LISTENER_CONFIG_REGEX`, and the settings that may have a SASL mechanism between the listener prefix
# and their name.
_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_OF_MECHANISMS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_OPEN: Final = (LOGGER_RESOURCE, METRICS_RESOURCE)
"""Resource types without sensitive settings."""


def base_of(name: str) -> str | None:
    """Return a setting's name without listener prefix and SASL mechanism; None if it has no listener prefix.

    >>> base_of("listener.name.internal.plain.sasl.jaas.config"), base_of("listener.name.internal.max.connections")
    ('sasl.jaas.config', 'max.connections')
    """
    match = _LISTENER.fullmatch(name)
    if match is None:
        return None
    return next((each for each in _OF_MECHANISMS if match[1].endswith(each)), match[1])


def broker_key(name: str) -> BrokerConfigKey | None:
    """Return the definition of a broker setting, with or without a listener prefix; None if Kafka has no such setting."""
    return alterable_configs().get(name) or kafka_configs().get(base_of(name) or "")


_KEYS: Final[Mapping[int, Callable[[str], ConfigKey | None]]] = {
    TOPIC_RESOURCE: lambda name: ALL_TOPIC_CONFIGS.get(name),
    BROKER_RESOURCE: broker_key,
    GROUP_RESOURCE: lambda name: group_configs().get(name),
}


def is_sensitive(kind: int, name: str) -> bool:
    """Whether the value of a resource's setting may be a secret."""
    if kind in _OPEN:
        return False
    find = _KEYS.get(kind)
    key = None if find is None else find(name)
    return key is None or key.sensitive
