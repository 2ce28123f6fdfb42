"""TCP without sockets: ordered bytes with latency, back-pressure, FIN and RST, and lines that can be cut.

A connection is a pair of transports. Bytes written to one arrive at the other in order, in pieces of any size, after a
latency from the seed. A line that is cut carries nothing until it is mended, as when TCP retransmits without success.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from broker.config.endpoints import Endpoint

LATENCY_S: Final = (0.0001, 0.003)
SPLIT_ONE_IN: Final = 20
"""On average, one of this many pieces is split in two."""
LATE_FRAMES: Final = 0.5
"""Probability that the bytes in flight still arrive after a client has reset the connection."""
LATE_S_MAX: Final = 10.0
WRITE_BUFFER_HIGH_BYTES: Final = 64 * 1024
FIRST_PORT: Final = 9092
NODE: Final = "node"
"""The client name of connections between nodes."""
CLIENT_ID_AT: Final = 14
"""Position of the client id in a request: after size, API key, API version, correlation id and the client id's length."""

Line = tuple[str, int]
"""The connections of one client to one node, which can be cut together: (client name, port of the node)."""


class SimSocket:
    """A listening socket."""

    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self._network = network
        self.host = host
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return (self.host, self.port)

    def close(self) -> None:
        self._network.unlisten(self)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: SimNetwork, line: Line, peer_port: int, *, of_node: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", peer_port)})
        self.of_node = of_node
        self.network = network
        self.line = line
        self.peer: SimTransport
        self.protocol: Any
        self._inbox: deque[bytes] = deque()
        self._reading = True
        self._in_flight = 0
        self._high = WRITE_BUFFER_HIGH_BYTES
        self._writing_paused = False
        self._closing = False
        self._lost = False
        self._ended = False  # the peer has sent FIN
        self.made = not of_node
        """Whether connection_made of this end's protocol was called."""

    # ---- called by protocols

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BUFFER_HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._in_flight

    def get_protocol(self) -> Any:
        return self.protocol

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        piece = bytes(data)
        self._in_flight += len(piece)
        self.network.hold(self, piece)
        for part in self.network.split(piece):
            self.network.carry(self, part)
        if self._in_flight > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Sequence[Any]) -> None:
        self.write(b"".join(bytes(each) for each in list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.network.loop.call_soon(self.deliver)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def close(self) -> None:
        """Close after the written bytes, which still arrive, followed by FIN."""
        if self._closing:
            return
        self._closing = True
        self.network.carry(self, b"")
        self.network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Reset the connection: the peer gets a reset and no more bytes."""
        if self._lost:
            return
        self._closing = True
        self.network.reset(self)
        self.network.loop.call_soon(self._lose, None)

    # ---- called by the network

    @property
    def is_lost(self) -> bool:
        return self._lost

    def arrived(self, piece: bytes) -> None:
        """Receive a piece of the peer's bytes, for this end's protocol. An empty piece is FIN."""
        self._inbox.append(piece)
        self.deliver()

    def was_reset(self) -> None:
        if not self._lost:
            self._closing = True
            self._lose(ConnectionResetError("reset by the peer"))

    def deliver(self) -> None:
        while self._inbox and self._reading and self.made and not self._lost:
            piece = self._inbox.popleft()
            if not piece:
                self._end()
                return
            self.peer.taken(len(piece))
            self._feed(piece)

    def _feed(self, piece: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(piece)
            return
        while piece and not self._lost:
            buffer = memoryview(self.protocol.get_buffer(-1))
            size = min(len(buffer), len(piece))
            buffer[:size] = piece[:size]
            del buffer  # the protocol may resize its buffer, which fails while a view of it exists
            piece = piece[size:]
            self.protocol.buffer_updated(size)

    def _end(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def taken(self, size: int) -> None:
        """Called when the peer has read this many of the written bytes."""
        self._in_flight -= size
        if self._writing_paused and self._in_flight <= self._high // 4 and not self._lost:
            self._writing_paused = False
            self.protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._inbox.clear()
            if self.made:
                self.protocol.connection_lost(error)


class _Direction:
    """The bytes in flight from one end to the other."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes | None]] = deque()
        """(arrival time, piece) of the bytes in flight. A piece is None for a reset, and empty for FIN."""
        self.latest = 0.0
        self.scheduled = False
        self.is_held = False
        """Whether a held request is in flight, which arrives even after a reset of its connection."""


class Held(NamedTuple):
    """A delay for one inter-node request. ``wants`` returns whether a frame is that request; ``then`` is called
    with the client id of its sender."""

    delay_s: float
    then: Callable[[str], object]
    wants: Callable[[bytes], bool]


class SimNetwork:
    """All listeners and connections of one simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop = loop
        self._random = random
        self._listeners: dict[int, Callable[[], Any]] = {}
        self._next_port = FIRST_PORT
        self._next_client_port = 40_000
        self._directions: dict[SimTransport, _Direction] = {}
        self._cut: dict[Line, int] = {}
        self._delay_s: dict[int, float] = {}
        self._losing: dict[int, int] = {}
        self.late_frames = LATE_FRAMES
        self._at_accept: dict[int, Callable[[], object]] = {}
        self._holding: dict[int, Held] = {}
        """By API key: the `Held` that delays a request of this API."""
        self.on_piece: Callable[[Line, str, bytes], None] = lambda line, what, piece: None
        """Called for each piece, FIN and RST that arrives, with the line, ``>`` (to a node) or ``<`` (to a client), and
        a piece's bytes."""

    # ---- listen and connect

    def bind(self, endpoint: Endpoint) -> list[Any]:
        port = endpoint.port
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        return [SimSocket(self, endpoint.host, port)]

    def listen(self, sock: SimSocket, protocol_factory: Callable[[], Any]) -> SimSocket:
        self._listeners[sock.port] = protocol_factory
        return sock

    def unlisten(self, sock: SimSocket) -> None:
        self._listeners.pop(sock.port, None)

    async def connect(
        self, name: str, port: int, protocol_factory: Callable[[], Any]
    ) -> tuple[SimTransport, Any]:
        await asyncio.sleep(self._latency(port))
        line = (name, port)
        if line in self._cut:
            await asyncio.sleep(1)
            raise TimeoutError(f"port {port} is unreachable")
        factory = self._listeners.get(port)
        if factory is None:
            raise ConnectionRefusedError(f"no process listens on port {port}")
        self._next_client_port += 1
        ours = SimTransport(self, line, port, of_node=False)
        theirs = SimTransport(self, line, self._next_client_port, of_node=True)
        ours.peer, theirs.peer = theirs, ours
        self._directions[ours], self._directions[theirs] = _Direction(), _Direction()
        theirs.protocol, ours.protocol = factory(), protocol_factory()
        # As with uvloop: connection_made is called in the turn after the accept, even if the listener is closed meanwhile.
        if port in self._at_accept:
            self.loop.call_soon(self._at_accept.pop(port))
        self.loop.call_soon(self._made, theirs)
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    @staticmethod
    def _made(transport: SimTransport) -> None:
        transport.made = True
        transport.protocol.connection_made(transport)
        if transport.is_lost:
            transport.protocol.connection_lost(None)
        else:
            transport.deliver()

    # ---- delivery

    def split(self, piece: bytes) -> list[bytes]:
        if len(piece) > 1 and self._random.randrange(SPLIT_ONE_IN) == 0:
            at = self._random.randrange(1, len(piece))
            return [piece[:at], piece[at:]]
        return [piece]

    def _latency(self, port: int) -> float:
        return self._random.uniform(*LATENCY_S) + self._delay_s.get(port, 0.0)

    def carry(self, sender: SimTransport, piece: bytes) -> None:
        direction = self._directions.get(sender)
        if direction is None:
            return
        due = max(direction.latest, self.loop.time() + self._latency(sender.line[1]))
        direction.latest = due
        direction.pieces.append((due, piece))
        self._schedule(sender, direction)

    def hold(self, sender: SimTransport, piece: bytes) -> None:
        """Delay the request if a `Held` selects it.

        Nodes write one request at a time, so API key and client id have fixed positions.
        """
        direction = self._directions.get(sender)
        if not self._holding or sender.line[0] != NODE or sender.of_node or direction is None:
            return
        api_key = int.from_bytes(piece[4:6])
        held = self._holding.get(api_key)
        if held is not None and held.wants(piece):
            del self._holding[api_key]
            size = int.from_bytes(piece[CLIENT_ID_AT - 2 : CLIENT_ID_AT])
            direction.latest = self.loop.time() + held.delay_s
            direction.is_held = True
            self.loop.call_soon(held.then, piece[CLIENT_ID_AT : CLIENT_ID_AT + size].decode())

    def _schedule(self, sender: SimTransport, direction: _Direction) -> None:
        if not direction.scheduled and direction.pieces and sender.line not in self._cut:
            direction.scheduled = True
            self.loop.call_at(max(direction.pieces[0][0], self.loop.time()), self._arrive, sender, direction)

    def _arrive(self, sender: SimTransport, direction: _Direction) -> None:
        direction.scheduled = False
        if sender.line in self._cut:
            return
        while direction.pieces and direction.pieces[0][0] <= self.loop.time() + 1e-9:
            _, piece = direction.pieces.popleft()
            if piece is None:
                self._directions.pop(sender, None)
                sender.peer.was_reset()
                return
            if sender.of_node and piece and self._losing.get(sender.line[1], 0) > 0:
                self._losing[sender.line[1]] -= 1
                self._note(sender, "lost", piece)
                sender.abort()
                sender.peer.was_reset()
                return
            self._note(sender, "<" if sender.of_node else ">", piece)
            if not piece:
                self._directions.pop(sender, None)
            sender.peer.arrived(piece)
        self._schedule(sender, direction)

    def reset(self, sender: SimTransport) -> None:
        direction = self._directions.get(sender)
        if direction is None:
            return
        self._note(sender, "reset", b"")
        if direction.is_held and direction.pieces:
            direction.pieces.append((direction.pieces[-1][0], None))
        elif not sender.of_node and direction.pieces and self._random.random() < self.late_frames:
            # The bytes of a client that gave up may arrive long after it has sent the same request elsewhere.
            delay_s = self._random.uniform(0, LATE_S_MAX)
            direction.pieces = deque((due + delay_s, piece) for due, piece in direction.pieces)
            direction.pieces.append((direction.pieces[-1][0], None))
        else:
            del self._directions[sender]
            self.loop.call_later(self._latency(sender.line[1]), sender.peer.was_reset)

    def _note(self, sender: SimTransport, what: str, piece: bytes) -> None:
        self.on_piece(sender.line, what, piece)

    # ---- faults

    def lose_answers(self, port: int, count: int) -> None:
        """Drop the next ``count`` responses of the node at ``port``, and reset their connections."""
        self._losing[port] = self._losing.get(port, 0) + count

    def at_next_accept(self, port: int, act: Callable[[], object]) -> None:
        """Call a function between the next accept at a port and the connection_made of its protocol."""
        self._at_accept[port] = act

    def forget_accept(self, port: int) -> None:
        self._at_accept.pop(port, None)

    def hold_next(
        self,
        api_key: int,
        delay_s: float,
        then: Callable[[str], object],
        wants: Callable[[bytes], bool] = lambda frame: True,
    ) -> None:
        """Delay the next inter-node request of this API whose frame ``wants`` accepts.

        The request arrives even if its sender dies before. ``then`` is called with the sender's client id in the
        turn after the request was sent.
        """
        self._holding[api_key] = Held(delay_s, then, wants)

    def hold_no_more(self, api_key: int) -> None:
        self._holding.pop(api_key, None)

    def reset_all(self, port: int) -> None:
        """Reset all connections to a port, in both directions. Their clients reconnect."""
        for sender in list(self._directions):
            if sender.of_node and sender.line[1] == port:
                sender.abort()

    def slow_down(self, port: int, delay_s: float) -> None:
        """Add a delay to all bytes to and from a node."""
        self._delay_s[port] = delay_s

    def cut(self, line: Line) -> None:
        self._cut[line] = self._cut.get(line, 0) + 1

    def mend(self, line: Line) -> None:
        self._cut[line] -= 1
        if not self._cut[line]:
            del self._cut[line]
            for sender, direction in list(self._directions.items()):
                if sender.line == line:
                    self._schedule(sender, direction)

    def mend_all(self) -> None:
        for line, count in list(self._cut.items()):
            for _ in range(count):
                self.mend(line)
        self._delay_s.clear()
        self._losing.clear()
