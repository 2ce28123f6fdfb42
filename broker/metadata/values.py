"""The values that make up the image of the cluster."""

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
"""Resource name of the dynamic settings for all brokers."""

MIN_IN_SYNC_REPLICAS: Final = "min.insync.replicas"

NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2


AnyRecord = schema.MetadataRecord | schema.UnknownMetadataRecord


class InconsistentMetadata(Exception):
    """A record contradicts the image, for example refers to an object that does not exist.

    Neither Kafka nor this broker writes such a log.
    """


@slotted
class PartitionState:
    """The replicas, the leader and the epochs of one partition.

    A change creates a new instance, so references may be kept. (The class is not frozen, because a start creates ten
    thousand instances, and a frozen instance takes four times as long.)
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
    """A topic. Once a commit is applied, ``partitions[i].index == i``."""

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
    """A registered address of a broker."""

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

    @property
    def is_cordoned(self) -> bool:
        """Whether all log directories are cordoned, so that the broker gets no new replicas (KIP-1066)."""
        return bool(self.log_dirs) and not set(self.log_dirs).difference(self.cordoned_log_dirs or ())

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((one for one in self.endpoints if one.name == listener_name), None)


@slotted
class MetadataDelta:
    """The changes of a commit, for the listeners. If a topic is in ``created``, no other field lists its changes."""

    created: dict[uuid.UUID, Topic] = field(default_factory=dict)
    deleted: dict[uuid.UUID, Topic] = field(default_factory=dict)
    grown: dict[uuid.UUID, int] = field(default_factory=dict)
    """Topic id -> index of the first new partition."""
    leaders: set[tuple[uuid.UUID, int]] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    """(resource type, resource name) of each resource whose settings have changed."""
    quotas: bool = False
    """Whether client quotas have changed."""
    features: bool = False
    """Whether feature levels have changed."""
    acls_removed: dict[uuid.UUID, Acl] = field(default_factory=dict)
    acls_added: dict[uuid.UUID, Acl] = field(default_factory=dict)
