"""One life of a node: its start from settings to serving clients, and its stop or kill.

The steps of a start depend on each other: the directory is locked before it is read, the metadata says which logs exist
before they are opened, and coordinators have loaded their state before clients are served. A stop runs in reverse order. A
kill only releases resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from broker.client_metrics.exporting import exporter_of
from broker.client_metrics.manager import ClientMetricsManager
from broker.clock import Clock
from broker.clock.of_node import NodeClock
from broker.cluster.failed_replicas import FailedReplicaListener
from broker.cluster.late_coordinators import coordinators, share_partitions
from broker.config.dynamic import follow
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.metadata import ClusterMetadata, Endpoint
from broker.metadata.configs import Settings
from broker.metadata.values import NO_LEADER
from broker.net.calls import CallInterceptors
from broker.net.connections import ConnectionQuotas, Connections
from broker.net.ports import Ports
from broker.net.routes import Routes
from broker.net.server import Server
from broker.node import Listener, Node
from broker.node.dynamic_configs import DynamicConfigPublisher
from broker.node.fetch_sessions import FetchSessionCache
from broker.peers import Peers
from broker.quotas.client_quotas import ClientQuotas
from broker.replicas.append_queues import AppendQueues, limits_of
from broker.replicas.maintenance.log_cleaner import LogCleaner
from broker.replicas.maintenance.retention import Retention
from broker.replicas.manager import ReplicaManager
from broker.replicas.replication.lost_records import note_lost
from broker.requests.api import UNSTABLE_VERSIONS, discover
from broker.transactions.verification import Verifier
from storage.directory import LogDirectory
from storage.files import StorageError
from storage.power_loss import forget_unsynced, note_synced, synced_lengths

if TYPE_CHECKING:
    from broker.cluster.secured_listeners import SecuredListeners
    from broker.config import BrokerConfig
    from broker.net.acceptor import Acceptor
    from broker.replicas.partition import Partition
    from broker.security.authorizer.standard_authorizer import StandardAuthorizer

SESSION_ID_MAX: Final = 2**31 - 1
PAUSED: Final = "paused"
SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Ids of security protocols in broker registrations (``SecurityProtocol``)."""

log = get_logger()


class NodeState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"


DEAD: Final = (NodeState.STOPPED, NodeState.KILLED)


