"""Sockets: the listeners of one node, and all connections that came in through them.

A listener's port is bound early, so that a port 0 has a number before anybody is told of it, and listened to
late: who connects to a broker that is still reading its logs is refused and tries again, as with Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.accepting import Acceptor
from broker.clock import NOTHING_DONE, Clock, Domain, Periodic
from broker.config.endpoints import Endpoint
from broker.connection import LANDING_BYTES, Connection
from broker.descriptors import SLOTS
from broker.frame_buffers import FrameBuffers
from broker.life import LifeOver
from broker.logging import get_logger
from broker.node import Listener
from broker.routes import Routes

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.node import Node

# The idle time is counted in ticks of one timer for all connections: a connection ends at most one tick late.
IDLE_TICKS: Final = 20
IDLE_TICK_MS_MIN: Final = 10
# How long a stop waits for answers to leave. What a client has not taken by then is cut off.
CLOSE_GRACE_S: Final = 0.3

log = get_logger()


Bind = Callable[[Endpoint], Sequence[socket.socket]]


class BindError(Exception):
    """A listener cannot be opened; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take from the others; Kafka's names are in the comments."""

    request_bytes_max: int = 104_857_600  # socket.request.max.bytes
    connections_max: int = 2**31 - 1  # max.connections
    connections_per_ip_max: int = 2**31 - 1  # max.connections.per.ip
    idle_ms_max: int = 600_000  # connections.max.idle.ms; negative is for ever

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        return cls(
            request_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms_max=config.connections_max_idle_ms,
        )


