"""Buffers for big frames, used again: a fresh megabyte for each costs more than all that is done with its bytes."""

from __future__ import annotations

from collections import deque
from typing import Final

# Such a buffer starts no larger than this (a batch of the default size fits) and doubles when it is full: who
# announces 100 MB and sends nothing costs neither the memory nor the time to clear it.
FRAME_BUFFER_START_BYTES: Final = 1024 * 1024 + 64 * 1024
# For a client that has not said who it is: it may announce a token of half a megabyte on each of its connections.
TOKEN_BUFFER_START_BYTES: Final = 4 * 1024
SPARES_MAX: Final = 4
SPARE_BYTES_MAX: Final = 2 * FRAME_BUFFER_START_BYTES
# Smaller ones come from the allocator's own heap and cost little.
LARGEST_SMALL_BYTES: Final = 128 * 1024


class FrameBuffers:
    """At most ``SPARES_MAX`` served buffers of a bounded size. One with an exported view is not reused."""

    __slots__ = ("_served", "_start_bytes")

    def __init__(self, start_bytes: int = FRAME_BUFFER_START_BYTES) -> None:
        self._start_bytes = start_bytes
        self._served: deque[bytearray] = deque(maxlen=SPARES_MAX)

    def take(self, size: int) -> bytearray:
        """A buffer to begin a frame of ``size`` bytes in. Its content is whatever was there before."""
        if size > LARGEST_SMALL_BYTES:
            for _ in range(len(self._served)):
                buffer = self._served.popleft()
                if _is_free(buffer):
                    return buffer
                self._served.append(buffer)
        return bytearray(min(size, self._start_bytes))

    def give_back(self, buffer: bytearray) -> None:
        """Its frame is served. The loop and what was decoded may still look into it for a while."""
        if LARGEST_SMALL_BYTES < len(buffer) <= SPARE_BYTES_MAX:
            self._served.append(buffer)


TOKEN_BUFFERS: Final = FrameBuffers(TOKEN_BUFFER_START_BYTES)
"""Of clients that have not logged in."""


class PartialFrame:
    """A frame that has arrived in part; the kernel puts the rest straight into its buffer."""

    __slots__ = ("_filled", "buffer", "size")

    def __init__(self, buffers: FrameBuffers, size: int, begun: memoryview) -> None:
        self.buffer = buffers.take(size)
        self.buffer[: len(begun)] = begun
        self.size, self._filled = size, len(begun)

    def room(self) -> memoryview:
        """Where to put what arrives next."""
        buffer, filled = self.buffer, self._filled
        if filled == len(buffer):
            buffer.extend(bytes(min(self.size - len(buffer), len(buffer))))
        return memoryview(buffer)[filled : self.size]

    def received(self, nbytes: int) -> memoryview | None:
        """So many bytes more are there; the frame, once it is whole."""
        self._filled += nbytes
        return memoryview(self.buffer)[: self.size].toreadonly() if self._filled == self.size else None


def _is_free(buffer: bytearray) -> bool:
    """Is there no view of it? Python refuses to resize a buffer that has one."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
