"""Any TCP service: each connection is one request, and bytes are passed on unread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from odradek.certify.services.calls import Call, Traffic
from odradek.certify.services.proxy import CHUNK, LATE_S, Client, Listener
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import Feed, ServiceOutput, StageSpec
from odradek.errors import OdradekError
from odradek.topics import Record


def service(spec: StageSpec, loop: asyncio.AbstractEventLoop) -> TcpService:
    """Create the service of ``--stage tcp=HOST:PORT``. Raises ``ValueError`` for another address."""
    host, colon, port = spec.address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ValueError(f"--stage {spec.name}={spec.address}: expected HOST:PORT")
    return TcpService(spec.name, host.strip("[]"), int(port), loop)


class TcpService:
    """The proxy of a TCP service. Its state is not restored: the certifier knows nothing of it."""

    def __init__(self, name: str, host: str, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self._name, self._host, self._port = name, host, port
        self.traffic = Traffic(loop)
        self._listener = Listener(self._serve)

    def start(self, loop: Loop, feeds: Sequence[Feed]) -> None:
        self._loop = loop
        loop.run(self._check())
        loop.run(self._listener.open())

    async def _check(self) -> None:
        try:
            _, writer = await asyncio.open_connection(self._host, self._port)
        except OSError as error:
            raise OdradekError(f"--stage {self._name}: {self._host}:{self._port}: {error}") from None
        writer.close()

    def restore(self) -> None:
        self._loop.run(self._listener.restore())

    def values(self) -> Mapping[str, str]:
        port = str(self._listener.port)
        return {
            self._name: f"127.0.0.1:{port}",
            f"{self._name}.host": "127.0.0.1",
            f"{self._name}.port": port,
        }

    def records(self, output: ServiceOutput) -> list[Record]:
        raise OdradekError(f"--output {output.label}: the content of a TCP connection is not known")

    def open_transactions(self) -> list[str]:
        return []

    def close(self) -> None:
        self._loop.run(self._listener.close())

    # -- one connection ------------------------------------------------------------------------------------------

    async def _serve(self, client: Client) -> None:
        call = self.traffic.arrived(
            f"{self._name}:connection", "", client.peer, "connection", {}, is_write=True
        )
        try:
            action = await call.decided()
            match action:
                case "drop" | "lose-request":
                    client.reset()
                    return
                case "lose-request silent":
                    await client.gone()
                    return
                case "restart":
                    await self._listener.go_away(client)
                    client.reset()
                    return
                case "close-all":
                    await self._listener.close_all(client)
            await self._pass_on(client, call, action)
        finally:
            call.unanswered()

    async def _pass_on(self, client: Client, call: Call, action: str) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        forward = asyncio.create_task(_copied(client.reader, writer))
        try:
            first = await reader.read(CHUNK)
            if action.startswith("lose-answer"):
                call.lost()
                if action == "lose-answer":
                    client.reset()
                else:
                    await forward
                return
            if action == "late-answer":
                await asyncio.sleep(LATE_S)
            call.answered()
            client.writer.write(first)
            await _copied(reader, client.writer)
        finally:
            forward.cancel()
            writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until the sender closes its side."""
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
