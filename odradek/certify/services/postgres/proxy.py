"""The proxy's connections: passes the messages of both sides on, and injects faults at the statements of the job."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import ssl
from collections.abc import AsyncIterator, Collection
from typing import Final

from odradek.certify.services.calls import Call, Traffic
from odradek.certify.services.postgres import messages
from odradek.certify.services.postgres.address import Address
from odradek.certify.services.postgres.messages import (
    CancelRequest,
    Frames,
    Message,
    ProtocolError,
    SSLRequest,
    StartupMessage,
)
from odradek.certify.services.postgres.session import Execution, Outcome, Session
from odradek.certify.services.proxy import CHUNK, LATE_S, Client, Listener, end

CLIENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the messages of one client that wait behind a held statement, in bytes."""
_TURNS: Final = 3
"""Turns of the event loop after which it knows what has happened before: that a client is gone, that TLS has begun."""
_log: Final = logging.getLogger(__name__)
SHUTDOWN_STATE: Final = "57P01"
ERRORS: Final = {
    "40001": "could not serialize access due to concurrent update",
    "40P01": "deadlock detected",
    SHUTDOWN_STATE: "terminating connection due to administrator command",
}
SHUTDOWN: Final = messages.error_response("FATAL", SHUTDOWN_STATE, ERRORS[SHUTDOWN_STATE])


class _Over(Exception):
    """The connection ends."""


