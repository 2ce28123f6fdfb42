"""The listeners of one node, with their sockets and connections.

A listener's port is bound early, so that port 0 has a number before the broker publishes it. The socket listens late: a
client that connects while the broker still recovers its logs is refused and retries, as with Kafka.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial

from broker.config.endpoints import Endpoint
from broker.loop.life import LifeOver
from broker.net.acceptor import Acceptor
from broker.net.connection import Connection
from broker.net.connections import Connections
from broker.net.ports import BindError, Ports, cannot_listen
from broker.node import Listener


class BufferedConnection(Connection, asyncio.BufferedProtocol):
    """A `Connection` that asyncio recognizes as a buffered protocol by its base class. uvloop only checks the methods."""

    __slots__ = ()


class Server:
    """The listeners of one node: their sockets, and their acceptors once the node serves clients."""

    def __init__(
        self, backlog: int, ports: Ports, route: Callable[[str], Acceptor | None] | None = None
    ) -> None:
        """``route`` returns the acceptor that serves clients of the listener with this name (see `Acceptor`)."""
        self._ports = ports
        self._route = route
        self.acceptors: dict[str, Acceptor] = {}
        """One acceptor of each listener, by the listener's name, while the node accepts clients."""
        self.listeners: list[Listener] = []
        self._backlog = backlog
        self._sockets: list[tuple[socket.socket, Listener]] = []
        self._servers: list[tuple[asyncio.Server | Acceptor, socket.socket]] = []

    def bind(self, endpoints: Iterable[Endpoint], advertised: Iterable[Endpoint]) -> list[Listener]:
        """Bind the ports of all listeners. A port 0 is replaced by a free port, which is also advertised by default."""
        by_name = {endpoint.name: endpoint for endpoint in advertised}
        for endpoint in endpoints:
            sockets = self._ports.bind(endpoint)
            port = sockets[0].getsockname()[1]
            public = by_name.get(endpoint.name, endpoint)
            listener = Listener(
                endpoint.name,
                endpoint.host,
                port,
                public.host,
                public.port or port,
                endpoint.security_protocol,
            )
            self.listeners.append(listener)
            self._sockets += [(each, listener) for each in sockets]
        return self.listeners

    async def accept(self, connections: Connections) -> None:
        """Start accepting clients. Raises `LifeOver` if the node is killed before this returns."""
        loop = asyncio.get_running_loop()
        while self._sockets:
            # Removed from `_sockets`, since a kill must not close a socket on which the loop is working.
            bound, listener = self._sockets.pop(0)
            factory = partial(BufferedConnection, connections, listener)
            server: asyncio.Server | Acceptor
            try:
                if isinstance(bound, socket.socket):
                    shake_hands = _shaking_hands(factory, connections, listener)
                    route = None if self._route is None else partial(self._route, listener.name)
                    server = Acceptor(bound, factory, lambda: connections.has_room, loop, shake_hands, route)
                    server.start(self._backlog)
                    self.acceptors[listener.name] = server
                else:  # from a loop with a simulated network
                    server = await loop.create_server(factory, sock=bound, backlog=self._backlog)
            except OSError as error:
                bound.close()
                raise BindError(cannot_listen(listener.name, listener.host, listener.port, error)) from error
            self._servers.append((server, bound))
            if not connections.life.alive:
                self.stop_accepting()
                raise LifeOver

    def stop_accepting(self) -> None:
        """Refuse clients from now on. The ports stay reserved for the node."""
        for server, bound in self._servers:
            server.close()
            self._ports.release(bound)
        for bound, _ in self._sockets:
            self._ports.release(bound)
        self._servers, self._sockets = [], []
        self.acceptors.clear()


def _shaking_hands(
    factory: Callable[[], asyncio.BaseProtocol], connections: Connections, listener: Listener
) -> Callable[[socket.socket], object] | None:
    """Return a function that starts the TLS handshake of an accepted socket; None if the listener has no TLS."""
    security = connections.security.get(listener.name)
    tls = None if security is None else security.tls
    if tls is None:
        return None
    from broker.net.handshakes import Handshake
    from broker.resources.returned_memory import ReturnedMemory

    connections.on_left = ReturnedMemory()
    return lambda accepted: Handshake(accepted, factory(), connections, tls).begin()
