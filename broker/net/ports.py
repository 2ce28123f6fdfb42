"""The ports of a broker's listeners: bound for nodes that run, and reserved for nodes that do not run.

ports = Ports()
sockets = ports.bind(endpoint)     # one socket for each address of the host; not listening yet
ports.release(sockets[0])          # the node stopped: clients are refused, and the port stays reserved
ports.bind(endpoint)               # the node's next life gets the port again
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
"""Address family, address and port of a bound socket."""


class BindError(Exception):
    """A listener cannot be opened. The message names the listener and the reason."""


class Ports:
    """The ports of a process, shared by all its nodes.

    The operating system gives free ports to any process that binds port 0. Without the reservation, another broker could get
    the port of a dead node: clients of this cluster would connect to it, and the node could not start again.
    """

    def __init__(self, bind: Bind | None = None) -> None:
        """``bind`` replaces the binding of sockets, for event loops with a simulated network."""
        self._bind_elsewhere = bind
        self._held: dict[_Place, socket.socket] = {}

    def bind(self, endpoint: Endpoint) -> Sequence[socket.socket]:
        """Bind one socket per address of the host (``localhost`` has an IPv4 and an IPv6 address). Raises ``BindError``."""
        if self._bind_elsewhere is not None:
            return self._bind_elsewhere(endpoint)
        bound: list[socket.socket] = []
        port = endpoint.port
        try:
            for family, address in _addresses(endpoint):
                try:
                    bound.append(self._take((family, address, port)))
                except OSError as error:
                    # A further address that this machine does not have is skipped; clients could not use it.
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
        """Close a socket, and reserve its port until the next `bind`. Connections to it are refused meanwhile."""
        if not isinstance(bound, socket.socket):  # from a loop with a simulated network
            bound.close()
            return
        address, port = bound.getsockname()[:2]
        place = (int(bound.family), str(address), int(port))
        bound.close()
        with contextlib.suppress(
            OSError
        ):  # without the reservation, another process may bind the port before the node's next life
            self._held[place] = _bind_one(*place)

    def close(self) -> None:
        """Free all reserved ports."""
        while self._held:
            self._held.popitem()[1].close()


def _addresses(endpoint: Endpoint) -> list[tuple[int, str]]:
    if endpoint.host in ("", "0.0.0.0"):
        # All addresses: one dual-stack socket if the system supports it, as Java does for 0.0.0.0.
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]
    with contextlib.suppress(OSError, ValueError):
        # An IPv4 address needs no lookup (and no encoding as a host name).
        socket.inet_pton(socket.AF_INET, endpoint.host)
        return [(socket.AF_INET, endpoint.host)]
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = {(int(family), str(address[0])): None for family, _, _, _, address in found}
    # IPv4 first: its socket decides which port a port 0 becomes.
    return sorted(addresses, key=lambda each: each[0] != socket.AF_INET)


def _bind_one(family: int, address: str, port: int) -> socket.socket:
    # With the protocol, since asyncio sets TCP_NODELAY only on sockets that are declared as TCP.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        if port:
            # A restart must get its port although connections of the last run are in TIME_WAIT.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        if not port:
            # After the bind, since the system would otherwise give one port to two sockets that do not listen yet. Accepted
            # connections inherit the option, and the node binds this port again when it restarts.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        bound.close()
        raise
    return bound


def cannot_listen(name: str, host: str, port: int, error: OSError) -> str:
    """Error message for a listener that cannot be opened."""
    if isinstance(error, socket.gaierror):
        return f"listener {name}: no address is known for the host {host!r}"
    if error.errno == errno.EADDRINUSE:
        return f"listener {name}: port {port} of {host or 'this machine'} is in use by another process"
    return f"listener {name}: cannot listen on {host}:{port}: {error.strerror or error}"
