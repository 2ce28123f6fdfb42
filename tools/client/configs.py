"""Settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tools.client.cluster import Cluster
from tools.client.errors import check

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_SET, _DELETE = 0, 1
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


@dataclass(frozen=True, slots=True)
class Config:
    """A setting as the broker describes it. The value of a sensitive setting is None."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool

    @property
    def is_dynamic(self) -> bool:
        """Whether the value was set dynamically for this resource, and not only as a default of all brokers."""
        return self.source.startswith("DYNAMIC") and self.source != "DYNAMIC_DEFAULT_BROKER_CONFIG"

    @property
    def is_default(self) -> bool:
        """Whether the value is a default (Kafka's ``ConfigEntry.isDefault``)."""
        return self.source == "DEFAULT_CONFIG"


def describe_configs(cluster: Cluster, kind: int, name: str) -> list[Config]:
    """All settings of a resource, by name."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource])
    if kind in (BROKER, BROKER_LOGGER) and name:
        cluster.refresh()
        response = cluster.ask_node(int(name), "describe_configs", request)
    else:
        response = cluster.ask("describe_configs", request)
    (found,) = response.results
    check(found.error_code, name, found.error_message, named=("topic", name) if kind == TOPIC else None)
    return sorted(
        (
            Config(each.name, each.value, _SOURCES.get(each.config_source, "UNKNOWN"), each.is_sensitive)
            for each in found.configs
        ),
        key=lambda each: each.name,
    )


def alter_configs(
    cluster: Cluster, kind: int, name: str, changes: Mapping[str, str], deletions: Iterable[str] = ()
) -> None:
    """Set and delete settings of a resource, all or none."""
    configs = [
        AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in changes.items()
    ]
    configs += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in deletions]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    if kind in (BROKER, BROKER_LOGGER) and name:
        cluster.refresh()
        response = cluster.ask_node(int(name), "incremental_alter_configs", request)
    else:
        response = cluster.ask("incremental_alter_configs", request)
    for each in response.responses:
        check(each.error_code, each.resource_name, each.error_message)
