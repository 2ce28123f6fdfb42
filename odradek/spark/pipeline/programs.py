"""The programs of the pipeline: each is a process group of its own, which is killed as a whole and started again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odradek.child import Child

Hears = Callable[[list[str]], None]


class Program:
    """A Python module run as a program. ``hears`` is called with the words of each output line; stderr goes to a file."""

    def __init__(self, module: str, arguments: Sequence[object], directory: Path, hears: Hears) -> None:
        self.name = module.rpartition(".")[2]
        # -P: do not import modules of the same name from the user's directory.
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
        """The exit code, negative for a signal; None while the program runs."""
        return None if self._child is None else self._child.exit_code

    def tell(self, line: object) -> None:
        """Write a line to the program's standard input. Ignored if the program has ended."""
        self._started.tell(line)

    def kill(self) -> None:
        """Send SIGKILL to the program, and to the JVM that it may have started."""
        if self._child is not None:
            self._child.kill()

    def complaint(self) -> str:
        """The last line of the program's error output that is not part of a Java stack trace."""
        return self._started.complaint()
