"""Batching of the writes to clients within one turn of the event loop (ADR 24).

A write wakes the client's process, and for a small write the wake-up costs more than everything else. If several connections
are served in one turn of the event loop, their responses are written together at its end, so that a client process wakes
once for all its responses. If only one connection is active, its response is written at once.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

AT_ONCE: Final = 64
"""Number of responses that are written at once after a turn in which only one connection had responses. After them, the
connections with responses are counted again."""
TOGETHER: Final = 8
"""Number of connections with unwritten responses at which all responses are written, even before the turn ends: the
client process handles them while the broker serves other connections."""


class Writer(Protocol):
    """A connection with responses to write."""

    def write_answers(self) -> None:
        """Pass the responses to the transport, if there are any."""
        ...


class Answers:
    """The connections of a node that have responses to write in this turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.writers: list[Writer] = []
        """Connections whose responses are not written yet."""
        self._in_turn = self._at_once = 0

    def write(self, writer: Writer) -> None:
        """Write the responses of a connection, at once or at the end of this turn."""
        if self._at_once:
            self._at_once -= 1
            writer.write_answers()
            return
        if not self._in_turn:
            self._loop.call_soon(self.end_turn)
        self._in_turn += 1
        self.writers.append(writer)
        if len(self.writers) == TOGETHER:
            self._write_all()

    def end_turn(self) -> None:
        """Write all remaining responses. The event loop calls this at the end of a turn in which requests were served."""
        if self._in_turn == 1:
            self._at_once = AT_ONCE
        self._in_turn = 0
        self._write_all()

    def _write_all(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.write_answers()
