"""One upstream node as clients of the proxy see it: a listener, and the handler of its requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from broker.cluster.addresses import host_and_port
from broker.logging import get_logger
from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.net.connections import ConnectionQuotas, Connections, Registered
from broker.net.server import Server
from broker.requests.api import CloseConnection
from protocol.codec import version_of_response
from protocol.frame import request_header, response_body_offset
from proxy.bounded import bounded, charge
from proxy.forwarding import (
    ForwardRoutes,
    Received,
    acks_of,
    encoded_request,
    read_response,
    response_steps,
)
from proxy.link import CORRELATION_ID, Link
from proxy.rewriting import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    SHARE_FETCH,
    Named,
    clamped,
    endpoints_in,
    has_addresses,
    highest_common,
)
from proxy.sessions import PassedSessions, SessionKey

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config.endpoints import Endpoint
    from broker.loop.slices import Slices
    from broker.net.calls import CallInterceptors
    from broker.net.ports import Ports
    from broker.node import Listener
    from broker.node.context import RequestContext
    from proxy.topics import TopicNames
    from proxy.wire import Buffers, Frame, Wire

BACKLOG: Final = 1024
SESSIONS_OF: Final = (FETCH, SHARE_FETCH)
"""APIs whose requests have only the changes since the former request of a session."""
IDLE_FOREVER: Final = -1
"""No idle timeout: the upstream closes idle connections, and then the proxy closes those of their clients."""

log = get_logger()


class ProxyContext(Protocol):
    """The objects and functions that the nodes of a proxy share."""

    calls: CallInterceptors
    slices: Slices
    buffers: Buffers
    ports: Ports
    topics: TopicNames
    tls: ssl.SSLContext | None
    tracks_sessions: bool
    """Whether to record the partitions of fetch sessions and share sessions, because a rule or the trace needs them."""

    @property
    def clock(self) -> Clock: ...

    def listener_of(self, node_id: int, host: str, port: int) -> Listener | None:
        """The listener for a node whose address is in a response; None if the node has no listener yet."""
        ...

    async def open_listeners(self, named: Sequence[tuple[int, str, int]]) -> None:
        """Open listeners for the nodes that have none yet."""
        ...


class ProxyConnections(Connections):
    """The client connections of one node. Each has a link to the upstream."""

    def __init__(self, node: ProxyNode, routes: ForwardRoutes, context: ProxyContext) -> None:
        quotas = ConnectionQuotas(idle_ms_max=IDLE_FOREVER)
        super().__init__(node, routes, quotas, context.clock, asyncio.get_running_loop(), context.calls)
        self._far = node
        self.links: dict[int, Link] = {}

    def admit(self, connection: Registered) -> str | None:
        refusal = super().admit(connection)
        self.links[connection.connection_id] = Link(self._far, connection.hang_up)
        return refusal

    def forget(self, connection: Registered) -> None:
        link = self.links.pop(connection.connection_id, None)
        if link is not None:
            link.close()
        super().forget(connection)


class ProxyNode:
    """The implementation of `broker.node.served.ServedNode` for an upstream node."""

    def __init__(self, node_id: int, host: str, port: int, context: ProxyContext) -> None:
        self.node_id = node_id
        self.address = (host, port)
        """The node's address in the upstream's metadata."""
        self.clock = context.clock
        self.life = NodeLife()
        self.slices = context.slices
        self.buffers = context.buffers
        self.reachable: bool | None = None
        """Whether the last attempt to connect was successful; None before the first one."""
        self.sessions = PassedSessions()
        self._context = context
        self._server = Server(BACKLOG, context.ports)
        self._routes = ForwardRoutes(self.forward, self._is_looked_at)
        self._served = {key: api.versions for key, api in self._routes.apis.items()}
        self.connections = ProxyConnections(self, self._routes, context)

    # -- its listener -----------------------------------------------------------------------------------------------

    @property
    def listener(self) -> Listener:
        """The node's listener, which exists only after a call of `listen`."""
        return self._server.listeners[-1]

    async def listen(self, endpoint: Endpoint, advertised: Endpoint) -> None:
        """Open the listener. Raises ``BindError`` if the port is not available."""
        self._server.bind([endpoint], [advertised])
        await self._server.accept(self.connections)

    async def close(self) -> None:
        """Stop accepting, and close the clients' connections."""
        self._server.stop_accepting()
        await self.connections.close()
        self.life.end()

    # -- the upstream node ------------------------------------------------------------------------------------------

    @property
    def in_words(self) -> str:
        return f"node {self.node_id} of the upstream ({host_and_port(*self.address)})"

    async def dial(self, factory: Callable[[], Wire]) -> None:
        await dial(self.address, self._context.tls, factory)

    def note(self, *, reachable: bool) -> None:
        self.reachable = reachable

    # -- called for rules and the trace -----------------------------------------------------------------------------

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._context.topics.name(topic_id)

    def session_partitions(self, session_id: int) -> Iterator[tuple[str, int]]:
        return self._named_partitions(session_id)

    def share_session_partitions(self, group_id: str, member_id: str) -> Iterator[tuple[str, int]]:
        return self._named_partitions((group_id, member_id))

    def _named_partitions(self, key: SessionKey) -> Iterator[tuple[str, int]]:
        for topic, index in self.sessions.partitions(key):
            name = topic if isinstance(topic, str) else self.topic_name(topic)
            if name is not None:
                yield name, index

    def _is_looked_at(self, api_key: int) -> bool:
        chain = self._context.calls.chain
        return (api_key in SESSIONS_OF and self._context.tracks_sessions) or (
            chain is not None and chain.wants(api_key)
        )

    # -- requests ---------------------------------------------------------------------------------------------------

    async def forward(self, received: Received, context: RequestContext) -> Any:
        """Handler of all routes: forward a request to the upstream node."""
        key, version = context.api_key, context.api_version
        link = self.connections.links.get(context.connection_id)
        if link is not None:
            return await self._send(link, key, version, received)
        # A fault rule held the request until its connection had ended.
        link = Link(self)
        try:
            return await self._send(link, key, version, received)
        finally:
            link.close()

    async def _send(self, link: Link, key: int, version: int, received: Received) -> Any:
        try:
            wants_no_response = key == PRODUCE and acks_of(received, version) == 0
            frame, size = bounded(key, version, received)
        except (
            IndexError,
            ValueError,
        ) as error:  # the request is too short, and nothing has decoded it before
            raise CloseConnection("malformed request", error=str(error)) from None
        if wants_no_response:
            sent = link.tell(frame)
            return await sent if isinstance(sent, asyncio.Future) else sent
        response = link.request(frame, self._reader(link, key, version, received))
        if size:
            charge(size, response)
        return await response

    def _reader(self, link: Link, key: int, version: int, received: Received) -> Callable[[Frame], Any]:
        """Return the function that processes the response frame of a request."""
        if key == API_VERSIONS:
            return partial(self._read_versions, link, version, received)
        if has_addresses(key, version) or (key in SESSIONS_OF and self._context.tracks_sessions):
            return partial(self._read, key, version, received)
        return partial(_as_it_is, key, version)

    def _read(self, key: int, version: int, received: Received, frame: Frame) -> Any:
        return start(self._rewritten(key, version, received, frame), self.life)

    async def _rewritten(self, key: int, version: int, received: Received, frame: Frame) -> Any:
        """Return the response with the proxy's addresses of nodes; the unchanged frame if it has no addresses."""
        response = await self.slices.run(response_steps(key, version, frame))
        if key == METADATA:
            self._context.topics.heard(response)
        elif key in SESSIONS_OF and self._context.tracks_sessions and not response.error_code:
            request = self._message(key, version, received)
            if key == FETCH:
                self.sessions.passed(request, response.session_id)
            else:
                self.sessions.passed_share_fetch(request)
        named = list(endpoints_in(key, version, response)) if has_addresses(key, version) else []
        if not named:
            return frame
        listeners = self._listeners_of(named)
        if None in listeners:
            await self._context.open_listeners([(node_id, part.host, part.port) for node_id, part in named])
            listeners = self._listeners_of(named)
        return _addressed(response, named, listeners)

    def _listeners_of(self, named: Sequence[Named]) -> list[Listener | None]:
        return [self._context.listener_of(node_id, part.host, part.port) for node_id, part in named]

    def _read_versions(self, link: Link, version: int, received: Received, frame: Frame) -> Any:
        if version_of_response(API_VERSIONS, version, frame) != version:
            return self._ask_older(link, version, received, read_response(API_VERSIONS, 0, frame))
        response = read_response(API_VERSIONS, version, frame)
        response.api_keys = clamped(response.api_keys, self._served)
        return response

    async def _ask_older(self, link: Link, version: int, received: Received, refusal: Any) -> Any:
        """Retry ApiVersions in a version that both sides support, after the upstream has rejected the client's version.

        The client gets the response in its own version.
        """
        older = highest_common(refusal.api_keys, API_VERSIONS) or 0
        correlation_id = int.from_bytes(received.frame[CORRELATION_ID], "big", signed=True)
        request = self._message(API_VERSIONS, version, received)
        frame = encoded_request(
            API_VERSIONS, older, request, request_header(API_VERSIONS, older, correlation_id, None)
        )
        response = await link.request(frame, partial(read_response, API_VERSIONS, older))
        response.api_keys = clamped(response.api_keys, self._served)
        return response

    def _message(self, key: int, version: int, received: Received) -> Any:
        route = self._routes[key << 16 | version]
        assert route is not None, "the request came by it"
        return route.request_of(received)


async def dial(address: tuple[str, int], tls: ssl.SSLContext | None, factory: Callable[[], Wire]) -> None:
    """Connect to an upstream node. Raises ``OSError`` if that fails."""
    host, port = address
    loop = asyncio.get_running_loop()
    await loop.create_connection(
        factory, host, port, ssl=tls, server_hostname=host if tls is not None else None
    )


def _as_it_is(key: int, version: int, frame: Frame) -> Frame:
    response_body_offset(key, version, frame)  # raises `MalformedRequest` if the header is incomplete
    return frame


def _addressed(response: Any, named: Sequence[Named], listeners: Sequence[Listener | None]) -> Any:
    for (_, part), listener in zip(named, listeners, strict=True):
        if listener is None:
            raise CloseConnection("the proxy has no listener for a node in the response")
        part.host, part.port = listener.advertised_host, listener.advertised_port
    return response
