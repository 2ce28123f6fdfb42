"""What all proxies have in common: the listener, the connections of the job, and the faults that end connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.certify.services.calls import Call

AWAY_S: Final = 0.3
"""How long a restarting service refuses connections, in seconds."""
LATE_S: Final = 5.0
"""How long a late response is held back if the client does not give up, in seconds."""
CHUNK: Final = 65_536


class Client:
    """One connection of the job to a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        host, port = writer.get_extra_info("peername")[:2]
        self.peer: Final = f"{host}:{port}"

    def reset(self) -> None:
        """Close the connection with RST, as after a crash of the other side."""
        with contextlib.suppress(OSError, AttributeError):
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client closes the connection. What it sends until then is dropped."""
        with contextlib.suppress(OSError):
            while await self.reader.read(CHUNK):
                pass


class Listener:
    """The listener of one proxy. ``serve`` handles one connection, and ends with it."""

    def __init__(self, serve: Callable[[Client], Awaitable[None]]) -> None:
        self._serve = serve
        self._clients: dict[Client, asyncio.Task[None]] = {}
        self._return: asyncio.Task[None] | None = None
        self.port = 0

    async def open(self) -> None:
        self._reserved = _bound(0)
        """Keeps the port while the service is away. A socket that does not listen accepts nothing."""
        self.port = self._reserved.getsockname()[1]
        await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=_bound(self.port))

    async def restore(self) -> None:
        """End all connections, and accept new ones, whatever a fault has left."""
        await self.close_all()
        if self._return is not None:
            self._return.cancel()
            self._return = None
        if not self._server.is_serving():
            await self._listen()

    async def close(self) -> None:
        if not self.port:
            return
        if self._return is not None:
            self._return.cancel()
        self._server.close()
        await self.close_all()
        self._reserved.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._clients[client] = task
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(client)
        finally:
            self._clients.pop(client, None)
            writer.close()

    # -- faults --------------------------------------------------------------------------------------------------

    async def close_all(self, but: Client | None = None, farewell: bytes = b"") -> None:
        """Reset all connections of the job, except ``but``. With ``farewell`` they get these bytes, and are closed."""
        ended = {client: task for client, task in self._clients.items() if client is not but}
        for client, task in ended.items():
            if farewell:
                client.writer.write(farewell)
                client.writer.close()
            else:
                client.reset()
            task.cancel()
        if ended:
            await asyncio.wait(ended.values())

    async def go_away(self, but: Client | None = None, farewell: bytes = b"") -> None:
        """Close all connections of the job (`close_all`), and refuse new ones for `AWAY_S`, as a service that restarts."""
        self._server.close()
        await self.close_all(but, farewell)
        if self._return is None:
            self._return = asyncio.create_task(self._come_back())

    async def _come_back(self) -> None:
        await asyncio.sleep(AWAY_S)
        await self._listen()
        self._return = None


def _bound(port: int) -> socket.socket:
    """A socket that is bound to the port, which several sockets may share."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind(("127.0.0.1", port))
    return found


def end(writer: asyncio.StreamWriter) -> None:
    """Close a connection to a service. TLS ends without its closing handshake, for which a loop that closes cannot wait."""
    if writer.get_extra_info("ssl_object") is None:
        writer.close()
    else:
        writer.transport.abort()


async def late(client: Client, call: Call) -> bool:
    """Hold a response back until the client gives up, at most for `LATE_S`. Returns whether the client gave up.

    Used between requests of protocols in which a client sends nothing while it waits for a response.
    """
    try:
        async with asyncio.timeout(LATE_S):
            given_up = not await client.reader.read(1)
    except TimeoutError:
        return False
    if given_up:
        call.lost()
    return given_up
