"""What a user is told of a run without faults: the first lines of the job, its ends, and what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from odradek.certify.jobs.job import Exit

LINES_MAX: Final = 5
"""First lines of each instance that are passed on."""
EVERY_S: Final = 5.0
"""How long a user is told nothing."""
Tell = Callable[[str], None]


class Telling:
    """Of one run. `look` is to be called all the time."""

    def __init__(
        self, tell: Tell, directory: Path, exits: Sequence[Exit], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """The instances print to ``job-N.log`` in the directory; ``exits`` grows."""
        self._tell_user, self._directory, self._exits, self._now_s = tell, directory, exits, now_s
        self._read: dict[Path, int] = {}
        """How many bytes of each log."""
        self._lines: dict[Path, int] = {}
        """How many lines of each log were passed on."""
        self._ends = 0
        self._told = now_s()

    def look(self, waits_for: Callable[[], str]) -> None:
        """``waits_for`` is asked only when nothing else was to be told for a while."""
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
