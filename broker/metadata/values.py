"""What the image of the cluster is made of."""

from __future__ import annotations

import uuid
from dataclasses import field
from typing import TYPE_CHECKING, Final

from protocol.records import cluster_metadata as schema
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.metadata.acls import Acl

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""
"""The resource name of broker settings that hold for every broker."""

NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2


AnyRecord = schema.MetadataRecord | schema.UnknownMetadataRecord


class InconsistentMetadata(Exception):
    """A record speaks of something that does not exist: the log is not one that Kafka or we have written."""


@slotted
class PartitionState:
    """One partition: who holds it, who leads it, since which epoch.

    A change makes a new one, so who holds one may keep it. (Not frozen: ten thousand are made at a start, and a frozen
    one costs four times as much.)
    """

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[uuid.UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()


@slotted
class Topic:
    """A topic; ``partitions[i].index == i`` once a commit is applied."""

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionState] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionState | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@slotted(frozen=True)
class Endpoint:
    """An address that a broker has registered."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@slotted(frozen=True)
class BrokerRegistration:
    """A registered broker."""

    node_id: int
    epoch: int
    incarnation_id: uuid.UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[uuid.UUID, ...] = ()
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((one for one in self.endpoints if one.name == listener_name), None)


@slotted
class MetadataDelta:
    """What a commit did, for those who follow the image. A topic that is new is nowhere but in ``created``."""

    created: dict[uuid.UUID, Topic] = field(default_factory=dict)
    deleted: dict[uuid.UUID, Topic] = field(default_factory=dict)
    grown: dict[uuid.UUID, int] = field(default_factory=dict)
    """The first partition that is new."""
    leaders: set[tuple[uuid.UUID, int]] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    """(resource type, resource name)."""
    quotas: bool = False
    """Client quotas are others."""
    acls_removed: dict[uuid.UUID, Acl] = field(default_factory=dict)
    acls_added: dict[uuid.UUID, Acl] = field(default_factory=dict)
