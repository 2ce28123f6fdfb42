"""The ports of a broker's listeners: bound for the nodes that run, and held for those that do not.

ports = Ports()
sockets = ports.bind(endpoint)     # one for each address of the host; not listening yet
ports.release(sockets[0])          # the node is gone: clients are refused, and the port is still ours
ports.bind(endpoint)               # its next life gets it back
ports.close()
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Sequence

from broker.config.endpoints import Endpoint

Bind = Callable[[Endpoint], Sequence[socket.socket]]
_Place = tuple[int, str, int]
"""Family, address and port."""


class BindError(Exception):
    """A listener cannot be opened; the text says which and why."""


class Ports:
    """All nodes of a process share one.

    The system gives a free port to any process that binds port 0. While a node was dead, another broker could get
    its port: clients of this cluster would come to that one, and the node could not start again.
    """

    def __init__(self, bind: Bind | None = None) -> None:
        """``bind`` is that of a loop that has a network of its own."""
        self._bind_elsewhere = bind
        self._held: dict[_Place, socket.socket] = {}

    def bind(self, endpoint: Endpoint) -> Sequence[socket.socket]:
        """One socket per address of the host: ``localhost`` is reached by IPv4 and by IPv6. ``BindError``."""
        if self._bind_elsewhere is not None:
            return self._bind_elsewhere(endpoint)
        bound: list[socket.socket] = []
        port = endpoint.port
        try:
            for family, address in _addresses(endpoint):
                try:
                    bound.append(self._take((family, address, port)))
                except OSError as error:
                    # A second address that this machine does not have is one that no client would use.
                    if not bound or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                port = bound[0].getsockname()[1]
        except OSError as error:
            for each in bound:
                each.close()
            raise BindError(cannot_listen(endpoint.name, endpoint.host, port, error)) from error
        return bound

    def _take(self, place: _Place) -> socket.socket:
        return self._held.pop(place) if place in self._held else _bind_one(*place)

    def release(self, bound: socket.socket) -> None:
        """Close a socket, and hold its port until the next `bind`: connections to it are refused meanwhile."""
        if not isinstance(bound, socket.socket):  # of a loop that has a network of its own
            bound.close()
            return
        address, port = bound.getsockname()[:2]
        place = (int(bound.family), str(address), int(port))
        bound.close()
        with contextlib.suppress(
            OSError
        ):  # it is only less sure then that the port is free for the next life
            self._held[place] = _bind_one(*place)

    def close(self) -> None:
        """Give all ports back."""
        while self._held:
            self._held.popitem()[1].close()


def _addresses(endpoint: Endpoint) -> list[tuple[int, str]]:
    if endpoint.host in ("", "0.0.0.0"):
        # Every address of the machine: one socket for both families where the system can. Java binds 0.0.0.0 so too.
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]
    with contextlib.suppress(OSError, ValueError):
        # To be looked up, a name is encoded as one of the internet's: an address needs neither.
        socket.inet_pton(socket.AF_INET, endpoint.host)
        return [(socket.AF_INET, endpoint.host)]
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


def cannot_listen(name: str, host: str, port: int, error: OSError) -> str:
    """Why a listener cannot be opened."""
    if isinstance(error, socket.gaierror):
        return f"listener {name}: no address is known for the host {host!r}"
    if error.errno == errno.EADDRINUSE:
        return f"listener {name}: port {port} of {host or 'this machine'} is in use by another process"
    return f"listener {name}: cannot listen on {host}:{port}: {error.strerror or error}"
