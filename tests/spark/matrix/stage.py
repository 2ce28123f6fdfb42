"""Points of the sink at which a process stops until the test kills it or lets it go on.

A directory (``ODRADEK_MATRIX_STAGE``) has a file for each query that the test waits for, which says where. The process
that gets there takes the file for itself, by renaming it, and stops: SIGSTOP, so that nothing of it goes on behind. With it
standing there, what dies and when is no matter of luck.

    stage = Stage(directory)
    stage.set("payments", "decided", batch=3)
    pid = stage.standing("payments")       # None until a process stands there
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

    # ---- the harness's side

    def set(self, query: str, point: str, batch: int = 0, nth: int = 1) -> None:
        """The process that takes this step as the nth of a batch from this one on stops there. The last call counts."""
        self.clear(query)
        written = self._directory / f"{query}.new"
        written.write_text(json.dumps({"point": point, "batch": batch, "nth": nth}))
        written.rename(self._directory / query)

    def is_set(self, query: str) -> bool:
        """No process has reached it yet."""
        return (self._directory / query).exists()

    def clear(self, query: str) -> None:
        for each in self._directory.glob(f"{query}.*"):
            each.unlink(missing_ok=True)
        (self._directory / query).unlink(missing_ok=True)

    def standing(self, query: str) -> int | None:
        """The process that stands at its point."""
        for each in self._directory.glob(f"{query}.at-*"):
            pid = int(each.suffix.removeprefix(".at-"))
            if state_of(pid) in (psutil.STATUS_STOPPED, ""):
                return pid
        return None

    # ---- the sink's side

    def reached(self, query: str, point: str, batch: int | None) -> None:
        """Called at every point, without a batch where none is known. Returns at once, or when let go on."""
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
        """Of this call among those of all processes."""
        file = os.open(self._directory / f"{query}.count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)


def here() -> Stage | None:
    """The stage of this process, if there is one."""
    directory = os.environ.get(VARIABLE)
    return None if directory is None else Stage(Path(directory))
