"""The proxy: discovers the upstream's nodes and opens a listener for each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from broker.clock import Domain, stopwatch_us
from broker.clock.virtual import VirtualClock
from broker.cluster.addresses import host_and_port
from broker.config.endpoints import Endpoint
from broker.injection.points import FaultInjection
from broker.logging import get_logger, get_unfiltered_logger, print_on_a_terminal
from broker.loop.lag import LoopLag
from broker.loop.slices import Slices
from broker.net.calls import CallInterceptors
from broker.net.ports import BindError, Ports
from broker.node import Listener
from broker.requests.api import CloseConnection
from broker.resources.descriptors import CLIENTS_MIN, OTHERS, SLOTS, allowed_descriptors, shares
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.slotted import slotted
from proxy.asking import NoAnswer, Upstream
from proxy.node import ProxyNode
from proxy.options import ProxySettings
from proxy.rewriting import METADATA
from proxy.topics import TopicNames
from proxy.wire import Buffers

LISTENER: Final = "PLAINTEXT"
UPSTREAM_S_MAX: Final = 30.0
"""Maximum wait for the upstream when the proxy starts, in seconds: the upstream may be starting, too."""
RETRY_MS: Final = 500
NOTICE_MS: Final = 2_000
DESCRIPTORS_PER_CLIENT: Final = 2
"""Descriptors per client: its connection, and the one to the upstream."""

log = get_logger()


class StartError(Exception):
    """The proxy cannot start. The message is for the user."""


@slotted(frozen=True)
class Brokers:
    """The cluster id and the nodes, as the upstream describes them."""

    cluster_id: str
    nodes: tuple[tuple[int, str, int], ...]
    """(node id, host, port) of each node."""


class Proxy:
    """One proxy in front of one cluster. Implements `proxy.node.ProxyContext` for its nodes."""

    def __init__(self, settings: ProxySettings, clock: VirtualClock | None = None) -> None:
        self._began_us = stopwatch_us()
        self.settings = settings
        self.clock = clock or VirtualClock()
        self.calls = CallInterceptors()
        self.injection = FaultInjection()
        self.slices = Slices()
        self.buffers = Buffers()
        self.ports = Ports()
        self.topics = TopicNames()
        self.tls = settings.tls
        self.tracks_sessions = settings.control is not None or bool(settings.faults)
        self.upstream = Upstream(self.buffers, self.slices, settings.tls)
        self.lag = LoopLag(asyncio.get_running_loop())
        self.cluster_id = ""
        self.nodes: dict[int, ProxyNode] = {}
        self._next_port = settings.port
        self._opening = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    # -- start and stop ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the proxy. Returns when each upstream node has a listener.

        Raises ``StartError`` if the upstream does not respond in time, or if a port is not available.
        """
        allowed = allowed_descriptors()
        clients = (allowed - shares(allowed).control - OTHERS) // DESCRIPTORS_PER_CLIENT
        SLOTS.limit = max(clients, CLIENTS_MIN)
        try:
            brokers = await self._find_brokers()
            self.cluster_id = brokers.cluster_id
            await self._open(sorted(brokers.nodes))
        except BindError as error:
            await self.stop()
            raise StartError(str(error)) from error
        except StartError:
            await self.stop()
            raise
        self.lag.start()

    async def stop(self) -> None:
        """Close all listeners and connections."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*(node.close() for node in self.nodes.values()))
        self.upstream.close()
        self.lag.stop()
        self.ports.close()
        log.info("stopped")

    async def _find_brokers(self) -> Brokers:
        silent = f"{self.upstream_in_words} has not responded within {NOTICE_MS / 1000:g} s"
        tell = partial(log.info, "waiting for the upstream", reason=silent)
        notice = self.clock.call_later_ms(NOTICE_MS, tell, Domain.REQUESTS)
        until_us = stopwatch_us() + round(UPSTREAM_S_MAX * 1_000_000)
        waits = False
        try:
            while True:
                try:
                    return await self.ask_for_brokers()
                except NoAnswer as error:
                    if stopwatch_us() > until_us:
                        raise StartError(f"the upstream does not respond: {error}") from error
                    if not waits:
                        waits = True
                        notice.cancel()
                        log.info("waiting for the upstream", reason=str(error))
                retry = asyncio.Event()
                self.clock.call_later_ms(RETRY_MS, retry.set, Domain.REQUESTS)
                await retry.wait()
        finally:
            notice.cancel()

    async def ask_for_brokers(self) -> Brokers:
        """The upstream's nodes, from the first address that responds.

        Raises ``NoAnswer`` if no address responds, or if the response contains no nodes.
        """
        response = await self.ask_any(METADATA, MetadataRequest(topics=(), allow_auto_topic_creation=False))
        if not response.brokers:
            raise NoAnswer("the upstream's metadata contains no brokers yet")
        nodes = tuple((each.node_id, each.host, each.port) for each in response.brokers)
        return Brokers(response.cluster_id or "", nodes)

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine as a background task, which `stop` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- the proxy's own requests -----------------------------------------------------------------------------------

    async def ask_any(self, api_key: int, request: Any) -> Any:
        """The response of the first node that responds. Raises ``NoAnswer`` if no node responds."""
        refused = NoAnswer("it has no nodes")
        for address in dict.fromkeys((*self._known_addresses(), *self.settings.upstream)):
            try:
                return await self.upstream.ask(address, api_key, request)
            except NoAnswer as error:
                refused = error
        raise refused

    async def ask(self, node_id: int, api_key: int, request: Any, highest: int | None = None) -> Any:
        """The response of one node, in a version up to ``highest``. Raises ``NoAnswer`` if the node is silent."""
        node = self.nodes.get(node_id)
        if node is None:
            raise NoAnswer(f"the upstream has no node {node_id}")
        return await self.upstream.ask(node.address, api_key, request, highest)

    async def ask_for_topics(self, names: Iterable[str] | None) -> Any:
        """The Metadata response for these topics, or for all. Opens listeners for the nodes in it.

        Raises ``NoAnswer`` if no node responds.
        """
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.ask_any(METADATA, request)
        self.topics.heard(response)
        await self.open_listeners([(each.node_id, each.host, each.port) for each in response.brokers])
        return response

    def _known_addresses(self) -> Iterator[tuple[str, int]]:
        return (node.address for node in self.nodes.values() if node.reachable is not False)

    # -- listeners --------------------------------------------------------------------------------------------------

    def listener_of(self, node_id: int, host: str, port: int) -> Listener | None:
        node = self.nodes.get(node_id)
        if node is None:
            return None
        if node.address != (host, port):
            log.info(
                "node of the upstream has moved",
                node_id=node_id,
                from_address=host_and_port(*node.address),
                to_address=host_and_port(host, port),
            )
            node.address = (host, port)
        return node.listener

    async def open_listeners(self, named: Sequence[tuple[int, str, int]]) -> None:
        try:
            await self._open(named)
        except BindError as error:
            log.error("no listener for a node of the upstream", reason=str(error))
            raise CloseConnection(str(error)) from error

    async def _open(self, named: Sequence[tuple[int, str, int]]) -> None:
        async with self._opening:
            for node_id, host, port in named:
                if node_id in self.nodes:
                    continue
                node = ProxyNode(node_id, host, port, self)
                await self._listen(node)
                self.nodes[node_id] = node
                listens = host_and_port(node.listener.host, node.listener.port)
                log.info("listener opened", node_id=node_id, upstream=f"{host}:{port}", listener=listens)

    async def _listen(self, node: ProxyNode) -> None:
        """Open the node's listener on the port after the previous node's.

        If that port is taken, a free port is used, except for the first node: its port is that of the command line.
        """
        port = self._next_port
        advertised = Endpoint(LISTENER, self.settings.advertised_host, 0)
        try:
            await node.listen(Endpoint(LISTENER, self.settings.host, port), advertised)
        except BindError:
            if not self.nodes or not port:
                raise
            await node.listen(Endpoint(LISTENER, self.settings.host, 0), advertised)
        if port:
            self._next_port = port + 1

    # -- description ------------------------------------------------------------------------------------------------

    @property
    def listeners(self) -> list[Listener]:
        return [node.listener for _, node in sorted(self.nodes.items())]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(host_and_port(each.advertised_host, each.advertised_port) for each in self.listeners)

    @property
    def upstream_in_words(self) -> str:
        return ",".join(host_and_port(*each) for each in self.settings.upstream)

    def say_started(self, control_url: str | None) -> None:
        """Print that the proxy is ready, and its addresses: a block on a terminal, otherwise one line for programs."""
        start_ms = round((stopwatch_us() - self._began_us) / 1000)
        if print_on_a_terminal(self._block(control_url, start_ms)):
            return
        facts: dict[str, object] = {} if control_url is None else {"control": control_url}
        get_unfiltered_logger().info(
            "started",
            upstream=self.upstream_in_words,
            nodes=len(self.nodes),
            cluster_id=self.cluster_id,
            listeners=[f"{each.name}://{host_and_port(each.host, each.port)}" for each in self.listeners],
            advertised=[
                f"{each.name}://{host_and_port(each.advertised_host, each.advertised_port)}"
                for each in self.listeners
            ],
            **facts,
            start_ms=start_ms,
        )

    def _block(self, control_url: str | None, start_ms: int) -> Iterator[str]:
        nodes = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else "one node"
        yield f"The proxy is ready after {start_ms} ms, in front of {nodes} of cluster {self.cluster_id}"
        yield f"  upstream           {self.upstream_in_words}"
        yield f"  bootstrap.servers  {self.bootstrap_servers}"
        yield f"  control port       {control_url or 'none: --control-port 0 opens one, for faults, trace and the page'}"
        yield "  end                Ctrl-C"
