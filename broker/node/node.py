"""One node of the cluster, with its replicas, coordinators and other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from broker.injection.points import FaultInjection
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.replicas.append_queues import AppendQueues
from protocol.slotted import slotted

if TYPE_CHECKING:
    from uuid import UUID

    from broker.client_metrics.manager import ClientMetricsManager
    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.configs import Settings
    from broker.node.fetch_sessions import FetchSessionCache
    from broker.peers import Peers
    from broker.quotas.client_quotas import ClientQuotas
    from broker.replicas.manager import ReplicaManager
    from broker.security.authorizer.authorizer import Authorizer
    from broker.share.coordinator.coordinator import ShareCoordinator
    from broker.share.manager import SharePartitionManager
    from broker.share.persister import Persister
    from broker.transactions.coordinator import TransactionCoordinator
    from broker.transactions.verification import Verifier


@slotted(frozen=True)
class Listener:
    """A listener of a node, and its advertised address."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""


@slotted
class Node:
    """One node (a broker id): its configuration, replicas, coordinators and other parts."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    metadata: ClusterMetadata
    settings: Settings
    """The sources of ``config``: settings at start, and those changed at run time."""
    replicas: ReplicaManager
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    share_coordinator: ShareCoordinator
    persister: Persister
    """Stores the states of share partitions, at the share coordinators of this node and of others."""
    fetch_sessions: FetchSessionCache
    verifier: Verifier
    quotas: ClientQuotas
    client_metrics: ClientMetricsManager
    share: SharePartitionManager
    """The share partitions and share sessions of this node."""
    rack: str | None = None
    authorizer: Authorizer | None = None
    """Checks the ACLs of requests; None means that every principal may do everything."""
    check_listeners: Callable[[BrokerConfig], None] | None = None
    """Raises `ConfigError` if the listeners cannot change to other settings; None if all listeners are PLAINTEXT."""
    injection: FaultInjection = field(default_factory=FaultInjection)
    """The fault injection, which all nodes of the broker share."""
    slices: Slices = field(default_factory=Slices)
    """The scheduler of long work, which all nodes of the broker share."""
    append_queues: AppendQueues = field(default_factory=AppendQueues)
    life: NodeLife = field(default_factory=NodeLife)
    """The node's life. When the node is killed, stopped or fails to start, the life ends, and no part works any
    more."""
    peers: Peers | None = None
    """Sends requests to other nodes; None means that there are no other nodes."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic by its id; None if there is no such topic."""
        return self.metadata.topic_name(topic_id)

    def session_partitions(self, session_id: int) -> Iterator[tuple[str, int]]:
        """The partitions of a fetch session; none if there is no such session."""
        session = self.fetch_sessions.by_id.get(session_id)
        if session is not None:
            for wanted in session.partitions.values():
                if wanted.topic is not None:
                    yield wanted.topic, wanted.index

    def share_session_partitions(self, group_id: str, member_id: str) -> Iterator[tuple[str, int]]:
        """The partitions of the share session of a member; none if there is no such session."""
        return self.share.sessions.partitions_of(group_id, member_id)
