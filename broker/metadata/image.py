"""The image of the cluster: a value to which the records of the metadata log are applied one by one.

Pure: no file, no event loop, no clock. Its contents are those of Kafka's ``TopicsImage``, ``ClusterImage``,
``FeaturesImage``, ``ConfigurationsImage`` and ``ProducerIdsImage``. Records of types that this broker does not use
(registrations of controllers) are kept unchanged, so that a snapshot loses nothing that Kafka wrote.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.client_quotas import Quotas
from broker.metadata.scram_credentials import Credentials
from broker.metadata.values import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    BrokerRegistration,
    Topic,
)
from protocol.records import cluster_metadata as schema
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.metadata.acls import Acls
    from broker.metadata.delegation_tokens import Tokens

Kept = dict[tuple[Any, ...], schema.MetadataRecord]


@slotted
class Image:
    """The state of the cluster after the record at ``offset``."""

    offset: int = -1
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Settings of brokers, groups, client metrics, and topics that do not exist (yet). Those of an existing topic are in
    ``Topic.configs``."""
    quotas: Quotas = field(default_factory=dict)
    credentials: Credentials = field(default_factory=dict)
    tokens: Tokens = field(default_factory=dict)
    acls: Acls = field(default_factory=dict)
    next_producer_id: int = 0
    kept: Kept = field(default_factory=dict)
    """Records that this broker does not use but preserves, by key. A record replaces an earlier record of its key."""
    offline_replicas: set[tuple[uuid.UUID, int, int]] = field(default_factory=set)
    """(topic id, partition, broker id) of replicas with failed files, until the broker registers again. Not logged."""
    names_by_unified: dict[str, set[str]] = field(default_factory=dict)
    """Name with '_' in place of '.' (`unified_name`) -> topics whose name contains '.' or '_'."""

    @property
    def live_brokers(self) -> set[int]:
        """Ids of the brokers that may be leader and in sync: registered, not fenced, not in controlled shutdown."""
        return {
            broker.node_id
            for broker in self.brokers.values()
            if not broker.fenced and not broker.in_controlled_shutdown
        }

    def broker_configs(self, node_id: int) -> dict[str, str]:
        """Dynamic settings of one broker."""
        return self.configs.get((BROKER_RESOURCE, str(node_id)), {})

    @property
    def cluster_configs(self) -> dict[str, str]:
        """Dynamic settings that apply to all brokers (the cluster-wide default)."""
        return self.configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT), {})

    def colliding(self, unified: str) -> str | None:
        """Name of a topic with this unified name ('_' in place of '.'); None if there is none."""
        return next(iter(self.names_by_unified.get(unified, ())), None)


def controller_key(controller_id: int) -> tuple[str, int]:
    """The key of a controller's registration in ``Image.kept``."""
    return "controller", controller_id


# Record type -> the key under which a later record replaces an earlier one.
_IDENTITIES: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    schema.RegisterControllerRecord: lambda record: controller_key(record.controller_id),
}


def keep(kept: Kept, record: schema.MetadataRecord | schema.UnknownMetadataRecord) -> None:
    """Preserve a record of a type that this broker does not use, so that a snapshot can contain it.

    Records without a lasting effect are skipped.
    """
    identity_of = _IDENTITIES.get(type(record))
    if identity_of is not None and not isinstance(record, schema.UnknownMetadataRecord):
        kept[identity_of(record)] = record