class Proxy:
    """All connections of the job to one server."""

    def __init__(
        self, name: str, address: Address, traffic: Traffic, certificate: ssl.SSLContext | None
    ) -> None:
        self.name, self.address, self.traffic = name, address, traffic
        self.certificate = certificate
        self.database = address.database
        """Database of the run, which replaces that of the DSN, for jobs that have its name from elsewhere."""
        self.volatile: Collection[str] = ()
        """Names of the functions of the user that may change something."""
        self.number = itertools.count(1).__next__
        self.listener: Final = Listener(self._serve)
        self.connections: Final[set[Connection]] = set()

    async def upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server, with TLS if the DSN demands it."""
        address = self.address
        if address.is_local:
            return await asyncio.open_unix_connection(f"{address.host}/.s.PGSQL.{address.port}")
        reader, writer = await asyncio.open_connection(address.host, address.port)
        if address.has_tls:
            writer.write(messages.SSL_REQUEST)
            if await reader.readexactly(1) != b"S":
                writer.close()
                raise ConnectionError("the server does not support SSL, but SSL was required")
            await writer.start_tls(address.tls(), server_hostname=address.host)
        return reader, writer

    async def _serve(self, client: Client) -> None:
        connection = Connection(self, client)
        self.connections.add(connection)
        try:
            await connection.serve()
        except (_Over, OSError, asyncio.IncompleteReadError):
            pass
        except ProtocolError as error:
            _log.warning("%s: connection of %s closed: %s", self.name, client.peer, error)
            client.writer.write(messages.error_response("FATAL", "08P01", str(error)).data)
        finally:
            self.connections.discard(connection)
            connection.end()

    async def cancel(self, request: CancelRequest) -> None:
        """Pass a CancelRequest on. A response that is held back for this session is late, and goes to the client now."""
        for each in self.connections:
            if each.key == request.key:
                each.cancelled.set()
        reader, writer = await self.upstream()
        writer.write(request.packet)
        # The server closes the connection when it has handled the request.
        with contextlib.suppress(OSError):
            await reader.read()
        end(writer)


class Connection:
    """One connection of the job, and the session of the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: Client) -> None:
        self._proxy, self._client = proxy, client
        self._session = Session(proxy.number, proxy.volatile)
        self._writer: asyncio.StreamWriter | None = None
        self._calls: list[Call] = []
        """Requests whose outcome is open."""
        self._received: list[Message] = []
        self._received_bytes = 0
        self._changed = asyncio.Event()
        """Set when a message of the client has arrived, or the client is gone."""
        self._gone = asyncio.Event()
        """Set when the client has closed the connection."""
        self._out = bytearray()
        """Bytes for the client that are not written yet."""
        self._taken = asyncio.Event()
        self._answered = asyncio.Event()
        """Set with each response of the server."""
        self._is_silent = False
        """Whether the client's messages are dropped, and the connection stays open."""
        self._withheld = bytearray()
        """The part of the server's response that the client does not get, or gets late."""
        self._gate: tuple[Execution, str] | None = None
        """The execution whose response is withheld, and the action."""
        self._lost: list[Outcome] = []
        """Executions that are over, and whose responses are withheld."""
        self._late: asyncio.Task[None] | None = None
        self.key = b""
        self.cancelled: Final = asyncio.Event()

    # -- start and end -------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        startup = await self._started()
        if startup is None:
            return
        try:
            reader, self._writer = await self._proxy.upstream()
        except (OSError, asyncio.IncompleteReadError) as error:
            self._client.writer.write(messages.error_response("FATAL", "08006", str(error)).data)
            return
        is_source = startup.database == self._proxy.address.database
        database = self._proxy.database if is_source else startup.database
        self._writer.write(startup.for_server(database).encode())
        tasks = [
            asyncio.create_task(work)
            for work in (self._read_client(), self._serve_client(), self._serve_server(reader))
        ]
        try:
            # _read_client ends with the client, whose messages have to be handled still.
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
            for each in tasks:
                if each.done():
                    each.result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _started(self) -> StartupMessage | None:
        """Handle the packets before the session; None for a connection without one."""
        client, proxy = self._client, self._proxy
        is_encrypted = False
        while True:
            begin = await client.reader.readexactly(4)
            if begin[0] == messages.TLS_HANDSHAKE and not is_encrypted:
                await _start_direct_tls(client, begin, proxy.certificate)
                is_encrypted = True
                continue
            size = int.from_bytes(begin, "big")
            if not 8 <= size <= messages.STARTUP_BYTES:
                raise ProtocolError("invalid length of startup packet")
            first = messages.first(begin + await client.reader.readexactly(size - 4))
            if isinstance(first, CancelRequest):
                await proxy.cancel(first)
                return None
            if isinstance(first, StartupMessage):
                return first
            if isinstance(first, SSLRequest) and proxy.certificate is not None and not is_encrypted:
                is_encrypted = True
                client.writer.write(b"S")
                await client.writer.start_tls(proxy.certificate)
            else:
                client.writer.write(b"N")

    def end(self) -> None:
        """End the server's session as the client's death would: PostgreSQL rolls its transaction back."""
        for call in self._calls:
            call.unanswered()
        if self._late is not None:
            self._late.cancel()
        if self._writer is not None:
            end(self._writer)

    # -- from the client -----------------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        """Read the client's messages also while a statement is held, because only a reader notices the client's death."""
        frames = Frames()
        try:
            while chunk := await self._client.reader.read(CHUNK):
                self._received += frames.feed(chunk)
                self._received_bytes += len(chunk)
                self._changed.set()
                while self._received_bytes > CLIENT_BYTES:
                    self._taken.clear()
                    await self._taken.wait()
        except OSError:
            pass  # the client was killed
        finally:
            self._gone.set()
            self._changed.set()
            self._answered.set()

    async def _batches(self) -> AsyncIterator[list[Message]]:
        """The client's messages as they arrive, until the client is gone."""
        while self._received or not self._gone.is_set():
            await self._changed.wait()
            self._changed.clear()
            batch, self._received, self._received_bytes = self._received, [], 0
            self._taken.set()
            if batch:
                yield batch

    async def _serve_client(self) -> None:
        async for batch in self._batches():
            for each in batch:
                await self._handle(each)
            await self._flush()

    async def _flush(self) -> None:
        assert self._writer is not None
        await self._writer.drain()

    def _send(self, *sent: Message) -> None:
        assert self._writer is not None
        for each in sent:
            self._writer.write(each.data)

    async def _handle(self, sent: Message) -> None:
        session = self._session
        if self._is_silent or (session.drops and sent.kind not in "SX"):
            return
        executions = session.executions(sent)
        action, at = await self._decided(executions) if executions else ("", 0)
        if not action:
            session.forward(sent, executions)
            self._send(sent)
        elif action.startswith("lose-answer") or action == "late-answer":
            self._gate = executions[0], action
            session.forward(sent, executions, gate=True)
            self._send(sent)
        elif action.startswith("error ") and (code := action.split()[1]) != SHUTDOWN_STATE:
            error = messages.error_response("ERROR", code, ERRORS.get(code, "statement rejected"))
            self._send(*session.reject(sent, executions, at, error))
        else:
            await self._break(action)

    async def _decided(self, executions: list[Execution]) -> tuple[str, int]:
        """Report the statements of a message. Returns the action at the first one that a rule has hit, and its position."""
        calls = [self._report(each) for each in executions]
        for at, call in enumerate(calls):
            action = await (self._unless_gone(call) if call.outcome == "held" else call.decided())
            if action:
                return action, at
        return "", 0

    def _report(self, execution: Execution) -> Call:
        call = execution.call = self._proxy.traffic.arrived(
            f"{self._proxy.name}:{execution.on}",
            execution.phase,
            self._client.peer,
            execution.line,
            execution.request,
            is_write=execution.is_write,
        )
        self._calls.append(call)
        return call

    async def _unless_gone(self, call: Call) -> str:
        """Wait for the release of a held statement. Ends the connection if the client goes away before."""
        await self._flush()
        waits = [asyncio.create_task(call.decided()), asyncio.create_task(self._wait(self._gone))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            # The server must not get the statement of a client that was killed just before the release.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._gone.is_set():
                raise _Over
            return await waits[0]
        finally:
            for each in waits:
                each.cancel()

    @staticmethod
    async def _wait(event: asyncio.Event) -> str:
        await event.wait()
        return ""

    async def _break(self, action: str) -> None:
        """Handle a statement that the server does not get, and whose connection breaks."""
        await self._settled()
        listener, client = self._proxy.listener, self._client
        match action:
            case "lose-request silent":
                self._is_silent = True
                for call in self._calls:
                    call.unanswered()
                return
            case "restart":
                await listener.go_away(client, SHUTDOWN.data)
                client.writer.write(SHUTDOWN.data)
            case "close-all":
                await listener.close_all(client)
                client.reset()
            case "error 57P01":
                client.writer.write(SHUTDOWN.data)
            case "drop" | "lose-request":
                client.reset()
            case _:
                raise ProtocolError(f"unknown action: {action}")
        raise _Over

    async def _settled(self) -> None:
        """Wait until the client has the responses to the statements that it sent earlier, up to the last Sync."""
        await self._flush()
        while not self._session.is_answered and not self._gone.is_set():
            self._answered.clear()
            await self._answered.wait()

    # -- from the server -----------------------------------------------------------------------------------------

    async def _serve_server(self, reader: asyncio.StreamReader) -> None:
        frames = Frames()
        while chunk := await reader.read(CHUNK):
            for got in frames.feed(chunk):
                self._take(got)
            self._write()
            await self._client.writer.drain()
            self._answered.set()
        if self._is_silent:
            await self._gone.wait()

    def _write(self) -> None:
        if self._out:
            self._client.writer.write(bytes(self._out))
            self._out.clear()

    def _take(self, got: Message) -> None:
        if got.kind == "R":
            got = messages.without_channel_binding(got)
        elif got.kind == "K":
            self.key = got.body
        received = self._session.received(got)
        if self._session.is_gated:
            self._withheld += received.data
        else:
            self._out += received.data
        for each in received.outcomes:
            self._end_call(each)
        if received.outcomes and self._lost and self._late is None and not self._is_silent:
            self._withhold()

    def _end_call(self, outcome: Outcome) -> None:
        call: Call = outcome.execution.call
        if call in self._calls:
            self._calls.remove(call)
        if outcome.answer is None:
            call.unanswered()
        elif self._gate is not None and (self._lost or outcome.execution is self._gate[0]):
            self._lost.append(outcome)
            call.lost(outcome.answer, outcome.errors)
        else:
            call.answered(outcome.answer, outcome.errors)

    def _withhold(self) -> None:
        """The server has executed the statement whose response is withheld."""
        assert self._gate is not None
        match self._gate[1]:
            case "lose-answer":
                self._write()
                self._client.reset()
                raise _Over
            case "lose-answer silent":
                self._is_silent = True
            case _:
                self._late = asyncio.create_task(self._deliver_late())

    async def _deliver_late(self) -> None:
        """Write the response when the client asks to cancel the statement, at the latest after `LATE_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_S):
                await self.cancelled.wait()
        for each in self._lost:
            call: Call = each.execution.call
            handled_us = call.answered_us
            call.answered(each.answer, each.errors)
            call.answered_us = handled_us
        self._client.writer.write(bytes(self._withheld))
        self._withheld.clear()
        self._lost, self._gate, self._late = [], None, None
        self._session.is_gated = False


async def _start_direct_tls(client: Client, begin: bytes, certificate: ssl.SSLContext | None) -> None:
    """Handle a connection that begins with TLS (sslnegotiation=direct), of which ``begin`` has been read.

    A ClientHello is one record, and the client waits for the response to it. asyncio expects it from the transport.
    """
    if certificate is None:
        raise ProtocolError("direct TLS needs sslmode=require in the DSN of the stage")
    begin += await client.reader.readexactly(1)
    hello = begin + await client.reader.readexactly(int.from_bytes(begin[3:], "big"))
    transport = client.writer.transport
    starting = asyncio.create_task(client.writer.start_tls(certificate))
    # In the first turn the transport gets the protocol of TLS, which learns of it in the second.
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    tls = transport.get_protocol()
    assert isinstance(tls, asyncio.BufferedProtocol)
    memoryview(tls.get_buffer(len(hello)))[: len(hello)] = hello
    tls.buffer_updated(len(hello))
    await starting
