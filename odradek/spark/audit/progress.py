"""What an audit is at, on a terminal; nothing where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from odradek.spark.audit.tables import Say


@contextmanager
def shown(console: Console | None = None) -> Iterator[Say]:
    """A function that is told each step: the one under way turns, those before it stay with what they took."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, get_time=time.monotonic) as progress:
        under_way: list[int] = []

        def say(step: str) -> None:
            if under_way:
                progress.update(under_way[-1], completed=1)  # type: ignore[arg-type]
            under_way.append(progress.add_task(step, total=1))

        yield say
        if under_way:
            progress.update(under_way[-1], completed=1)  # type: ignore[arg-type]
