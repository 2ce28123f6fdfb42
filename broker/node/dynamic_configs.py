"""Applies broker settings that are changed at run time to a node, as Kafka's ``DynamicConfigPublisher``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config.dynamic import follow
from broker.logging import get_logger
from broker.metadata.configs import Settings
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import BROKER_RESOURCE, CLUSTER_DEFAULT

if TYPE_CHECKING:
    from broker.config import BrokerConfig

log = get_logger()


class DynamicConfigPublisher(MetadataListener):
    """Updates the shared ``BrokerConfig``, and then calls ``configured`` for the parts that keep copies of settings."""

    def __init__(self, config: BrokerConfig, settings: Settings, configured: Callable[[], object]) -> None:
        self._config = config
        self._settings = settings
        self._configured = configured

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        node_id = self._settings.static.node_id
        if resource_type != BROKER_RESOURCE or resource_name not in (CLUSTER_DEFAULT, str(node_id)):
            return
        before = self._config.values
        follow(self._config, self._settings.current)
        after = self._config.values
        changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        if changed:
            log.info("settings changed", node_id=node_id, settings=sorted(changed))
            self._configured()
