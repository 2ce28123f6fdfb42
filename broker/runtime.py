"""A node from its settings to serving clients, and back to files at rest.

The order of the start is one of trust: the directory is ours alone before it is read, the metadata says what exists
before logs are opened, coordinators know their state before clients may ask for it. A stop undoes it in reverse.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import structlog

from broker.api import discover
from broker.clock import Clock, SystemClock
from broker.fetch_sessions import FetchSessions
from broker.groups.coordinator import GroupCoordinator
from broker.hooks import Hooks
from broker.logging import get_logger
from broker.loop_lag import LoopLag
from broker.metadata import ClusterMetadata, Endpoint, NewTopic, Refused
from broker.metadata.features import UnsupportedFeature
from broker.metadata.files import WrongDirectory
from broker.metadata.framing import CorruptMetadata
from broker.node import Listener, Node
from broker.replicas import Replicas
from broker.routes import Routes
from broker.server import BindError, Connections, Limits, Server
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.verification import Verifier
from broker.upkeep.compaction import Compaction
from broker.upkeep.retention import Retention
from storage.directory import DirectoryInUse, LogDirectory
from storage.files import DESCRIPTORS, StorageError

if TYPE_CHECKING:
    from broker.options import Settings, TopicSpec

SESSION_ID_MAX: Final = 2**31 - 1
OPEN_FILES_MAX: Final = 16384
"""Of the logs, if nothing else is said: beyond that, to open a file again costs less than to keep it."""

log = get_logger()


class StartError(Exception):
    """The broker cannot start; the text is a sentence for whoever started it."""


_EXPECTED: Final = (
    BindError,
    CorruptMetadata,
    DirectoryInUse,
    OSError,
    StorageError,
    UnsupportedFeature,
    WrongDirectory,
)


class Runtime:
    """One node, its sockets and its files."""

    node: Node
    connections: Connections
    listeners: Sequence[Listener]
    data_dir: Path

    def __init__(self, settings: Settings, clock: Clock | None = None, random: Random | None = None) -> None:
        self.settings = settings
        self._config = settings.config
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._began = time.perf_counter()
        self._directory: LogDirectory | None = None
        self._metadata: ClusterMetadata | None = None
        self._server = Server(self._config.socket_listen_backlog_size)
        self.lag = LoopLag(asyncio.get_running_loop())

    async def start(self) -> None:
        """Return once clients are served. ``StartError`` if that cannot be, with everything let go of."""
        try:
            await self._start()
        except _EXPECTED as error:
            self._abandon()
            raise StartError(str(error)) from error
        except BaseException:
            self._abandon()
            raise

    async def _start(self) -> None:
        config = self._config
        DESCRIPTORS.limit = config.open_files_max or _open_files_max()
        self.data_dir = config.log_dir or Path(tempfile.mkdtemp(prefix="odradek-"))
        self._directory = LogDirectory(self.data_dir)
        self.listeners = self._server.bind(config.listeners, config.advertised_listeners)
        self._metadata = self._open_metadata()
        self.node = self._build_node(self._directory, self._metadata)
        self.node.replicas.recover()
        # Decided transactions are finished at once, and their markers may commit offsets: groups come first.
        self.node.groups.start()
        self.node.transactions.start()
        await self._create_topics(self.settings.topics)
        self.connections = Connections(
            self.node, Routes(discover()), Limits.of(config), self._clock, asyncio.get_running_loop()
        )
        await self._server.accept(self.connections)
        self.connections.watch_idleness()
        self.node.replicas.start_timers()
        self.lag.start()

    def _open_metadata(self) -> ClusterMetadata:
        assert self._directory is not None
        return ClusterMetadata.open(
            self._directory.path,
            config=self._config,
            clock=self._clock,
            random=self._random,
            endpoints=[
                Endpoint(listener.name, listener.advertised_host, listener.advertised_port)
                for listener in self.listeners
            ],
            features=self.settings.features,
        )

    def _build_node(self, directory: LogDirectory, metadata: ClusterMetadata) -> Node:
        config, clock, random = self._config, self._clock, self._random
        replicas = Replicas(config.node_id, directory, config, clock, metadata, random)
        replicas.add_upkeep(Retention(config, clock, replicas))
        if config.log_cleaner_enable:
            replicas.add_upkeep(Compaction(directory, config, clock, replicas.in_background))
        groups = GroupCoordinator(config, clock, metadata, replicas)
        transactions = TransactionCoordinator(config, clock, metadata, replicas, groups)
        return Node(
            node_id=config.node_id,
            config=config,
            clock=clock,
            metadata=metadata,
            replicas=replicas,
            transactions=transactions,
            groups=groups,
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots, lambda: random.randint(1, SESSION_ID_MAX)
            ),
            verifier=Verifier(config, clock, transactions),
            hooks=Hooks(),
            rack=config.broker_rack,
        )

    async def _create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """The topics of the command line that are not there yet."""
        assert self._metadata is not None
        new = [
            NewTopic(spec.name, spec.partitions, configs=dict(spec.configs))
            for spec in specs
            if self._metadata.topic(spec.name) is None
        ]
        if not new:
            return
        try:
            results = await self._metadata.create_topics(new)
        except Refused as refusal:
            raise StartError(f"--topic: {refusal.message}") from refusal
        for topic, result in zip(new, results, strict=True):
            if isinstance(result, Refused):
                raise StartError(f"--topic {topic.name}: {result.message}")

    def say_started(self) -> None:
        """The lines that people and their tools wait for, printed at any log level."""
        log = structlog.wrap_logger(
            structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        node_id = self._config.node_id
        for line in (
            f"[KafkaServer id={node_id}] started",
            "Kafka Server started",
            f"[BrokerLifecycleManager id={node_id}] Transitioning from RECOVERY to RUNNING.",
            "Successfully started Redpanda! Started Kafka API server",
        ):
            log.info(line)
        log.info(
            "started",
            node_id=node_id,
            cluster_id=self.node.metadata.cluster_id,
            listeners=[f"{each.name}://{_host(each.host)}:{each.port}" for each in self.listeners],
            advertised=[
                f"{each.name}://{_host(each.advertised_host)}:{each.advertised_port}"
                for each in self.listeners
            ],
            data_dir=str(self.data_dir),
            start_ms=round((time.perf_counter() - self._began) * 1000),
        )

    async def stop(self) -> None:
        """Let the clients go, finish what is under way, and leave files that need no recovery."""
        self._server.stop_accepting()
        await self.connections.close()
        self.node.transactions.close()
        self.node.groups.close()
        clean = await self.node.replicas.close(clean=True)
        self.lag.stop()
        await self.node.metadata.leave()
        await self.node.metadata.close()
        assert self._directory is not None
        epoch = self.node.metadata.brokers[self.node.node_id].epoch
        try:
            self._directory.close(clean=clean, broker_epoch=epoch)
        except StorageError as error:
            log.error("no mark of a clean stop", file=error.path, reason=str(error))
        self._remove_temporary()
        log.info("stopped", node_id=self.node.node_id)

    def _abandon(self) -> None:
        """A start that failed: let go as a crash would, so that the next one looks at everything again."""
        self._server.stop_accepting()
        self.lag.stop()
        if self._metadata is not None:
            self._metadata.abandon()
        if self._directory is not None:
            self._directory.close(clean=False)
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._config.log_dir is None:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _open_files_max() -> int:
    """Half of what this process may open (`broker.__main__` asks for all that it can have); the rest is for clients."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if allowed == resource.RLIM_INFINITY else min(allowed // 2, OPEN_FILES_MAX)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
