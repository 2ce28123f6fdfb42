"""Replacement for the transport of a connection while its node is paused: nothing is sent before the node is resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast


def paused(transport: asyncio.Transport, *, reads: bool) -> asyncio.Transport:
    """Return a replacement for the transport, which buffers writes until `resumed`."""
    return cast(asyncio.Transport, PausedTransport(transport, reads=reads))


def resumed(transport: asyncio.Transport) -> asyncio.Transport:
    """Send the writes that were buffered during the pause, and return the original transport."""
    stand_in = cast(PausedTransport, transport)
    stand_in.resume()
    return stand_in.real


class PausedTransport:
    """Buffers writes in place of a connection's transport. The client sees an open connection."""

    def __init__(self, real: asyncio.Transport, *, reads: bool) -> None:
        self.real = real
        self._reads = reads
        self._written: list[bytes] = []
        self._closes = False
        if reads:
            real.pause_reading()

    def resume(self) -> None:
        """Send the buffered writes, and then close or start reading, if that was requested during the pause."""
        if self.real.is_closing():
            return
        if self._written:
            self.real.write(b"".join(self._written))
        if self._closes:
            self.real.close()
        elif self._reads:
            self.real.resume_reading()

    # -- as a transport -----------------------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        self._written.append(bytes(data))

    def writelines(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._written += map(bytes, chunks)

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def is_closing(self) -> bool:
        return self._closes or self.real.is_closing()

    def close(self) -> None:
        self._closes = True

    def abort(self) -> None:
        """Abort at once, also during the pause, since the node is killed."""
        self.real.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.real.get_extra_info(name, default)
