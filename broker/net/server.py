"""Sockets: the listeners of one node, and all connections that came in through them.

A listener's port is bound early, so that a port 0 has a number before the broker publishes it, and listened to
late: who connects to a broker that is still reading its logs is refused and tries again, as with Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.config.endpoints import Endpoint
from broker.logging import get_logger
from broker.loop.life import LifeOver
from broker.net.acceptor import Acceptor
from broker.net.connection import Connection
from broker.net.connections import Connections
from broker.node import Listener

if TYPE_CHECKING:
    pass

log = get_logger()


Bind = Callable[[Endpoint], Sequence[socket.socket]]


class BindError(Exception):
    """A listener cannot be opened; the text says which and why."""


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
                # A second address that this machine does not have is one that no client would use.
                if not bound or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
            port = bound[0].getsockname()[1]
    except OSError as error:
        for each in bound:
            each.close()
        raise BindError(_cannot_listen(endpoint.name, endpoint.host, port, error)) from error
    return bound


def _addresses(endpoint: Endpoint) -> list[tuple[int, str]]:
    if endpoint.host in ("", "0.0.0.0"):
        # Every address of the machine: one socket for both families where the system can. Java binds 0.0.0.0 so too.
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
