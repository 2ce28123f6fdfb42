"""The programs of the pipeline: each a process group of its own, which is killed as a whole and started again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odradek.child import Child

Hears = Callable[[list[str]], None]


class Program:
    """A program of ours, by its module. What it says is heard word by word; its complaints are kept in a file."""

    def __init__(self, module: str, arguments: Sequence[object], directory: Path, hears: Hears) -> None:
        self.name = module.rpartition(".")[2]
        # -P: modules in the user's directory that happen to have the names of others cannot hurt it.
        self._command = [sys.executable, "-P", "-m", module, *map(str, arguments)]
        self._log = directory / f"{self.name}.log"
        self._hears = hears
        self._child: Child | None = None

    def start(self, environment: Mapping[str, str] = {}) -> None:
        if self._child is not None:
            self._child.close_input()
        self._child = Child(
            self._command,
            self._log,
            environment={**os.environ, **environment},
            hears=lambda line: self._hears(line.split()),
        )

    @property
    def _started(self) -> Child:
        assert self._child is not None, "the program was never started"
        return self._child

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return None if self._child is None else self._child.exit_code

    def tell(self, line: object) -> None:
        """A line on its standard input; a program that has ended does not read it."""
        self._started.tell(line)

    def kill(self) -> None:
        """kill -9, with the JVM that it may have started."""
        if self._child is not None:
            self._child.kill()

    def complaint(self) -> str:
        """The last line that says more than where it was, of what it wrote to its error output."""
        return self._started.complaint()
