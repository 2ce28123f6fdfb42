"""A TCP relay between clients and a broker that records exchanges, and loses, holds or rewrites those that a test selects.

    with Relay() as relay:
        broker = start_broker(settings=relay.advertised)
        relay.forward_to(broker.host, broker.port)
        loss = relay.lose("answer", "produce", nth=2)
        ...
        assert loss.happened

The broker has to advertise the relay's address, as clients connect to the addresses in Metadata responses.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from kio.schema.index import api_key_map

from tests.support import raw
from tests.support.deadlines import HANG_S

HOST = "127.0.0.1"
LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass
class Exchange:
    """One request with its response, None until it has come."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    connection: int
    request: bytes
    response: bytes | None = None
    client: object = None
    """The client, if ``Relay.name_of`` knows it."""

    @property
    def name(self) -> str:
        return api_key_map[self.api]

    @cached_property
    def answer(self) -> dict[str, Any]:
        assert self.response is not None, "there is no response yet"
        return raw.decode_response(self.name, self.version, self.response)[1]


@dataclass
class Loss:
    """A rule that drops the n-th request of an API, or its response, and then closes the connection or leaves it open and
    silent."""

    what: Literal["request", "answer"]
    api: int
    left: int
    close: bool
    happened: threading.Event = field(default_factory=threading.Event)
    exchange: Exchange | None = None

    def hits(self, exchange: Exchange) -> bool:
        if exchange.api != self.api or self.left == 0:
            return False
        self.left -= 1
        if self.left == 0:
            self.exchange = exchange
        return self.left == 0


