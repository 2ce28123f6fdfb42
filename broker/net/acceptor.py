"""One listening socket. Connections are accepted from it while the connection limits permit.

As in Kafka (``SocketServer.Acceptor``, ``ConnectionQuotas.waitForConnectionSlot``): at max.connections, or when the process
has no free file descriptor, nothing more is accepted until a connection closes. Clients that connect meanwhile wait in the
socket's backlog. The event loops' own servers are not used: they cannot be paused, and libuv, under uvloop, closes
connections that it cannot accept.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from broker.logging import get_logger
from broker.resources.descriptors import SLOTS

# Connections accepted in one turn of the event loop.
ACCEPTS_PER_TURN: Final = 64
# Seconds until the next try after a failed accept, unless a connection closes earlier.
RETRY_S: Final = 1.0

log = get_logger()


class Acceptor:
    """Accepts connections, and creates a protocol for each with ``factory``. Accepts none while ``has_room`` returns False.

    On a TLS listener, ``shake_hands`` is called with the accepted socket instead. ``route`` returns the acceptor that serves
    an accepted socket, which is that of another node while connections are misrouted; None if that node does not run.
    """

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        has_room: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        shake_hands: Callable[[socket.socket], object] | None = None,
        route: Callable[[], Acceptor | None] | None = None,
    ) -> None:
        self._socket = listening
        self._factory = factory
        self._has_room = has_room
        self._loop = loop
        self._shake_hands = shake_hands
        self._route = route
        self._arriving: set[asyncio.Task[object]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self, backlog: int) -> None:
        """Listen and start accepting. Raises OSError if the socket cannot listen."""
        self._socket.setblocking(False)
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting connections. The caller closes the listening socket."""
        if not self._closed:
            self._closed = True
            self._stop_retry()
            self._loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._has_room():
                self._pause("max.connections reached")
                return
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(str(error))
                self._retry = self._loop.call_later(RETRY_S, self._resume)
                return
            serving = self if self._route is None else self._route()
            if serving is None:
                accepted.close()
            else:
                serving._take(accepted)

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._shake_hands is not None:
            self._shake_hands(accepted)
            return
        SLOTS.arriving += 1
        task = self._loop.create_task(self._connect(accepted))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:
            peer = peer_of(accepted)
            accepted.close()
            log.warning("connection closed", reason="not accepted", error=str(error), peer=peer, connection=0)
        finally:
            SLOTS.arrived()

    def _pause(self, reason: str) -> None:
        self._loop.remove_reader(self._socket.fileno())
        SLOTS.wait(self._resume)
        if not SLOTS.arriving:  # connections in progress free their slots soon, and accepting resumes
            log.warning("accept paused", reason=reason, connections=SLOTS.open)

    def _resume(self) -> None:
        self._stop_retry()
        if not self._closed:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def peer_of(accepted: socket.socket) -> str:
    """IP address of the client; empty if the client has disconnected."""
    try:
        return str(accepted.getpeername()[0])
    except OSError:
        return ""
