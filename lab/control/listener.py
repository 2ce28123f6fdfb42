"""The listening sockets of the control port. The HTTP server is loaded when a caller sends the first bytes.

Most brokers get no call, and loading aiohttp and the operations costs more than the broker's own start. So the sockets
listen from the start on, and the first bytes from a caller load the server in a thread. Later connections wait in the
backlog. The server then takes over the sockets, and the connections that were accepted. A connection that is opened and
closed again, as a port check does, loads nothing.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Final

from broker.config.endpoints import Endpoint
from broker.logging import get_logger
from broker.net.ports import BindError, Ports
from broker.resources.descriptors import CONTROL_CONNECTIONS_MAX, control_connections_max
from lab.control.access import (
    TLS_CERTIFICATE_SETTING,
    TLS_KEY_SETTING,
    Access,
    ControlConfigError,
    Tokens,
)

if TYPE_CHECKING:
    import ssl

    from lab.control.ports import Looking
    from lab.control.server import ControlServer

RETRY_S: Final = 1.0
"""Delay before listening again, after an accept has failed, or the server could not be loaded."""

log = get_logger()


class ControlListener:
    """One control port. ``start`` returns its port number, ``close`` ends all calls."""

    def __init__(
        self,
        looking: Callable[[], Looking],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        stage_token: str = "",
        look_token: str = "",
        allowed_hosts: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        modules: Collection[str] = (),
    ) -> None:
        """``looking`` returns the objects that the port controls; it is called at the first request.

        ``modules`` are imported at the first request, in a thread. ``token`` is the token of the highest role. Raises
        ``ControlConfigError`` if other machines could reach the port without a token.
        """
        self._looking = looking
        self._modules = tuple(modules)
        self._host = host
        self._port = port
        self._access = Access.of(host, Tokens(token, stage_token, look_token), allowed_hosts)
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._accepted: dict[socket.socket, None] = {}
        """Connections that have sent nothing yet, the oldest first."""
        self._retry: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._server: ControlServer | None = None

    @property
    def url(self) -> str:
        """URL of the port, with an address that a user can connect to."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{self._port}" if ":" in host else f"{scheme}://{host}:{self._port}"

    @property
    def is_loaded(self) -> bool:
        """Whether the server has been loaded and has taken over the sockets."""
        return self._server is not None

    async def start(self) -> int:
        """Listen, and return the port number. Raises ``ControlConfigError`` if the port is not available."""
        try:
            self._listening += Ports().bind(Endpoint("CONTROL", self._host, self._port))
            self._port = int(self._listening[0].getsockname()[1])
            for each in self._listening:
                each.setblocking(False)
                each.listen(CONTROL_CONNECTIONS_MAX)
        except (BindError, OSError) as error:
            self._close_sockets()
            raise ControlConfigError(f"control port {self._host}:{self._port}: {_reason(error)}") from error
        self._watch()
        return self._port

    async def close(self) -> None:
        """Close all connections. Calls that wait or stream are cancelled. Calls that change something run to their end."""
        self._unwatch()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self._server is not None:
            await self._server.close()
        self._close_sockets()

    # -- before the first call -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._listening:
            loop.add_reader(each.fileno(), self._accept, each)
        for each in self._accepted:
            loop.add_reader(each.fileno(), self._heard, each)

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (*self._listening, *self._accepted):
            loop.remove_reader(each.fileno())
        if self._retry is not None:
            self._retry.cancel()

    def _watch_later(self) -> None:
        self._unwatch()
        self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._watch)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("accept paused", reason=str(error), listener="control port")
            self._watch_later()
            return
        accepted.setblocking(False)
        self._accepted[accepted] = None
        asyncio.get_running_loop().add_reader(accepted.fileno(), self._heard, accepted)
        if len(self._accepted) > control_connections_max():
            self._drop(next(iter(self._accepted)))

    def _heard(self, accepted: socket.socket) -> None:
        """Load the server if the connection has bytes to read. Drop a connection that the caller has closed."""
        try:
            has_sent = bool(accepted.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            has_sent = False
        if has_sent:
            self._unwatch()
            self._loading = asyncio.get_running_loop().create_task(self._load())
        else:
            self._drop(accepted)

    def _drop(self, accepted: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(accepted.fileno())
        del self._accepted[accepted]
        accepted.close()

    # -- the first call -------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(load, self._modules)
            from lab.control.server import ControlServer

            self._server = ControlServer(self._looking(), self._access, self._tls)
            await self._server.serve(self._listening, [*self._accepted])
        except Exception:
            log.exception("control port not loaded")
            self._server = None
            for each in tuple(self._accepted):
                self._drop(each)
            self._watch_later()
        else:
            self._listening.clear()
            self._accepted.clear()

    def _close_sockets(self) -> None:
        for each in (*self._listening, *self._accepted):
            each.close()
        self._listening.clear()
        self._accepted.clear()


def load(modules: Collection[str] = ()) -> None:
    """Import the HTTP server, the operations and ``modules``. Runs in a thread; the event loop keeps running."""
    from lab.sharing import loop_goes_first  # not needed by a broker that gets no call

    # Imports allocate much and free nothing, and modules stay in memory. So the collector is off and skips them afterwards,
    # as at the start. A collection would block the event loop for 10 ms.
    collects, count = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        with loop_goes_first():
            import_module("lab.control.http_library").load()
            import_module("lab.control.server")
            import_module("lab.control.operations").discover()
            for name in modules:
                import_module(name)
        # Counting takes a millisecond for each 30,000 objects, and holds the interpreter meanwhile.
        if len(sys.modules) > count and gc.get_freeze_count() > 0:
            gc.freeze()
    finally:
        if collects:
            gc.enable()


def tls_of(certificate: str, key: str) -> ssl.SSLContext | None:
    """TLS context for these settings, None if there are none. Raises ``ControlConfigError`` if they are invalid."""
    if not certificate:
        if key:
            raise ControlConfigError(f"{TLS_KEY_SETTING} is set, but {TLS_CERTIFICATE_SETTING} is not")
        return None
    from lab.control.tls import server_context  # only a control port with TLS pays for the import

    return server_context(certificate, key)


def _reason(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, BindError) else error
    if isinstance(cause, OSError):
        if cause.errno == errno.EADDRINUSE:
            return "in use by another process"
        return str(cause.strerror or cause)
    return str(error)
