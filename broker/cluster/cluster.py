"""The broker of this process: its nodes, the state that they share, and their starts, stops and kills.

    cluster = Cluster(settings)
    await cluster.start()
    cluster.kill_node(2)
    await cluster.start_node(2)
    await cluster.stop()

One metadata log serves all nodes. It is in the first node's directory, as on a Kafka node that is both broker and
controller. The controller belongs to the process, and so keeps running when the first node is killed (docs/differences.md).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from broker.clock import Periodic
from broker.clock.virtual import VirtualClock
from broker.cluster.directories import introduce, node_directories, start_refusal
from broker.cluster.errors import EXPECTED, NoSuchNode, StartError
from broker.cluster.failed_replicas import report_failed_replica
from broker.cluster.in_words import nodes_in_words
from broker.cluster.internal_topic_warnings import InternalTopicWarnings
from broker.cluster.leadership import leadership_tasks
from broker.cluster.lifecycle import Lifecycle
from broker.cluster.paused_links import PausedLinks
from broker.cluster.runtime import DEAD, NodeRuntime, NodeState
from broker.cluster.snapshot_files import SNAPSHOTS
from broker.cluster.startup_topics import StartupTopics
from broker.injection.happenings import Happening
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.lag import LoopLag
from broker.loop.life import LifeOver
from broker.loop.slices import Slices
from broker.metadata import ApiError, ClusterMetadata
from broker.metadata.metadata_log_copy import copy_metadata
from broker.metadata.values import BrokerRegistration
from broker.net.calls import CallInterceptors
from broker.net.ports import Bind, Ports
from broker.net.throttling import ThrottlingSwitch
from broker.node import Node
from broker.node.dynamic_configs import CordonedDirectories
from broker.replicas.manager import ReplicaManager
from broker.resources.descriptors import SLOTS, allowed_descriptors, shares
from broker.resources.unsent import UNSENT
from storage.descriptors import SPARE_DESCRIPTORS, SPARES
from storage.files import DESCRIPTORS, remove_tree

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.config.settings import Settings
    from broker.metadata.image import Image
    from broker.net.acceptor import Acceptor
    from broker.replicas.partition import Partition

log = get_logger()


class Cluster:
    """The nodes of this process, one by default. Other classes must not assign its attributes."""

    metadata: ClusterMetadata

    def __init__(
        self,
        settings: Settings,
        clock: VirtualClock | None = None,
        random: Random | None = None,
        injection: FaultInjection | None = None,
        bind: Bind | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or VirtualClock()
        self.random = random or Random()
        self.injection = injection or FaultInjection()
        self.calls = CallInterceptors()
        self.nodes: dict[int, NodeRuntime] = {}
        """All nodes by id, including stopped and killed ones."""
        self.misroutes: dict[int, int] = {}
        """Id of a misrouted node -> id of the node that serves the connections that clients open to it."""
        self.lag = LoopLag(asyncio.get_running_loop())
        self.lifecycle = Lifecycle()
        self.first_features: Mapping[str, int] = {}
        """Finalized feature levels after the start, which a reset restores."""
        self.first_clients: Image
        """The client quotas, credentials, tokens and ACLs after the start, which a reset restores."""
        self.is_new = True
        """Whether the cluster had no topics when it was started."""
        self.startup_topics = StartupTopics(settings.topics, settings.config)
        self._ports = Ports(bind)
        self._slices = Slices()
        self._began_s = time.perf_counter()
        self._configs = {config.node_id: config for config in settings.nodes}
        self._directories: dict[int, Path] = {}
        self._opened: ClusterMetadata | None = None
        self._paused_links = PausedLinks(self.injection.links)
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._periodic: list[Periodic] = []
        self._background: set[asyncio.Task[None]] = set()

    # -- lookup -------------------------------------------------------------------------------------------------

    def running(self, node_id: int) -> Node | None:
        """The node with this id if it is running; None if it is in another state or unknown."""
        runtime = self.nodes.get(node_id)
        return runtime.node if runtime is not None and runtime.state is NodeState.RUNNING else None

    def running_nodes(self) -> list[Node]:
        return [runtime.node for runtime in self.nodes.values() if runtime.state is NodeState.RUNNING]

    @property
    def first(self) -> NodeRuntime:
        """The node whose directory has the metadata log."""
        return self.nodes[self.settings.config.node_id]

    def _replicas_of(self, node_id: int) -> ReplicaManager | None:
        """The `ReplicaManager` of a node whose logs are open, else None. Other nodes may replicate from the node before it
        serves clients.
        """
        runtime = self.nodes.get(node_id)
        if runtime is None or runtime.state not in (NodeState.STARTING, NodeState.RUNNING):
            return None
        # A starting node has no `node` attribute before `start_log_manager`.
        node: Node | None = getattr(runtime, "node", None)
        return node.replicas if node is not None else None

    def _acceptor_for(self, node_id: int, listener: str) -> Acceptor | None:
        """The acceptor that serves a new connection to this listener of a node; None if no node serves it.

        A separate listener for the nodes (``inter.broker.listener.name``) is never misrouted.
        """
        config = self._configs[node_id]
        if len(config.listeners) == 1 or listener != config.inter_broker_listener_name:
            node_id = self.misroutes.get(node_id, node_id)
        return self.nodes[node_id].acceptor(listener)

    # -- starting -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all nodes, and return when they serve clients. Releases all resources if it raises an error."""
        try:
            async with self.lifecycle.call_on_all_nodes():
                await self._start()
        except EXPECTED as error:
            self._abandon()
            raise StartError(start_refusal(error)) from error
        except BaseException:
            self._abandon()
            raise

    async def _start(self) -> None:
        config = self.settings.config
        share = shares(allowed_descriptors(), config.open_files_max)
        DESCRIPTORS.limit, SLOTS.limit = share.files, share.clients
        SPARES.count = SPARE_DESCRIPTORS
        SPARES.fill()
        UNSENT.limit_bytes = config.queued_max_response_bytes
        root = config.log_dir or Path(tempfile.mkdtemp(prefix="odradek-"))
        self._directories = node_directories(root, [each.node_id for each in self.settings.nodes])
        for each in self.settings.nodes:
            self._take(each)
        remove_tree(self.data_dir / SNAPSHOTS)  # left by a process that was killed
        self.metadata = self._opened = self._open_metadata()
        self.metadata.subscribe(ThrottlingSwitch(self.calls, self.metadata.image))
        self._cordoned = CordonedDirectories(self.metadata, self.nodes, self._run)
        InternalTopicWarnings(self.metadata, self.first.config)
        for runtime in self._living():
            with suppress(LifeOver):
                self.open_logs(runtime)
        for runtime in self._living():
            with suppress(LifeOver):
                runtime.start_coordinators()
        self.is_new = not self.metadata.topics
        await self.startup_topics.create(self.metadata)
        await self._create_startup_users()
        self.first_features = dict(self.metadata.features)
        self.first_clients = self.metadata.client_control.saved()
        for runtime in self._living():
            with suppress(LifeOver):
                await runtime.enable_request_processing()
                self._cordoned.report(runtime.node_id)
        if len(self.nodes) > 1:
            self._periodic = leadership_tasks(self.clock, self.settings.config, self.metadata, self._run)
        if self.settings.config.delegation_token_secret_key:
            self._periodic.append(self.metadata.token_control.expiry_check(self._run))
        self.lag.start()

    def _living(self) -> Iterator[NodeRuntime]:
        """The nodes that were not killed in an earlier step of the start."""
        return (runtime for runtime in self.nodes.values() if runtime.life.alive)

    def _take(self, config: BrokerConfig) -> None:
        self.nodes[config.node_id] = runtime = self._runtime(config)
        runtime.lock_and_bind()

    def _runtime(self, config: BrokerConfig, before: NodeRuntime | None = None) -> NodeRuntime:
        return NodeRuntime(
            config,
            self._directories[config.node_id],
            clock=self.clock,
            random=self.random,
            injection=self.injection,
            calls=self.calls,
            slices=self._slices,
            peer_replicas=self._replicas_of,
            listeners=() if before is None else before.listeners,
            synced={} if before is None else before.synced,
            skew_ms=0 if before is None else before.skew_ms,
            ports=self._ports,
            route=self._acceptor_for,
            on_failed_replica=self._on_failed_replica if len(self._configs) > 1 else None,
            has_peers=len(self._configs) > 1,
        )

    def open_logs(self, runtime: NodeRuntime) -> None:
        """Copy the metadata to a node's directory, and open its logs: the second step of the node's start."""
        copy_metadata(self.first.data_dir, runtime.data_dir)
        runtime.start_log_manager(self.metadata)

    def _release(self, runtime: NodeRuntime, *, clean: bool) -> None:
        copy_metadata(self.first.data_dir, runtime.data_dir)
        runtime.release(clean=clean)

    def _open_metadata(self) -> ClusterMetadata:
        first, *others = self.nodes.values()
        now_ms = self.clock.now_ms()
        return ClusterMetadata.open(
            first.data_dir,
            config=first.config,
            clock=self.clock,
            random=self.random,
            endpoints=first.endpoints,
            others=lambda metadata: [introduce(metadata, each, self.random, now_ms) for each in others],
            features=self.settings.features,
            previous_epoch=first.directory.previous_epoch,
        )

    async def _create_startup_users(self) -> None:
        if self.settings.users:
            from broker.cluster.startup_users import create_startup_users

            await create_startup_users(self.metadata, self.settings.users)

    @property
    def age_ms(self) -> int:
        """Milliseconds since the creation of this `Cluster`."""
        return round((time.perf_counter() - self._began_s) * 1000)

    @property
    def data_dir(self) -> Path:
        """The log directory of a single node, or the parent of the nodes' log directories."""
        path = self._directories[self.settings.config.node_id]
        return path if len(self._directories) == 1 else path.parent

    # -- one node -----------------------------------------------------------------------------------------------

    def kill_node(self, node_id: int) -> None:
        """Kill a node as kill -9 does: sockets are reset, and nothing is written. Other nodes take over its partitions.

        A node can also be killed during each step of its start or stop, which then fails. A kill does not wait for calls in
        progress (`Lifecycle`).
        """
        self._expect(node_id, NodeState.RUNNING, NodeState.STARTING, NodeState.STOPPING).kill()
        self._happened(node_id, "killed")
        self._paused_links.reconnect(node_id)
        self.clock.cancel_dead()
        self.note_loss(node_id)

    def kill_all_nodes(self) -> None:
        """Kill all nodes that are not stopped or killed already."""
        for runtime in tuple(self.nodes.values()):
            if runtime.state not in DEAD:
                self.kill_node(runtime.node_id)

    async def all_terminated(self) -> None:
        """Return when the killed nodes have terminated, and are fenced in the metadata."""
        await self.lifecycle.calls_ended()
        await self.settled()
        for runtime in self.nodes.values():
            await runtime.await_termination()

    def pause_node(self, node_id: int) -> None:
        """Pause a node as SIGSTOP does: it handles, sends and replicates nothing, and stays the leader of its partitions."""
        runtime = self._expect(node_id, NodeState.RUNNING)
        if runtime.is_paused:
            raise NoSuchNode(f"node {node_id} is paused already")
        if runtime.lifecycle_lock.locked():
            raise NoSuchNode(f"node {node_id} is stopping, not running")
        runtime.pause()
        self._happened(node_id, "paused")
        self._paused_links.cut_off(node_id, self.nodes)

    def resume_node(self, node_id: int) -> None:
        """Resume a paused node. Raises `NoSuchNode` if the node is not paused."""
        runtime = self._expect(node_id, NodeState.RUNNING)
        if not runtime.is_paused:
            raise NoSuchNode(f"node {node_id} is running, not paused")
        self._paused_links.reconnect(node_id)
        self._happened(node_id, "resumed")
        runtime.resume()

    async def settled(self) -> None:
        """Return when killed nodes are fenced in the metadata, and other nodes lead their partitions."""
        if self._background:
            await asyncio.wait(tuple(self._background))

    async def stop_node(self, node_id: int) -> None:
        """Stop a node by a controlled shutdown: other nodes take over its leaderships first, and its files are complete.

        With ``controlled.shutdown.enable=false`` other nodes take over when its connections are closed.
        """
        async with self.lifecycle.call():
            runtime = self._expect(node_id, NodeState.RUNNING)
            if runtime.is_paused:
                raise NoSuchNode(f"node {node_id} is paused: resume it, or kill it")
            async with runtime.lifecycle_lock:
                self._expect(node_id, NodeState.RUNNING)
                await self._stop_node(runtime)

    async def _stop_node(self, runtime: NodeRuntime) -> None:
        node_id = runtime.node_id
        if runtime.config.controlled_shutdown_enable:
            await self.metadata.cluster_control.hand_over(node_id)
            self._expect(node_id, NodeState.RUNNING)
        try:
            clean = await runtime.controlled_shutdown()
            await self._lose(node_id)
            runtime.life.check()
        except LifeOver:
            raise NoSuchNode(f"node {node_id} was killed while it stopped") from None
        except BaseException:
            self.kill_node(node_id)
            raise
        self._release(runtime, clean=clean)
        self._happened(node_id, "stopped")

    async def start_node(self, node_id: int) -> None:
        """Start a dead node again: it recovers its logs, and follows the current leaders.

        Raises ``StartError`` if the start fails: the node then has its previous state again. Also raises ``StartError`` if
        the node is killed during the start.
        """
        async with self.lifecycle.call():
            before = self._expect(node_id, *DEAD)
            runtime = self.new_life(before)
            async with runtime.lifecycle_lock:
                try:
                    await self._start_again(runtime, before)
                except BaseException as error:
                    failure = self.take_back_start(runtime, before, error)
                    if failure is None:
                        raise
                    raise failure from error

    def new_life(self, before: NodeRuntime) -> NodeRuntime:
        """Create the next life of a dead node, which uses the same ports, and put it into `nodes`."""
        config = self._configs[before.node_id] = before.with_ports(self._configs[before.node_id])
        runtime = self.nodes[before.node_id] = self._runtime(config, before)
        return runtime

    def take_back_start(
        self, runtime: NodeRuntime, before: NodeRuntime, error: BaseException
    ) -> StartError | None:
        """Undo a failed start: the node gets its previous state again, unless it was killed during the start.

        Returns the `StartError` to raise; None if ``error`` is unexpected, and should itself be raised again.
        """
        node_id = runtime.node_id
        # If the node was killed, its loss may have been recorded before its registration, so record it again.
        self.note_loss(node_id)
        if isinstance(error, LifeOver):
            return StartError(f"node {node_id} was killed while it started")
        runtime.abandon()
        before.skew(runtime.skew_ms)
        self.nodes[node_id] = before
        return StartError(start_refusal(error)) if isinstance(error, EXPECTED) else None

    async def _start_again(self, runtime: NodeRuntime, before: NodeRuntime) -> None:
        await before.await_termination()
        leaving = self._leaving.pop(runtime.node_id, None)
        if leaving is not None:
            await leaving
        runtime.life.check()
        runtime.lock_and_bind()
        self.open_logs(runtime)
        await self.metadata.cluster_control.join(self.introduce(runtime))
        runtime.life.check()
        runtime.start_coordinators()
        with suppress(StartError):  # too few nodes: the next start creates the topics
            await self.startup_topics.create(self.metadata)
        await self.enable_request_processing(runtime)

    async def enable_request_processing(self, runtime: NodeRuntime) -> None:
        """Start serving clients, which is the last step of a node's restart, and record that the node has started."""
        await runtime.enable_request_processing()
        self._cordoned.report(runtime.node_id)
        self._happened(runtime.node_id, "started")

    def _happened(self, node_id: int, what: str) -> None:
        """Record a change of a node's state (``what``, such as "killed") as an event for timelines."""
        self.injection.happenings.note(
            Happening(self.clock.now_ms(), "node", node_id, f"node {node_id} is {what}")
        )

    def introduce(self, runtime: NodeRuntime) -> BrokerRegistration:
        """Return the registration for a node that is about to start."""
        return introduce(self.metadata, runtime, self.random, self.clock.now_ms())

    def note_loss(self, node_id: int) -> None:
        """Fence a dead node in the metadata, in the background. The node's next start waits for the fencing."""
        if self._opened is not None:
            self._leaving[node_id] = self._run(self._lose(node_id))

    def _expect(self, node_id: int, *states: NodeState) -> NodeRuntime:
        runtime = self.nodes.get(node_id)
        if runtime is None:
            raise NoSuchNode(f"there is no node {node_id}: {nodes_in_words(self.nodes)}")
        if runtime.state not in states:
            wanted = " or ".join(state.value for state in states)
            raise NoSuchNode(f"node {node_id} is {runtime.state.value}, not {wanted}")
        return runtime

    def _on_failed_replica(self, node_id: int, partition: Partition) -> None:
        self._run(report_failed_replica(self.metadata, node_id, partition))

    async def _lose(self, node_id: int) -> None:
        try:
            await self.metadata.cluster_control.fence(node_id)
        except ApiError as refusal:
            log.error("fencing a node in the metadata failed", node_id=node_id, reason=str(refusal))

    def _run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # -- stopping -----------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop all nodes: disconnect clients, finish work in progress, and complete the files."""
        for each in self._periodic:
            each.cancel()
        for node_id, runtime in self.nodes.items():
            if runtime.state is NodeState.STARTING:
                runtime.kill()
            elif runtime.is_paused:
                self.resume_node(node_id)
        async with self.lifecycle.last_call():
            await self._stop()

    async def _stop(self) -> None:
        if self._background:
            await asyncio.wait(self._background)
        running = [each for each in self.nodes.values() if each.state is NodeState.RUNNING]
        clean = await asyncio.gather(
            *(runtime.controlled_shutdown() for runtime in running), return_exceptions=True
        )
        self.lag.stop()
        remove_tree(self.data_dir / SNAPSHOTS)
        await self.metadata.leave()
        await self.metadata.close()
        for runtime, complete in zip(running, clean, strict=True):
            if isinstance(complete, LifeOver):
                continue  # a fault rule killed the node meanwhile
            if isinstance(complete, BaseException):
                raise complete
            self._release(runtime, clean=complete)
        self._let_go()

    def _abandon(self) -> None:
        """Release everything after a failed start as a crash would, so that the next start recovers all logs."""
        self.lag.stop()
        if self._opened is not None:
            self._opened.abandon()
        for runtime in self.nodes.values():
            runtime.abandon()
        self._let_go()

    def _let_go(self) -> None:
        self._ports.close()
        if self.settings.config.log_dir is None and self._directories:
            shutil.rmtree(self.data_dir, ignore_errors=True)
