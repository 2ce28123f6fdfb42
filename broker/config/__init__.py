"""Every setting of Kafka's and ours: where it comes from, what it may be, what it does here."""

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
