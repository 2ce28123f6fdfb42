"""TLS handshakes in progress. The connection limits count a handshake like the connection that it becomes.

    handshake = Handshake(accepted, BufferedConnection(connections, listener), connections, tls)
    handshake.begin()

As in Kafka, which registers a channel at the accept, clients that do not continue their handshake count for
max.connections and max.connections.per.ip. A handshake ends after connections.max.idle.ms, at a stop or kill of the
node, and in any case `HANDSHAKE_S_MAX` after the client's first byte, even if the client sends further bytes slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.logging import get_logger
from broker.loop.transports import LINGER_NOT
from broker.net.acceptor import peer_of
from broker.security.tls.alerts import alert

if TYPE_CHECKING:
    import ssl

    from broker.net.connections import Connections

HANDSHAKE_S_MAX: Final = 60.0
"""Seconds of real time in which the client must send its first byte, and after which a handshake that has begun must be
complete. In Kafka only connections.max.idle.ms limits a handshake: ten minutes by default."""

log = get_logger()


class Handshake:
    """The handshake with one client. It is registered until ``connection`` replaces it (`Connections.admit`)."""

    __slots__ = (
        "_accepted",
        "_connections",
        "_task",
        "_tls",
        "connection",
        "connection_id",
        "host",
        "last_active_tick",
    )

    in_progress = False

    def __init__(
        self,
        accepted: socket.socket,
        connection: asyncio.BaseProtocol,
        connections: Connections,
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._accepted = accepted
        self._connections = connections
        self._tls = tls
        self._task: asyncio.Task[None] | None = None
        self.connection = connection
        self.connection_id = 0
        self.host = peer_of(accepted)
        self.last_active_tick = connections.tick

    def begin(self) -> None:
        """Register the handshake and start it. If the node is paused, `resume` starts it."""
        refusal = self._connections.expect(self)
        if refusal is not None:
            self._log(refusal)
            self._end()
        elif not self._connections.paused:
            self.resume()

    # ---- called by `Connections`

    def resume(self) -> None:
        """Start a handshake that waited because the node was paused."""
        if self._task is None:
            self.last_active_tick = self._connections.tick
            self._task = self._connections.loop.create_task(self._run())
            self._task.add_done_callback(self._end)

    def pause(self) -> None:
        """Do nothing: a running handshake finishes, and the connection is then paused before its first request."""

    def hang_up(self) -> None:
        """End the handshake, because it was idle for too long or the node stops."""
        if self._task is None:
            self._end()
        else:
            self._task.cancel()

    def reset(self) -> None:
        """End the handshake with a TCP reset, as the death of a process does."""
        with contextlib.suppress(OSError):
            self._accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.hang_up()

    # ---- the handshake

    async def _run(self) -> None:
        loop = self._connections.loop
        alert(self._accepted)
        try:
            if not await self._has_begun():
                return
            await loop.connect_accepted_socket(
                lambda: self.connection,
                self._accepted,
                ssl=self._tls(),
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
            )
        except OSError as error:
            self._log("TLS handshake failed", str(error) or "the client has closed the connection")
            # Break a cycle: asyncio's frames, to which the traceback refers, hold the error and 256 KiB of buffer.
            error.__traceback__ = None
        except Exception as error:  # the TLS context could not be made
            log.error("TLS handshake failed", connection=self.connection_id, exc_info=error)

    async def _has_begun(self) -> bool:
        """Wait for the client's first byte. Returns False if the client disconnects before it, as TCP health checks do.

        Logging a health check every second would fill the log. Kafka logs it at debug level, a failed handshake at info.
        """
        loop = self._connections.loop
        while True:
            try:
                return bool(self._accepted.recv(1, socket.MSG_PEEK))
            except BlockingIOError:
                pass
            except ConnectionError:
                return False
            readable = asyncio.Event()
            loop.add_reader(self._accepted.fileno(), readable.set)
            try:
                async with asyncio.timeout(HANDSHAKE_S_MAX):
                    await readable.wait()
            except TimeoutError:
                raise TimeoutError(
                    f"the client sent no byte of the TLS handshake within {HANDSHAKE_S_MAX} seconds"
                ) from None
            finally:
                loop.remove_reader(self._accepted.fileno())

    def _end(self, *_: object) -> None:
        """Close the accepted socket, unless the handshake has succeeded: then the connection owns the socket."""
        if self._connections.forget_expected(self):
            self._accepted.close()

    def _log(self, reason: str, error: str | None = None) -> None:
        more = {} if error is None else {"error": error}
        log.warning("connection closed", reason=reason, **more, peer=self.host, connection=self.connection_id)
