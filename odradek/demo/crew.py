"""The worker processes: whether each is alive, and whether it is inside a transaction."""

from __future__ import annotations

import sys
from pathlib import Path

from odradek.child import Child

INSIDE = "begin"


class _Worker:
    def __init__(self, command: list[str], log: Path) -> None:
        self.last_word = ""
        self.child = Child(command, log, hears=self._hear)

    def _hear(self, line: str) -> None:
        self.last_word = line.split(" ")[0]


class Crew:
    """The worker processes. The standard error of each is written to a file."""

    def __init__(self, source: str, sink: str, directory: Path) -> None:
        self._source = source
        self._sink = sink
        self._directory = directory
        self._workers: dict[int, _Worker] = {}

    def start(self, number: int, bootstrap: str) -> None:
        command = [sys.executable, "-P", "-m", "odradek.demo.worker", bootstrap, str(number)]
        log = self._directory / f"worker-{number}.log"
        self._workers[number] = _Worker([*command, self._source, self._sink], log)

    def dead(self) -> list[int]:
        """Numbers of the workers that have ended, because they were killed or gave up."""
        return [number for number, worker in self._workers.items() if not worker.child.is_running]

    def kill(self, number: int) -> bool:
        """Kill a worker with SIGKILL. Returns whether it was in a transaction, by the last line that it printed."""
        worker = self._workers[number]
        worker.child.kill()
        return worker.last_word == INSIDE

    def complaints(self, number: int) -> str:
        """The last line that a worker wrote to its error output."""
        return self._workers[number].child.complaint()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.child.kill()
        self._workers.clear()
