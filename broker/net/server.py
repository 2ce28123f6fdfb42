"""Sockets: the listeners of one node, and all connections that came in through them.

A listener's port is bound early, so that a port 0 has a number before the broker publishes it, and listened to
late: who connects to a broker that is still reading its logs is refused and tries again, as with Kafka.
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
    """A connection that asyncio's own loops know for what it is; uvloop looks at its methods."""

    __slots__ = ()


class Server:
    """The listening sockets of one node."""

    def __init__(self, backlog: int, ports: Ports) -> None:
        self._ports = ports
        self.listeners: list[Listener] = []
        self._backlog = backlog
        self._sockets: list[tuple[socket.socket, Listener]] = []
        self._servers: list[tuple[asyncio.Server | Acceptor, socket.socket]] = []

    def bind(self, endpoints: Iterable[Endpoint], advertised: Iterable[Endpoint]) -> list[Listener]:
        """Bind every listener's port. A port 0 is chosen here, and advertised where no other port is."""
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
        """From here on clients are let in. `LifeOver` if the node is killed meanwhile."""
        loop = asyncio.get_running_loop()
        while self._sockets:
            # No longer among those that a kill closes: the loop still works on it.
            bound, listener = self._sockets.pop(0)
            factory = partial(BufferedConnection, connections, listener)
            server: asyncio.Server | Acceptor
            try:
                if isinstance(bound, socket.socket):
                    shake_hands = _shaking_hands(factory, connections, listener)
                    server = Acceptor(bound, factory, lambda: connections.has_room, loop, shake_hands)
                    server.start(self._backlog)
                else:  # of a loop that has a network of its own
                    server = await loop.create_server(factory, sock=bound, backlog=self._backlog)
            except OSError as error:
                bound.close()
                raise BindError(cannot_listen(listener.name, listener.host, listener.port, error)) from error
            self._servers.append((server, bound))
            if not connections.life.alive:
                self.stop_accepting()
                raise LifeOver

    def stop_accepting(self) -> None:
        """From here on clients are refused; the ports stay those of the node."""
        for server, bound in self._servers:
            server.close()
            self._ports.release(bound)
        for bound, _ in self._sockets:
            self._ports.release(bound)
        self._servers, self._sockets = [], []


def _shaking_hands(
    factory: Callable[[], asyncio.BaseProtocol], connections: Connections, listener: Listener
) -> Callable[[socket.socket], object] | None:
    """How a client of this listener becomes a connection by TLS; None where it is one at once."""
    security = connections.security.get(listener.name)
    tls = None if security is None else security.tls
    if tls is None:
        return None
    from broker.net.handshakes import Handshake
    from broker.resources.returned_memory import ReturnedMemory

    connections.on_left = ReturnedMemory()
    return lambda accepted: Handshake(accepted, factory(), connections, tls).begin()
