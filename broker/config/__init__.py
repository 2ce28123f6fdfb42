"""The broker's configuration: all settings of Kafka and of Odradek, with their sources, checks and effects."""

from broker.config.config import (
    BrokerConfig,
    ConfigError,
    ConfigSynonym,
    Endpoint,
    broker_config,
    load_config,
    node_configs,
)
from broker.config.node_settings import DEFAULT_HOST, DEFAULT_PORT

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "BrokerConfig",
    "ConfigError",
    "ConfigSynonym",
    "Endpoint",
    "broker_config",
    "load_config",
    "node_configs",
]
