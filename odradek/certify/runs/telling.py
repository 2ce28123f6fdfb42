"""Progress lines for the user about a run without faults: the job's first output lines, its exits, what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from odradek.certify.jobs.job import Exit

LINES_MAX: Final = 5
"""Number of first lines of each instance that are printed."""
EVERY_S: Final = 5.0
"""Interval after which a line names the condition that the run waits for, in seconds."""
Tell = Callable[[str], None]


class Telling:
    """The progress lines of one run. The caller polls `look`."""

    def __init__(
        self, tell: Tell, directory: Path, exits: Sequence[Exit], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``directory`` contains the output of each instance in ``job-N.log``; the job appends to ``exits``."""
        self._tell_user, self._directory, self._exits, self._now_s = tell, directory, exits, now_s
        self._read: dict[Path, int] = {}
        """Number of bytes read of each log."""
        self._lines: dict[Path, int] = {}
        """Number of lines printed of each log."""
        self._ends = 0
        self._told = now_s()

    def look(self, waits_for: Callable[[], str]) -> None:
        """Print new lines. ``waits_for`` is called only if there was nothing else to print for `EVERY_S`."""
        for path in sorted(self._directory.glob("job-*.log")):
            self._pass_on(path)
        for each in self._exits[self._ends :]:
            self._ends += 1
            self._tell(str(each))
        if self._now_s() - self._told >= EVERY_S:
            self._tell(waits_for())

    def _pass_on(self, path: Path) -> None:
        if self._lines.get(path, 0) >= LINES_MAX:
            return
        with path.open("rb") as log:
            log.seek(self._read.get(path, 0))
            found = log.read(1 << 16)
        whole, _, _ = found.rpartition(b"\n")
        if not whole:
            return
        self._read[path] = self._read.get(path, 0) + len(whole) + 1
        for line in whole.decode("utf-8", "replace").splitlines()[: LINES_MAX - self._lines.get(path, 0)]:
            self._lines[path] = self._lines.get(path, 0) + 1
            self._tell(f"  {path.stem}: {line[:200]}")

    def _tell(self, text: str) -> None:
        self._told = self._now_s()
        self._tell_user(text)
