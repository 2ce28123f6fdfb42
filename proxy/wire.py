"""The stream of one upstream connection, split into complete response frames."""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import Final, Protocol, cast

from broker.loop.transports import WRITELINES_NEVER_PAUSES
from broker.net.frame_buffers import FrameBuffers

LANDING_BYTES: Final = 64 * 1024
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest size of a response. Brokers send up to 55 MiB (fetch.max.bytes) plus a batch, unless configured otherwise."""
LARGE_READ_BYTES: Final = 256 * 1024
"""Largest read of a response. A connection that has read so many bytes waits for its next turn."""
LARGE_READS_PER_TURN: Final = 4
"""Number of large reads of all connections in one turn of the event loop. One megabyte takes a quarter of a millisecond."""
SIZE: Final = Struct(">i")

Frame = bytes | memoryview


class WireOwner(Protocol):
    """The object that receives the events of one `Wire`."""

    def received(self, frame: Frame) -> None:
        """Called with a response without its size field. Its bytes do not change while there is a view of them."""
        ...

    def lost(self, reason: str) -> None: ...

    def drained(self) -> None:
        """Called when the socket can take bytes again."""
        ...


class Buffers:
    """Buffers of all wires of the proxy. They can be shared, as received bytes are processed without an await."""

    __slots__ = ("_waiting", "frames", "landing")

    def __init__(self) -> None:
        self.landing = memoryview(bytearray(LANDING_BYTES))
        self.frames = FrameBuffers(LARGE_READ_BYTES)
        self._waiting: deque[Wire] = deque()

    def wait_for_turn(self, wire: Wire) -> None:
        """Pause reading from a wire until its next turn: large responses to many clients would block everything else."""
        wire.pause_reading()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.append(wire)

    def _turn(self) -> None:
        for _ in range(min(LARGE_READS_PER_TURN, len(self._waiting))):
            self._waiting.popleft().resume_reading()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)


class Wire(asyncio.BufferedProtocol):
    """One TCP or TLS connection to a node of the upstream."""

    __slots__ = ("_buffers", "_filled", "_frame", "_kept", "_owner", "_size", "is_full", "transport")

    def __init__(self, owner: WireOwner, buffers: Buffers) -> None:
        self._owner = owner
        self._buffers = buffers
        self._kept = b""
        self._frame: bytearray | None = None  # a frame that is still incomplete
        self._size = self._filled = 0
        self.transport: asyncio.Transport | None = None
        self.is_full = False
        """Whether the socket can take no more bytes now."""

    # -- called by the transport ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.transport = None
            self._owner.lost("closed the connection" if exc is None else f"ended the connection: {exc}")

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is None:
            return self._buffers.landing
        if self._filled == len(frame):
            frame.extend(bytes(min(self._size - len(frame), len(frame))))
        return memoryview(frame)[self._filled : min(self._size, self._filled + LARGE_READ_BYTES)]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == self._size:
                frame, self._frame = self._frame, None
                self._owner.received(memoryview(frame)[: self._size].toreadonly())
                # The buffer is not used again while there is a view of it.
                self._buffers.frames.give_back(frame)
            if nbytes >= LARGE_READ_BYTES:
                self._buffers.wait_for_turn(self)
            return
        arrived = self._buffers.landing[:nbytes]
        if self._kept:
            kept, self._kept = self._kept, b""
            self._cut(memoryview(kept + arrived))
        else:
            self._cut(arrived)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._owner.drained()

    # -- frames -----------------------------------------------------------------------------------------------------

    def _cut(self, data: memoryview) -> None:
        position, end = 0, len(data)
        while end - position >= SIZE.size and self.transport is not None:
            (size,) = SIZE.unpack_from(data, position)
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                self._end(f"sent a response of {size} bytes")
                return
            start = position + SIZE.size
            position = start + size
            if position > end:
                begun = data[start:]
                self._frame = self._buffers.frames.take(size)
                self._size, self._filled = size, len(begun)
                self._frame[: len(begun)] = begun
                if size >= LARGE_READ_BYTES:
                    self._buffers.wait_for_turn(self)
                return
            self._owner.received(bytes(data[start:position]))
        self._kept = bytes(data[position:])

    def _end(self, reason: str) -> None:
        self.close()
        self._owner.lost(reason)

    # -- called by the owner ----------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Send a request, preceded by its size."""
        transport = self.transport
        if transport is None:
            return
        size = SIZE.pack(len(frame))
        if len(frame) < LANDING_BYTES or WRITELINES_NEVER_PAUSES:
            transport.write(b"".join((size, frame)))
        else:
            transport.writelines((size, frame))

    def pause_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def close(self) -> None:
        """Close the connection after sending what was written. The owner gets no further calls."""
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()
