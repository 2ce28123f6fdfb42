"""The output of the demo: progress bars on a terminal, plain lines elsewhere, and a short report at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek.printable import printable, printable_lines
from odradek.spark.pipeline.proof import evidence

if TYPE_CHECKING:
    from odradek.spark.pipeline.verdict import Outcome

PLAIN_EVERY_S = 5.0
PLAIN_WIDTH = 160


class Show:
    def __init__(self, total: int) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._began = self._said = time.monotonic()
        self._total = total
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[beside]}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._written = self._progress.add_task("flights written", total=total, beside="")
        self._read = self._progress.add_task("flights read", total=total, beside="")

    def __enter__(self) -> Show:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/dim]  {escape(printable(line))}")

    def progress(self, written: int, read: int, batches: int, rows_out: int, kills: int) -> None:
        beside = f"{batches} micro-batches, {rows_out:,} statistics, {kills} kills"
        self._progress.update(self._written, completed=min(written, self._total))
        self._progress.update(self._read, completed=read, beside=beside)
        if not self._console.is_terminal and time.monotonic() - self._said > PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.say(f"{written:,} of {self._total:,} flights written, {read:,} read; {beside}")

    def report(self, rows: Mapping[str, str], outcome: Outcome) -> None:
        self._progress.stop()
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in rows.items():
            table.add_row(name, escape(printable(value)))
        table.add_row("seconds", f"{time.monotonic() - self._began:.1f}")
        self._console.print(table)
        difference, audit = outcome.difference, outcome.report
        if audit is None:
            self._console.print("no audit: --data-dir does not name the segment files", style="dim")
        else:
            self._console.print(
                escape(printable(audit.verdict)), style="red" if audit.violations else "green"
            )
            for line in evidence(audit):
                self._console.print(escape(printable(line)))
        self._console.print(difference.summary, style="bold red" if difference else "bold green")

    def fail(self, line: str) -> None:
        self._progress.stop()
        print(printable_lines(line), file=sys.stderr)
