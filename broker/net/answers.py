"""Writes to clients, several of them one behind the other.

A write wakes the client's process, which costs more than all the rest of a small write. Where many connections are served in
one turn of the loop, their answers are written at its end: the client wakes once, and finds several. A client that is alone
gets its answer at once.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

AT_ONCE: Final = 64
"""So many answers are written at once after a turn in which one connection was served; then a turn is looked at again."""
TOGETHER: Final = 8
"""So many connections are written to together: the client works on their answers while the broker serves the others."""


class Writer(Protocol):
    """A connection with answers."""

    def write_answers(self) -> None:
        """Hand them to the transport; nothing, if there are none by now."""
        ...


class Answers:
    """The connections of a node that have answers to be written in this turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.writers: list[Writer] = []
        """Those whose answers are not written yet."""
        self._in_turn = self._at_once = 0

    def write(self, writer: Writer) -> None:
        """Write the answers of a connection: at once, or at the end of this turn."""
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
        """The loop calls it once all that had come has been served."""
        if self._in_turn == 1:
            self._at_once = AT_ONCE
        self._in_turn = 0
        self._write_all()

    def _write_all(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.write_answers()
