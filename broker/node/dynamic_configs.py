"""Applies broker settings that are changed at run time to a node, as Kafka's ``DynamicConfigPublisher``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Protocol

from broker.config.dynamic import follow
from broker.logging import get_logger
from broker.metadata.configs import Settings
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import BROKER_RESOURCE, CLUSTER_DEFAULT

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata import ClusterMetadata

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


class Configured(Protocol):
    """A node with its current settings."""

    config: BrokerConfig


class CordonedDirectories(MetadataListener):
    """Reports to the controller which nodes are cordoned, as heartbeats do in Kafka (KIP-1066)."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        nodes: Mapping[int, Configured],
        run: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        """``run`` starts a coroutine in the background."""
        self._metadata = metadata
        self._nodes = nodes
        self._run = run
        metadata.subscribe(self)

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        if resource_type == BROKER_RESOURCE and resource_name != CLUSTER_DEFAULT:
            self._run(self._report(int(resource_name)))

    def report(self, node_id: int) -> None:
        """Report the setting of a node that has started."""
        if self._nodes[node_id].config.cordoned_log_dirs:
            self._run(self._report(node_id))

    async def _report(self, node_id: int) -> None:
        if node_id in self._nodes:
            cordoned = self._nodes[node_id].config.is_cordoned
            await self._metadata.cluster_control.cordon(node_id, cordoned=cordoned)
