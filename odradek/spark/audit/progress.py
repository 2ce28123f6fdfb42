"""The progress of an audit on stderr: its steps, and for the current step the number of Spark tasks that are done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

POLL_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
"""Interval between progress lines of a long step, in seconds, if stderr is not a terminal."""

Tasks = tuple[int, int]
"""Number of tasks that are done, and of all tasks, in the stages that Spark is running."""


class Bars:
    """Progress on a terminal: a spinner for the current step, and the earlier steps with the time that they took."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._step: Any = None
        self._total = 1

    def __call__(self, step: str) -> None:
        self.end()
        self._step, self._total = self._progress.add_task(step, total=None), 1

    def look(self, tasks: Tasks) -> None:
        done, total = tasks
        if self._step is not None and total:
            self._total = total
            self._progress.update(self._step, completed=min(done, total - 1), total=total)

    def end(self) -> None:
        if self._step is not None:
            self._progress.update(self._step, completed=self._total, total=self._total)


class Lines:
    """Progress if stderr is not a terminal: a line for each step, and more lines for a step that takes long."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._step, self._said = "", clock()

    def __call__(self, step: str) -> None:
        self._step, self._said = step, self._clock()
        self._console.print(step, highlight=False, markup=False)

    def look(self, tasks: Tasks) -> None:
        done, total = tasks
        if total and self._clock() - self._said >= LINE_EVERY_S:
            self._said = self._clock()
            self._console.print(f"{self._step}: {done} of {total} tasks", highlight=False, markup=False)


Shown = Bars | Lines
"""Progress on stderr: `audit` calls it with each step, and `watched` passes the tasks of this step to ``look``."""


@contextmanager
def shown(console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[Shown]:
    """Context manager for an object that shows each step on stderr."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield Lines(console, clock)
        return
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, get_time=clock) as progress:
        bars = Bars(progress)
        yield bars
        bars.end()


@contextmanager
def watched(session: Any, steps: Shown) -> Iterator[None]:
    """Context manager: pass the number of finished tasks to ``steps`` twice a second.

    Spark Connect has no status tracker: with it only the steps are shown.
    """
    tracker = _tracker(session)
    if tracker is None:
        yield
        return
    over = threading.Event()

    def poll() -> None:
        while not over.wait(POLL_S):
            steps.look(tasks(tracker))

    thread = threading.Thread(target=poll, name="audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tracker(session: Any) -> Any:
    try:
        return session.sparkContext.statusTracker()
    except Exception:  # PySparkAttributeError, or another class in other versions
        return None


def tasks(tracker: Any) -> Tasks:
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