class Connections:
    """What the connections of a node share, and the register of those that are open."""

    def __init__(
        self, node: Node, routes: Routes, limits: Limits, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.node = node
        self.hooks = node.hooks
        self.life = node.life
        self.routes = routes
        self.limits = limits
        self.loop = loop
        # Receiving and looking at what was received is one step without an await, so one buffer serves all.
        self.landing = memoryview(bytearray(LANDING_BYTES))
        self.frame_buffers = FrameBuffers()
        self.tick = 0
        self.requests = 0
        self.accepted = 0
        self.clock = clock
        self._open: dict[Connection, None] = {}  # in the order of their coming
        self._per_ip: Counter[str] = Counter()
        self._timer: Periodic | None = None
        self._ticked_ms: float = 0
        """When the present tick began, by the domain ``connections``."""
        self._all_gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> str | None:
        """Register a new connection. The answer is why it must go at once; None to let it stay."""
        self.accepted += 1
        connection.connection_id = self.accepted
        self._open[connection] = None
        SLOTS.open += 1
        self._per_ip[connection.host] += 1
        if self._all_gone is not None:
            return "the broker is stopping"
        if len(self._open) > self.limits.connections_max:
            return "max.connections reached"
        if self._per_ip[connection.host] > self.limits.connections_per_ip_max:
            return "max.connections.per.ip reached"
        return None

    @property
    def has_room(self) -> bool:
        """May one more be accepted, by max.connections and by what the process may open?"""
        return SLOTS.has_room and len(self._open) + SLOTS.arriving < self.limits.connections_max

    def forget(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        del self._open[connection]
        SLOTS.gone()
        self._per_ip[connection.host] -= 1
        if not self._per_ip[connection.host]:
            del self._per_ip[connection.host]
        if not self._open and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def watch_idleness(self) -> None:
        """Start the one timer that ends connections which nothing was heard from for too long."""
        if self.limits.idle_ms_max < 0:
            return
        self._ticked_ms = self.clock.now_ms(Domain.CONNECTIONS)
        self._timer = Periodic(
            self.clock,
            self._tick_ms,
            self._on_tick,
            Domain.CONNECTIONS,
            self._idle_until_ms,
            self._pass_ticks,
        )

    @property
    def _tick_ms(self) -> float:
        return max(IDLE_TICK_MS_MIN, self.limits.idle_ms_max / IDLE_TICKS)

    def _idle_until_ms(self) -> float | None:
        """When the first connection has been idle for too long, as things are; None while there is none to close."""
        ticks = (each.last_active_tick for each in self._open if not each.in_progress)
        first = min(ticks, default=None)
        if first is None:
            return None
        return self._ticked_ms + (first + IDLE_TICKS + 1 - self.tick) * self._tick_ms

    def _pass_ticks(self, count: int) -> None:
        self.tick += count
        self._ticked_ms += count * self._tick_ms

    def _on_tick(self) -> object:
        self.tick += 1
        self._ticked_ms = self.clock.now_ms(Domain.CONNECTIONS)
        someone_idle = False
        for connection in list(self._open):
            if not connection.in_progress and self.tick - connection.last_active_tick > IDLE_TICKS:
                # The second time it was idle and closed, and its peer never took what was left for it.
                log.debug("idle connection closed", peer=connection.host, connection=connection.connection_id)
                connection.hang_up()
                someone_idle = True
        return None if someone_idle else NOTHING_DONE

    def reset(self) -> None:
        """End all connections as the death of a process does: what was not written is lost, peers see a reset."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.reset()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """End all connections: answers already given leave first, if the peers take them in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._all_gone = self.loop.create_future()
        for connection in list(self._open):
            connection.hang_up()
        if not self._open:
            return
        await asyncio.wait([self._all_gone], timeout=grace_s)
        for connection in list(self._open):
            connection.hang_up()  # the second call aborts
        await asyncio.sleep(0)


class Server:
    """The listening sockets of one node."""

    def __init__(self, backlog: int, bind: Bind | None = None) -> None:
        """``bind`` makes what the loop's ``create_server`` takes: sockets, if nothing else is said."""
        self._bind = bind or _bind
        self.listeners: list[Listener] = []
        self._backlog = backlog
        self._sockets: list[tuple[socket.socket, Listener]] = []
        self._servers: list[tuple[asyncio.Server | Acceptor, socket.socket]] = []

    def bind(self, endpoints: Iterable[Endpoint], advertised: Iterable[Endpoint]) -> list[Listener]:
        """Bind every listener's port. A port 0 is chosen here, and advertised where no other port is."""
        by_name = {endpoint.name: endpoint for endpoint in advertised}
        for endpoint in endpoints:
            sockets = self._bind(endpoint)
            port = sockets[0].getsockname()[1]
            public = by_name.get(endpoint.name, endpoint)
            listener = Listener(endpoint.name, endpoint.host, port, public.host, public.port or port)
            self.listeners.append(listener)
            self._sockets += [(each, listener) for each in sockets]
        return self.listeners

    async def accept(self, connections: Connections) -> None:
        """From here on clients are let in. `LifeOver` if the node is killed meanwhile."""
        loop = asyncio.get_running_loop()
        while self._sockets:
            # No longer among those that a kill closes: the loop still works on it.
            bound, listener = self._sockets.pop(0)
            factory = partial(Connection, connections, listener)
            server: asyncio.Server | Acceptor
            try:
                if isinstance(bound, socket.socket):
                    server = Acceptor(bound, factory, lambda: connections.has_room, loop)
                    server.start(self._backlog)
                else:  # of a loop that has a network of its own
                    server = await loop.create_server(factory, sock=bound, backlog=self._backlog)
            except OSError as error:
                bound.close()
                raise BindError(_cannot_listen(listener.name, listener.host, listener.port, error)) from error
            self._servers.append((server, bound))
            if not connections.life.alive:
                self.stop_accepting()
                raise LifeOver

    def stop_accepting(self) -> None:
        for server, bound in self._servers:
            server.close()
            bound.close()
        for bound, _ in self._sockets:
            bound.close()
        self._servers, self._sockets = [], []


def _bind(endpoint: Endpoint) -> list[socket.socket]:
    """One socket per address of the host: ``localhost`` is reached by IPv4 and by IPv6."""
    bound: list[socket.socket] = []
    port = endpoint.port
    try:
        for family, address in _addresses(endpoint):
            try:
                bound.append(_bind_one(family, address, port))
            except OSError as error:
                # A second address that this machine does not have is none that anybody would use.
                if not bound or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
            port = bound[0].getsockname()[1]
    except OSError as error:
        for each in bound:
            each.close()
        raise BindError(_cannot_listen(endpoint.name, endpoint.host, port, error)) from error
    return bound


def _addresses(endpoint: Endpoint) -> list[tuple[int, str]]:
    if not endpoint.host:
        # Every address of the machine: one socket for both families where the system can.
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = {(int(family), str(address[0])): None for family, _, _, _, address in found}
    # IPv4 first: it decides which port a port 0 becomes.
    return sorted(addresses, key=lambda each: each[0] != socket.AF_INET)


def _bind_one(family: int, address: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets that say they are TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        if port:
            # A restart must get its port back while connections of the last run linger.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        if not port:
            # Only now: the system would hand the same port to two sockets that do not listen yet. All connections
            # of this one inherit it, and a node that starts again asks for the port that it had.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        bound.close()
        raise
    return bound


def _cannot_listen(name: str, host: str, port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"listener {name}: no address is known for the host {host!r}"
    if error.errno == errno.EADDRINUSE:
        return f"listener {name}: port {port} of {host or 'this machine'} is in use by another process"
    return f"listener {name}: cannot listen on {host}:{port}: {error.strerror or error}"
