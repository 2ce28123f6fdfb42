"""An HTTP service in a thread, which keeps the bytes of each request and answers as its test says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

import h11

from odradek.certify.services.http import service
from odradek.certify.services.http.proxy import HttpService
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import StageSpec
from tests.support.deadlines import HANG_S

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
Answer = Callable[[h11.Request, bytes], bytes]


class Origin:
    """Answers each request with the bytes that ``answer`` returns; an empty answer ends the connection."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer, self._tls = answer, tls
        self.requests: list[tuple[h11.Request, bytes, list[tuple[bytes, bytes]]]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.requests]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self.connections += 1
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        state, body = h11.Connection(h11.SERVER), b""
        with connection, contextlib.suppress(OSError, h11.RemoteProtocolError):
            while True:
                event = state.next_event()
                match event:
                    case h11.NEED_DATA:
                        state.receive_data(connection.recv(65_536))
                    case h11.Request():
                        head, body = event, b""
                    case h11.Data():
                        body += bytes(event.data)
                    case h11.EndOfMessage():
                        self.requests.append((head, body, event.headers.raw_items()))
                        answer = self.answer(head, body)
                        connection.sendall(answer)
                        if not answer or b"Connection: close" in answer:
                            return
                        state = h11.Connection(h11.SERVER)
                    case _:
                        return

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def staged(
    answer: Answer = lambda head, body: OK, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[HttpService, Origin]]:
    """A proxy in front of an `Origin`."""
    origin, loop = Origin(answer, tls), Loop()
    scheme = "https" if tls else "http"
    stage = service(StageSpec("http", f"{scheme}://127.0.0.1:{origin.port}/"), loop.loop)
    stage.start(loop, [])
    try:
        yield stage, origin
    finally:
        stage.close()
        loop.close()
        origin.close()
        while Client.opened:
            Client.opened.pop().close()


class Client:
    """A connection of the job, which sends bytes."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, stage: HttpService) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", int(stage.values()["http.port"])), timeout=HANG_S
        )
        self.opened.append(self.socket)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, until: bytes) -> bytes:
        """What arrives, up to and including ``until``."""
        found = b""
        while not found.endswith(until):
            data = self.socket.recv(65_536)
            assert data, f"the connection ended after {found!r}"
            found += data
        return found

    def ending(self) -> str:
        """How the connection ends: "reset", or "closed" without any byte."""
        try:
            data = self.socket.recv(65_536)
        except ConnectionResetError:
            return "reset"
        assert not data, data
        return "closed"