class Relay:
    def __init__(self, name_of: Callable[[int, int], object] = lambda *ports: None) -> None:
        """``name_of(client port, relay port)`` returns a client's name, by which ``cut`` and ``hold`` select it.

        By default clients have no names.
        """
        self._name_of = name_of
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.exchanges: list[Exchange] = []
        self._target: tuple[str, int] | None = None
        self._losses: list[Loss] = []
        # Returns the frame that the client gets instead of the broker's response; the exchange has that response.
        self.rewrite: Callable[[Exchange], bytes] = _as_it_is
        self._connections: list[_Connection] = []
        self._lock = threading.Lock()
        self._held: dict[int, Collection[object] | None] = {}
        """Held APIs, with the clients whose requests are held; None for all clients."""
        self._cut: set[object] = set()
        self._let_on = threading.Condition(self._lock)
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    # ---- for tests

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def advertised(self) -> dict[str, str]:
        """Settings with which the broker behind the relay advertises the relay's address."""
        return {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}

    def forward_to(self, host: str, port: int) -> None:
        self._target = (host, port)

    def lose(self, what: Literal["request", "answer"], api: str, *, nth: int = 1, close: bool = True) -> Loss:
        """Drop the ``nth`` request of an API from now on, or its response."""
        loss = Loss(what, raw.API_KEYS[api], nth, close)
        with self._lock:
            self._losses.append(loss)
        return loss

    @contextlib.contextmanager
    def hold(self, api: str, clients: Collection[object] | None = None) -> Iterator[None]:
        """Context manager: requests of this API, from some clients or all, reach the broker only after the block."""
        key = raw.API_KEYS[api]
        with self._lock:
            self._held[key] = clients
        try:
            yield
        finally:
            with self._lock:
                del self._held[key]
                self._let_on.notify_all()

    def cut(self, client: object) -> None:
        """Reset the connections of this client, and every later connection of the client until ``mend``."""
        with self._lock:
            self._cut.add(client)
        self.drop(client)

    def drop(self, client: object) -> None:
        """Reset the current connections of this client. Held requests of these connections never arrive."""
        with self._lock:
            its_own = [each for each in self._connections if each.client == client]
        for connection in its_own:
            connection.reset()

    def mend(self, client: object) -> None:
        with self._lock:
            self._cut.discard(client)

    def seen(self, *apis: str) -> list[Exchange]:
        """Exchanges so far, in the order of the requests; only those of ``apis`` if any are given."""
        keys = {raw.API_KEYS[api] for api in apis}
        with self._lock:
            return [each for each in self.exchanges if not keys or each.api in keys]

    def answered(self, *apis: str) -> list[Exchange]:
        return [each for each in self.seen(*apis) if each.response is not None]

    def errors(self, *apis: str) -> set[int]:
        """Error codes other than 0 in the responses so far; only those of ``apis`` if any are given."""
        return {code for each in self.answered(*apis) for code in error_codes(each.answer)} - {0}

    def repeat(self, exchange: Exchange) -> dict[str, Any]:
        """Send the bytes of a request again on a new connection and return the broker's response."""
        assert self._target is not None
        wire = raw.Wire(*self._target, timeout=HANG_S)
        try:
            wire.send_frame(exchange.request)
            return raw.decode_response(exchange.name, exchange.version, wire.receive_frame())[1]
        finally:
            wire.close()

    # ---- connections

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, (_, port) = self._listener.accept()
                name = self._name_of(port, self.port)
                try:
                    if self._target is None or name in self._cut:
                        raise OSError("the broker's address is not set")
                    broker = socket.create_connection(self._target, timeout=HANG_S)
                except OSError:
                    _reset(client)
                    continue
                with self._lock:
                    connection = _Connection(self, client, broker, len(self._connections), name)
                    self._connections.append(connection)
                    if self._closed:
                        connection.close()
                        return
                    if name in self._cut:
                        connection.reset()
                        continue
                connection.start()

    def note(self, exchange: Exchange) -> list[Loss]:
        with self._lock:
            self.exchanges.append(exchange)
            return [loss for loss in self._losses if loss.hits(exchange)]

    def wait_while_held(self, exchange: Exchange) -> None:
        with self._lock:
            self._let_on.wait_for(lambda: self._closed or not self._holds(exchange))

    def _holds(self, exchange: Exchange) -> bool:
        clients = self._held.get(exchange.api, ())
        return clients is None or exchange.client in clients

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_on.notify_all()
        # Wake the thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Connection:
    def __init__(
        self, relay: Relay, client: socket.socket, broker: socket.socket, number: int, name: object
    ) -> None:
        self._relay = relay
        self.client = name
        self._client = client
        self._broker = broker
        self._number = number
        self._open: dict[int, Exchange] = {}
        self._lost_answers: dict[int, Loss] = {}
        self._is_mute = False
        for each in (client, broker):
            each.settimeout(None)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for pump in (self._requests, self._responses):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def close(self) -> None:
        for each in (self._client, self._broker):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def reset(self) -> None:
        for each in (self._client, self._broker):
            # close() alone would not wake a thread that waits in recv.
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
                each.shutdown(socket.SHUT_RD)
            each.close()

    def _run(self, pump: Any) -> None:
        with contextlib.suppress(OSError):
            pump()
        self.close()

    def _requests(self) -> None:
        for frame in _frames(self._client):
            exchange = _parse(frame, self._number, self.client)
            losses = self._relay.note(exchange)
            self._open[exchange.correlation] = exchange
            lost = False
            for loss in losses:
                if loss.what == "answer":
                    self._lost_answers[exchange.correlation] = loss
                    continue
                lost = True
                if loss.close:
                    self.close()
                # Responses come in the order of the requests: after a missing response there can be no other.
                self._is_mute = True
                loss.happened.set()
            if not lost:
                self._relay.wait_while_held(exchange)
                self._broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _responses(self) -> None:
        for frame in _frames(self._broker):
            (correlation,) = struct.unpack_from(">i", frame)
            exchange = self._open.pop(correlation)
            exchange.response = frame
            loss = self._lost_answers.pop(correlation, None)
            if loss is not None:
                self._is_mute = True
                if loss.close:
                    self.close()
                loss.happened.set()
            if not self._is_mute:
                frame = self._relay.rewrite(exchange)
                self._client.sendall(struct.pack(">i", len(frame)) + frame)


def _reset(connection: socket.socket) -> None:
    """Close a connection with RST, without TIME_WAIT: a client whose link is cut reconnects again and again."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    connection.close()


def _as_it_is(exchange: Exchange) -> bytes:
    assert exchange.response is not None
    return exchange.response


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code in a response, at any depth."""
    if isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from error_codes(value)


def _parse(frame: bytes, connection: int, client: object) -> Exchange:
    api, version, correlation, length = struct.unpack_from(">hhih", frame)
    client_id = frame[10 : 10 + length].decode() if length >= 0 else None
    return Exchange(api, version, correlation, client_id, connection, frame, client=client)


def _frames(source: socket.socket) -> Iterator[bytes]:
    while True:
        head = _take(source, 4)
        if head is None:
            return
        frame = _take(source, struct.unpack(">i", head)[0])
        if frame is None:
            return
        yield frame


def _take(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
