"""Writes log lines: a bounded queue, and a thread that writes to the file or pipe.

A closed reader (EPIPE), a full disk (ENOSPC) or a pipe that is not read must not affect the event loop: `put` neither blocks
nor raises. Lines that do not fit into the queue, or cannot be written, are counted. The count is logged when a line can be
written again.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Final

LINES_QUEUED_MAX: Final = 10_000
BYTES_QUEUED_MAX: Final = 8 * 1024 * 1024
# Bytes that are written with one system call, if several lines are queued.
WRITE_BYTES: Final = 64 * 1024
# Seconds for which the end of the process waits for queued lines.
CLOSE_S_MAX: Final = 1.0
# Delay of the lines that report suppressed lines.
SAY_SUPPRESSED_AFTER_S: Final = 5.0

Write = Callable[[bytes], int]
"""Writes as much of the data as possible, and returns the number of bytes written. May block, and does not raise."""
Say = Callable[[str, dict[str, object]], bytes]
"""Renders a line, including its line end, from an event and its fields."""
Suppressed = Callable[[], list[tuple[str, dict[str, object]]]]
"""Returns events and fields that report the lines suppressed by the rate limit."""


class _Mark(Enum):
    DROPPED = "lines are missing here"
    SUPPRESSED = "the rate limit has left lines out"
    END = "nothing comes any more"


class LogWriter:
    """Writes lines in order. ``put`` may be called in any thread, destructor or signal handler."""

    def __init__(
        self,
        write: Write,
        say: Say,
        suppressed: Suppressed = list,
        *,
        lines_max: int = LINES_QUEUED_MAX,
        bytes_max: int = BYTES_QUEUED_MAX,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._say = say
        self._suppressed = suppressed
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._monotonic_s = monotonic_s
        # Reentrant, since a destructor may log while the same thread is in `put`: SimpleQueue.put and RLock allow that.
        self._queue: SimpleQueue[bytes | _Mark] = SimpleQueue()
        self._lock = threading.RLock()
        self._lines = 0
        self._bytes = 0
        self._dropped = 0
        self._is_closed = False
        # Used by the writing thread only.
        self._missing = 0
        self._suppressed_due_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    # ---- called by all threads

    def put(self, line: bytes) -> None:
        """Queue one line, including its line end; count it as dropped if the queue is full."""
        with self._lock:
            if self._lines < self._lines_max and self._bytes + len(line) <= self._bytes_max:
                self._lines += 1
                self._bytes += len(line)
                self._queue.put(line)
                return
            if not self._dropped:
                self._queue.put(_Mark.DROPPED)
            self._dropped += 1

    def say_suppressed_later(self) -> None:
        """Make the thread log the counts of suppressed lines after a delay, in case no later line reports them."""
        self._queue.put(_Mark.SUPPRESSED)

    def close(self, timeout_s: float = CLOSE_S_MAX) -> bool:
        """Wait until the queued lines are written. Returns False if that takes longer than ``timeout_s``."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(_Mark.END)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- called by the writing thread

    def _run(self) -> None:
        mark: _Mark | None = None
        while mark is not _Mark.END:
            lines, mark = self._take()
            if lines:
                self._write_lines(lines)
                with self._lock:
                    self._lines -= len(lines)
                    self._bytes -= sum(map(len, lines))
            if mark is _Mark.DROPPED:
                with self._lock:
                    dropped, self._dropped = self._dropped, 0
                self._missing += dropped
                self._write_lines([])
            elif mark is _Mark.SUPPRESSED and self._suppressed_due_s is None:
                self._suppressed_due_s = self._monotonic_s() + SAY_SUPPRESSED_AFTER_S
            if self._suppressed_due_s is not None and (
                mark is _Mark.END or self._monotonic_s() >= self._suppressed_due_s
            ):
                self._suppressed_due_s = None
                self._write_lines([self._say(event, fields) for event, fields in self._suppressed()])

    def _take(self) -> tuple[list[bytes], _Mark | None]:
        """Remove about ``WRITE_BYTES`` of lines from the queue, or the lines up to the next `_Mark` and the mark.

        Returns (lines, mark or None). Blocks until the queue has an entry, or a report of suppressed lines is due.
        """
        lines: list[bytes] = []
        size = 0
        wait_s = None
        if self._suppressed_due_s is not None:
            wait_s = max(0.0, self._suppressed_due_s - self._monotonic_s())
        try:
            item = self._queue.get(timeout=wait_s)
            while not isinstance(item, _Mark):
                lines.append(item)
                size += len(item)
                if size >= WRITE_BYTES:
                    return lines, None
                item = self._queue.get_nowait()
        except Empty:
            return lines, None
        return lines, item

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        """Write the number of dropped lines, if any, and the lines. Lines that cannot be written count as dropped."""
        note = self._say("log lines dropped", {"lines": self._missing}) if self._missing else b""
        data = b"".join((note, *lines))
        if not data:
            return
        written = self._write(data)
        if written >= len(note):
            self._missing = 0
        end = len(note)
        for line in lines:
            end += len(line)
            self._missing += end > written


class Descriptor:
    """Writes with ``os.write``, since ``sys.stdout`` has a lock for which the interpreter would wait at its exit."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._line_is_cut = False

    def __call__(self, data: bytes) -> int:
        """Write as described for ``Write``. If the last call wrote only a part of a line, begin with a line break."""
        begin = b"\n" if self._line_is_cut else b""
        view = memoryview(begin + data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    waiting = select.poll()
                    waiting.register(self._fd, select.POLLOUT)
                    waiting.poll()
        except OSError:
            written = max(0, len(data) - len(view))
            self._line_is_cut = (
                data[written - 1 : written] != b"\n" if written else bool(view) and self._line_is_cut
            )
            return written
        self._line_is_cut = False
        return len(data)
