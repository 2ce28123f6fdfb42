"""Points of the sink at which a process stops until the test kills it or makes it continue.

A directory (``ODRADEK_MATRIX_STAGE``) has a file for each query that the test waits for. The file names the point. The
process that reaches the point claims the file by renaming it, and stops itself with SIGSTOP, so that none of its threads
continues. While it is stopped, the test decides which processes are killed, and when.

    stage = Stage(directory)
    stage.set("payments", "decided", batch=3)
    pid = stage.standing("payments")       # None until a process has stopped there
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil

from tests.spark.matrix.processes import state_of

VARIABLE = "ODRADEK_MATRIX_STAGE"


class Stage:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self._directory)}

    # ---- the test's side

    def set(self, query: str, point: str, batch: int = 0, nth: int = 1) -> None:
        """Make a process of ``query`` stop when it reaches the point for the nth time, in ``batch`` or a later one.

        Visits by all processes of the query are counted. The point replaces an earlier point of the query.
        """
        self.clear(query)
        written = self._directory / f"{query}.new"
        written.write_text(json.dumps({"point": point, "batch": batch, "nth": nth}))
        written.rename(self._directory / query)

    def is_set(self, query: str) -> bool:
        """Whether a point is set for the query that no process has reached yet."""
        return (self._directory / query).exists()

    def clear(self, query: str) -> None:
        for each in self._directory.glob(f"{query}.*"):
            each.unlink(missing_ok=True)
        (self._directory / query).unlink(missing_ok=True)

    def standing(self, query: str) -> int | None:
        """Process id of the process of ``query`` that has stopped at its point (or died there), or None."""
        for each in self._directory.glob(f"{query}.at-*"):
            pid = int(each.suffix.removeprefix(".at-"))
            if state_of(pid) in (psutil.STATUS_STOPPED, ""):
                return pid
        return None

    # ---- the sink's side

    def reached(self, query: str, point: str, batch: int | None) -> None:
        """Stop this process if the query's point is ``point`` and is due; return when the process is continued.

        Every process calls this at every point, with batch None if the batch is unknown.
        """
        try:
            set_ = json.loads((self._directory / query).read_text())
        except OSError:
            return
        comes_to_it = set_["point"] == point and (batch is None or batch >= set_["batch"])
        if not comes_to_it or self._count(query) != set_["nth"]:
            return
        with contextlib.suppress(OSError):
            (self._directory / query).rename(self._directory / f"{query}.at-{os.getpid()}")
            os.kill(os.getpid(), signal.SIGSTOP)

    def _count(self, query: str) -> int:
        """Count this visit of the query's point; return the number of visits so far by all processes of the query."""
        file = os.open(self._directory / f"{query}.count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)


def here() -> Stage | None:
    """The stage of this process, or None if it has none."""
    directory = os.environ.get(VARIABLE)
    return None if directory is None else Stage(Path(directory))
