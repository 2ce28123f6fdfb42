"""Reusable buffers for large frames: allocating a new megabyte for each frame costs more than processing its bytes."""

from __future__ import annotations

from collections import deque
from typing import Final

# A buffer starts with at most this size, which fits a batch of the default size, and doubles when it is full. A client that
# announces 100 MB and sends nothing therefore costs neither the memory nor the time to clear it.
FRAME_BUFFER_START_BYTES: Final = 1024 * 1024 + 64 * 1024
# For clients that are not authenticated: they may announce a token of half a megabyte on each of their connections.
TOKEN_BUFFER_START_BYTES: Final = 4 * 1024
SPARES_MAX: Final = 4
SPARE_BYTES_MAX: Final = 2 * FRAME_BUFFER_START_BYTES
# Smaller buffers come from the allocator's own heap, and are cheap.
LARGEST_SMALL_BYTES: Final = 128 * 1024


class FrameBuffers:
    """A pool of at most ``SPARES_MAX`` used buffers of limited size. A buffer is reused when no view of it exists."""

    __slots__ = ("_served", "_start_bytes")

    def __init__(self, start_bytes: int = FRAME_BUFFER_START_BYTES) -> None:
        self._start_bytes = start_bytes
        self._served: deque[bytearray] = deque(maxlen=SPARES_MAX)

    def take(self, size: int) -> bytearray:
        """Return a buffer to receive a frame of ``size`` bytes. Its content is undefined.

        The buffer may be shorter than the frame: `PartialFrame` enlarges a full buffer.
        """
        if size > LARGEST_SMALL_BYTES:
            for _ in range(len(self._served)):
                buffer = self._served.popleft()
                if _is_free(buffer):
                    return buffer
                self._served.append(buffer)
        return bytearray(min(size, self._start_bytes))

    def give_back(self, buffer: bytearray) -> None:
        """Put the buffer of a served frame into the pool. The event loop and decoded objects may still have views of it."""
        if LARGEST_SMALL_BYTES < len(buffer) <= SPARE_BYTES_MAX:
            self._served.append(buffer)


TOKEN_BUFFERS: Final = FrameBuffers(TOKEN_BUFFER_START_BYTES)
"""Buffers for frames of clients that are not authenticated yet; shared by all nodes of the process."""


class PartialFrame:
    """A partly received frame. The kernel writes the rest directly into its buffer."""

    __slots__ = ("_filled", "buffer", "size")

    def __init__(self, buffers: FrameBuffers, size: int, begun: memoryview) -> None:
        self.buffer = buffers.take(size)
        self.buffer[: len(begun)] = begun
        self.size, self._filled = size, len(begun)

    def room(self) -> memoryview:
        """The part of the buffer to receive into next."""
        buffer, filled = self.buffer, self._filled
        if filled == len(buffer):
            buffer.extend(bytes(min(self.size - len(buffer), len(buffer))))
        return memoryview(buffer)[filled : self.size]

    def received(self, nbytes: int) -> memoryview | None:
        """Record ``nbytes`` more bytes. Returns the frame once it is complete, else None."""
        self._filled += nbytes
        return memoryview(self.buffer)[: self.size].toreadonly() if self._filled == self.size else None


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of the buffer exists. Python refuses to resize a buffer of which there is a view."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
