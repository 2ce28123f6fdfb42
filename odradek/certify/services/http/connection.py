"""HTTP/1.1 on one connection: h11's events over asyncio's streams, for both sides of the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import h11

from odradek.certify.services.http.origin import Origin, RawHeaders, target
from odradek.certify.services.proxy import CHUNK, Client, end

BODY_MAX_BYTES: Final = 64 << 20
"""Maximum size of a request's body, which the proxy reads whole before it passes the request on."""
_HEAD_MAX_BYTES: Final = 128 << 10
Events = list[h11.Event]


class NotSupported(Exception):
    """A request that the proxy refuses with this status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request of the job."""

    method: str
    target: str
    """Path and query."""
    headers: RawHeaders
    body: bytes
    trailers: RawHeaders

    def header(self, name: bytes) -> str:
        """The value of a header; empty if the request has none. ``name`` is in lower case."""
        return next((value.decode("latin-1") for each, value in self.headers if each.lower() == name), "")


class Connection:
    """h11's state of one side, with the streams of the connection."""

    def __init__(
        self, role: type[h11.CLIENT | h11.SERVER], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.state = h11.Connection(role, max_incomplete_event_size=_HEAD_MAX_BYTES)
        self._reader, self._writer = reader, writer

    async def events(self) -> Events:
        """The events in the bytes that have been received; waits for the first one. Ends with a message."""
        found: Events = []
        while True:
            event = self.state.next_event()
            if event is h11.NEED_DATA:
                if found:
                    return found
                if self.state.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                self.state.receive_data(await self._reader.read(CHUNK))
            elif event is h11.PAUSED:
                return found
            else:
                assert isinstance(event, h11.Event)
                found.append(event)
                if isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                    return found

    async def send(self, *events: h11.Event) -> None:
        if not self._writer.is_closing():
            self._writer.writelines(data for each in events if (data := self.state.send(each)))
            await self._writer.drain()

    def is_reusable(self) -> bool:
        """Whether another request can follow the one that has ended; prepares for it."""
        if self.state.our_state is not h11.DONE or self.state.their_state is not h11.DONE:
            return False
        self.state.start_next_cycle()
        return True


class Session(Connection):
    """A connection of the job."""

    def __init__(self, client: Client) -> None:
        super().__init__(h11.SERVER, client.reader, client.writer)
        self.client = client
        self._is_head = False

    async def request(self) -> Request | None:
        """The next complete request; None if the client closes the connection. Raises `NotSupported`."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            for event in await self._events():
                match event:
                    case h11.Request():
                        head = event
                        self._is_head = event.method == b"HEAD"
                        _refuse_others(event)
                    case h11.Data():
                        body += event.data
                        if len(body) > BODY_MAX_BYTES:
                            raise NotSupported(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
                    case h11.EndOfMessage():
                        assert head is not None
                        headers, trailers = head.headers.raw_items(), event.headers.raw_items()
                        return Request(
                            head.method.decode(), target(head.target), headers, bytes(body), trailers
                        )
                    case h11.ConnectionClosed():
                        return None

    async def answer(self, status: int, sentence: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Answer a request without the service."""
        body = json.dumps({"error": sentence}).encode()
        length = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        reason = HTTPStatus(status).phrase.encode()
        await self.send(
            h11.Response(status_code=status, reason=reason, headers=[*length, *headers]),
            h11.Data(data=b"" if self._is_head else body),
            h11.EndOfMessage(),
        )

    async def _events(self) -> Events:
        try:
            return await self.events()
        except h11.RemoteProtocolError as error:
            raise NotSupported(error.error_status_hint, str(error)) from None

    async def gone(self, timeout_s: float | None = None) -> bool:
        """Whether the client closes the connection within ``timeout_s``. Pipelined requests are kept."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while data := await self.client.reader.read(CHUNK):
                    self.state.receive_data(data)
                return True
        return False


def _refuse_others(head: h11.Request) -> None:
    if head.http_version not in (b"1.1", b"1.0"):
        version = head.http_version.decode().removesuffix(".0")
        raise NotSupported(505, f"HTTP/{version} is not supported: use HTTP/1.1")
    if head.method == b"CONNECT":
        raise NotSupported(
            501, "CONNECT is not supported: use the address of the proxy as that of the service"
        )


class Upstream:
    """The connection to the service that belongs to one connection of the job. It is opened for the first request."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None) -> None:
        self._origin, self._tls = origin, tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_busy = self._is_over = False

    async def ask(self, request: Request, take: Callable[[Events], Awaitable[None]]) -> None:
        """Send the request, and give the response to ``take`` as it arrives. Raises ``OSError`` if it does not end."""
        self._is_busy = True
        try:
            connection = await self._open()
            await connection.send(*self._translated(request))
            ends = False
            while not ends:
                found = await connection.events()
                ends = isinstance(found[-1], h11.EndOfMessage)
                await take([each for each in found if not isinstance(each, h11.InformationalResponse)])
            if not connection.is_reusable():
                self._drop()
        except h11.ProtocolError as error:
            self._drop()
            raise ConnectionResetError(str(error)) from None
        finally:
            self._is_busy = False
            if self._is_over:
                self._drop()

    def _translated(self, request: Request) -> Events:
        headers = self._origin.headers(request.headers)
        data = [h11.Data(data=request.body)] if request.body else []
        return [
            h11.Request(method=request.method, target=request.target, headers=headers),
            *data,
            h11.EndOfMessage(headers=request.trailers),
        ]

    async def _open(self) -> Connection:
        if self._streams is not None and self._streams[0].at_eof():
            self._drop()  # the service has closed the idle connection
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._origin.host, self._origin.port, ssl=self._tls)
            self._connection = Connection(h11.CLIENT, *self._streams)
        return self._connection

    def close(self) -> None:
        """Close the connection, at the end of the request that the service is handling."""
        self._is_over = True
        if not self._is_busy:
            self._drop()

    def _drop(self) -> None:
        if self._streams is not None:
            end(self._streams[1])
        self._streams = None