class NodeRuntime:
    """One life of a node, with its sockets and files. The cluster passes the objects that all its nodes share."""

    node: Node
    """The parts of the running node. This attribute does not exist before `start_log_manager`."""
    connections: Connections
    """The node's client connections. This attribute does not exist before `enable_request_processing`."""
    _authorizer: StandardAuthorizer | None = None

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: Path,
        *,
        clock: Clock,
        random: Random,
        injection: FaultInjection,
        calls: CallInterceptors,
        slices: Slices,
        peer_replicas: Callable[[int], ReplicaManager | None],
        ports: Ports,
        route: Callable[[int, str], Acceptor | None],
        listeners: Sequence[Listener] = (),
        on_failed_replica: Callable[[int, Partition], None] | None = None,
        synced: Mapping[str, int] = MappingProxyType({}),
        skew_ms: int = 0,
        has_peers: bool = False,
    ) -> None:
        """``listeners`` are the listeners of the node's previous life. `lock_and_bind` replaces them.

        ``synced`` and ``skew_ms`` also come from the previous life. The skew belongs to the clock of a machine, which
        outlives the process.
        """
        self.config = copy(config)
        """The current settings. Changes at run time modify this object, which all parts of the node share."""
        self._static = config
        self.node_id = config.node_id
        self.data_dir = data_dir
        self.state = NodeState.STARTING
        self.life = NodeLife()
        self.listeners: Sequence[Listener] = listeners
        self._clock = NodeClock(clock, self.life, skew_ms)
        self._random = random
        self._injection = injection
        self._calls = calls
        self._slices = slices
        self._peer_replicas = peer_replicas
        self._on_failed_replica = on_failed_replica
        self._has_peers = has_peers
        self._secured: SecuredListeners | None = None
        self._directory: LogDirectory | None = None
        self.synced: Mapping[str, int] = synced
        """Name of a ``.log`` file -> number of its bytes that are known to be synced to disk. The numbers are from the
        end of the node's previous life, until a kill ends this life and replaces them."""
        self._lost_power: list[Partition] = []
        """Partitions whose unsynced batches `await_termination` removes, after a kill with a power loss."""
        self._server = Server(config.socket_listen_backlog_size, ports, partial(route, config.node_id))
        self.lifecycle_lock = asyncio.Lock()
        """Held during a start or stop. A kill does not wait for this lock; the next start does."""

    def acceptor(self, listener: str) -> Acceptor | None:
        """An acceptor of the listener with this name; None while the node accepts no clients."""
        return self._server.acceptors.get(listener)

    def with_ports(self, config: BrokerConfig) -> BrokerConfig:
        """The settings with the ports of this life in place of port 0, so that the node's address stays the same."""
        ports = {each.name: each.port for each in self.listeners}
        listeners = tuple(replace(each, port=each.port or ports[each.name]) for each in config.listeners)
        return replace(config, listeners=listeners)

    @property
    def skew_ms(self) -> int:
        """Milliseconds by which the node's clock is ahead of the cluster's; negative if it is behind."""
        return self._clock.skew_ms

    def skew(self, skew_ms: int) -> None:
        """Set the skew of the node's clock, in any state of the node. The skew is kept for the next life."""
        self._clock.skew(skew_ms)

    # -- the steps of a start, in order; each raises `LifeOver` if the node was killed meanwhile -----------------

    def lock_and_bind(self) -> None:
        """Lock the log directory, and bind the ports of all listeners."""
        self._secured = self._secure()
        self._directory = LogDirectory(self.data_dir)
        self.listeners = self._server.bind(self.config.listeners, self.config.advertised_listeners)

    def _secure(self) -> SecuredListeners | None:
        """Create the secured listeners; None if all listeners are PLAINTEXT."""
        if not self.config.is_secured:
            return None
        from broker.cluster.secured_listeners import SecuredListeners

        secured = SecuredListeners(
            self.config, self._clock, lambda: self.node.metadata, has_peers=self._has_peers
        )
        for warning in secured.warnings:
            log.warning(warning)
        return secured

    @property
    def directory(self) -> LogDirectory:
        """The log directory, available after `lock_and_bind`."""
        assert self._directory is not None
        return self._directory

    @property
    def endpoints(self) -> list[Endpoint]:
        """The advertised endpoints, for the broker registration."""
        return [
            Endpoint(
                each.name,
                each.advertised_host,
                each.advertised_port,
                SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in self.listeners
        ]

    def start_log_manager(self, metadata: ClusterMetadata) -> None:
        """Create the `Node`, and open and recover the logs that exist according to the metadata."""
        assert self._directory is not None
        settings = Settings(metadata.image, self._static)
        follow(self.config, settings.current)
        # Subscribed before replicas and coordinators, so that these see changed settings.
        self._publisher = DynamicConfigPublisher(self.config, settings, self._on_configured)
        metadata.subscribe(self._publisher)
        self.node = self._build_node(self._directory, metadata, settings)
        self.node.replicas.recover()
        note_synced((each.log for each in self._opened()), self.synced)
        self.life.check()

    def start_coordinators(self) -> None:
        """Load the coordinators' state, and continue decided transactions."""
        # Groups first: continuing transactions writes markers at once, which may commit offsets of groups.
        self.node.groups.start()
        self.life.check()
        self.node.transactions.start()
        self.life.check()
        self.node.share_coordinator.start()
        self.life.check()

    async def enable_request_processing(self) -> None:
        """Start serving clients."""
        loop = asyncio.get_running_loop()
        quotas = ConnectionQuotas.of(self.config)
        self.connections = Connections(
            self.node,
            Routes(discover(), UNSTABLE_VERSIONS if self.config.unstable_api_versions_enable else {}),
            quotas,
            self._clock,
            loop,
            self._calls,
            self._on_disconnected,
            None if self._secured is None else self._secured.by_name,
        )
        await self._server.accept(self.connections)
        self.connections.watch_idleness()
        self.node.replicas.start_timers()
        self.life.check()
        self.state = NodeState.RUNNING

    def _build_node(self, directory: LogDirectory, metadata: ClusterMetadata, settings: Settings) -> Node:
        config, clock, random = self.config, self._clock, self._random
        replicas = ReplicaManager(
            config.node_id,
            directory,
            config,
            clock,
            metadata,
            random,
            injection=self._injection,
            peers=self._peer_replicas,
            life=self.life,
        )
        replicas.add_listener(Retention(config, clock, replicas))
        if config.log_cleaner_enable:
            replicas.add_listener(LogCleaner(directory, config, clock, replicas.in_background))
        if self._on_failed_replica is not None:
            replicas.add_listener(FailedReplicaListener(partial(self._on_failed_replica, config.node_id)))
        injection = self._injection
        connect = self._secured.connect() if self._secured is not None and self._has_peers else None
        peers = Peers(config.node_id, config, clock, metadata, injection, connect)
        groups, transactions, share_coordinator, persister = coordinators(
            config, clock, metadata, replicas, peers, random=random, injection=injection, life=self.life
        )
        client_metrics = ClientMetricsManager(
            metadata.image,
            clock,
            lambda: UUID(int=random.getrandbits(128), version=4),
            config.telemetry_max_bytes,
            exporter_of(config),
        )
        metadata.subscribe(client_metrics)
        self._authorizer = self._build_authorizer(metadata)
        return Node(
            node_id=config.node_id,
            config=config,
            clock=clock,
            metadata=metadata,
            settings=settings,
            replicas=replicas,
            transactions=transactions,
            groups=groups,
            share_coordinator=share_coordinator,
            persister=persister,
            fetch_sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots, lambda: random.randint(1, SESSION_ID_MAX)
            ),
            verifier=Verifier(config, clock, transactions, self.life, peers),
            quotas=ClientQuotas(config, clock, lambda: metadata.image.quotas),
            client_metrics=client_metrics,
            share=share_partitions(
                config, clock, metadata, replicas, persister, peers, self._slices, self.life, injection
            ),
            rack=config.broker_rack,
            authorizer=self._authorizer,
            check_listeners=None if self._secured is None else self._secured.check,
            injection=injection,
            slices=self._slices,
            append_queues=AppendQueues(self._slices, limits_of(config), self._takes_appends),
            life=self.life,
            peers=peers,
        )

    def _build_authorizer(self, metadata: ClusterMetadata) -> StandardAuthorizer | None:
        if not self.config.authorizer_class_name:
            return None
        from broker.security.authorizer.settings import authorizer_of
        from broker.security.authorizer.standard_authorizer import StandardAuthorizer

        settings = authorizer_of(self.config.values)
        assert settings is not None
        authorizer = StandardAuthorizer(metadata.image.acls.values(), *settings)
        metadata.subscribe(authorizer)
        return authorizer

    def _on_disconnected(self, connection_id: int) -> None:
        self.node.client_metrics.on_disconnected(connection_id)
        self.node.share.on_disconnected(connection_id)

    def _on_configured(self) -> None:
        """Pass settings that were changed at run time to the parts of the node that keep copies of settings."""
        if hasattr(self, "node"):
            self.node.replicas.reconfigure()
        if hasattr(self, "connections"):
            self.connections.quotas = ConnectionQuotas.of(self.config)
            if self._secured is not None:
                self._secured.reconfigure()

    def _takes_appends(self) -> bool:
        return self.state in (NodeState.STARTING, NodeState.RUNNING)

    # -- pausing ------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.life.suspended is not None and self.life.alive

    @property
    def shown_state(self) -> str:
        """The state for users. In contrast to ``state``, it may be "paused"."""
        return PAUSED if self.is_paused else self.state.value

    def pause(self) -> None:
        """Pause the node as SIGSTOP does: sockets stay open, timers do not run."""
        self.life.suspended = []
        self.connections.pause()
        log.info("paused", node_id=self.node_id)

    def resume(self) -> None:
        """Resume the node. Timers that were due during the pause run first, in order."""
        due, self.life.suspended = self.life.suspended or [], None
        for timer in due:
            asyncio.get_running_loop().call_soon(timer)
        self.connections.resume()
        log.info("resumed", node_id=self.node_id)

    # -- stopping -----------------------------------------------------------------------------------------------

    async def controlled_shutdown(self) -> bool:
        """Close connections and coordinators, and complete the files. Returns whether all files are complete.

        Raises `LifeOver` if the node is killed meanwhile.
        """
        self.state = NodeState.STOPPING
        self._server.stop_accepting()
        await self.connections.close()
        self.life.check()
        self._forget_metadata()
        self.node.share.close()
        self.node.share_coordinator.close()
        self.node.transactions.close()
        self.node.groups.close()
        if self.node.peers is not None:
            self.node.peers.close()
        clean = await self.node.replicas.close(clean=True)
        self.life.check()
        return clean

    def _forget_metadata(self) -> None:
        """Unsubscribe all parts of the node from metadata changes."""
        node = self.node
        for listener in (
            self._publisher,
            node.replicas,
            node.groups,
            node.transactions,
            node.share_coordinator,
            node.client_metrics,
        ):
            node.metadata.unsubscribe(listener)
        if self._authorizer is not None:
            node.metadata.unsubscribe(self._authorizer)

    def release(self, *, clean: bool) -> None:
        """Unlock the directory; after a clean stop, write the clean shutdown file first."""
        assert self._directory is not None
        self.state = NodeState.STOPPED
        self.life.end()
        epoch = self.node.metadata.brokers[self.node_id].epoch
        try:
            self._directory.close(clean=clean, broker_epoch=epoch)
        except StorageError as error:
            log.error("writing the clean shutdown file failed", file=error.path, reason=str(error))
        log.info("stopped", node_id=self.node_id)

    def kill(self) -> None:
        """Kill the node as kill -9 does: connections are reset, and nothing is written.

        May be called at any time, also during a start or a stop.
        """
        if self.state is not NodeState.STARTING:
            self.synced = synced_lengths(each.log for each in self._opened())
        self.state = NodeState.KILLED
        self.abandon()
        log.info("killed", node_id=self.node_id)

    def note_power_loss(self) -> None:
        """Prepare for a kill with loss of unsynced data: `await_termination` then cuts the files to their synced lengths."""
        self._lost_power = self._opened()

    def _opened(self) -> list[Partition]:
        return list(self.node.replicas.opened()) if hasattr(self, "node") else []

    def abandon(self) -> None:
        """Release all resources as a crash would, so that the next start recovers all logs."""
        if not self.life.alive:
            return
        # First, since the following calls may call back into the node, which must be dead by then.
        self.life.end()
        self._server.stop_accepting()
        if hasattr(self, "connections"):
            self.connections.reset()
        if hasattr(self, "node"):
            self._forget_metadata()
            self.node.share.close()
            self.node.share_coordinator.abandon()
            self.node.transactions.abandon()
            self.node.groups.abandon()
            if self.node.peers is not None:
                self.node.peers.abandon()
            self.node.replicas.abandon()
        if self._directory is not None:
            self._directory.close(clean=False)

    async def await_termination(self) -> None:
        """Return when no start or stop of the node is in progress any more, and its threads have ended."""
        async with self.lifecycle_lock:
            if hasattr(self, "node"):
                await self.node.replicas.await_termination()
            self._forget_unsynced()

    def _forget_unsynced(self) -> None:
        partitions, self._lost_power = self._lost_power, []
        for each in partitions:
            try:
                self.synced = {**self.synced, **forget_unsynced(each.log, partial(self._note_unsynced, each))}
            except StorageError as error:
                log.error("log not truncated after a power loss", file=error.path, reason=str(error))

    def _note_unsynced(self, partition: Partition, end_offset: int) -> None:
        """Record the batches that a power loss removes, unless another replica leads the partition and still has them."""
        known = self.node.metadata.topic(partition.topic)
        state = known.partition(partition.index) if known is not None else None
        if state is None or state.leader != NO_LEADER:
            return
        log.warning(
            "log cut by a power loss: records are lost",
            node_id=self.node_id,
            topic=partition.topic,
            partition=partition.index,
            from_offset=partition.log_end_offset,
            to_offset=end_offset,
            high_watermark=partition.high_watermark,
        )
        now_ms = self._clock.cluster_ms()
        note_lost(partition, end_offset, self._injection.losses, now_ms=now_ms, node_id=self.node_id)
