"""The output of the demo: a progress bar on a terminal, otherwise plain lines, and a short report at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.certify.judging.comparison import Difference

PLAIN_EVERY_S = 5.0


class Show:
    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._began = self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("flights processed"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("flights", total=None)

    def __enter__(self) -> Show:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {line}")

    def progress(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
        if not self._console.is_terminal and time.monotonic() - self._said > PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.say(f"{done:,} of {total:,} flights processed")

    def report(self, rows: Mapping[str, str], difference: Difference) -> None:
        self._progress.stop()
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in rows.items():
            table.add_row(name, value)
        table.add_row("seconds", f"{time.monotonic() - self._began:.1f}")
        self._console.print(table)
        self._console.print(difference.summary, style="bold red" if difference else "bold green")

    def fail(self, line: str) -> None:
        self._progress.stop()
        print(line, file=sys.stderr)
