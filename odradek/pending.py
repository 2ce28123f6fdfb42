"""Track what a command line is waiting for: each call that may block is a step.

    with waiting_for("Fetch", "localhost:9092"):
        ...                                      # blocks until the response arrives

``odradek.commands.waiting`` prints the steps to stderr after 2 s. In other programs than the command line, steps are not
tracked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import get_ident
from typing import Final, Literal, TypeVar

_T = TypeVar("_T")
Kind = Literal["group", "transactional_id"]
QUICK_S: Final = 1.0
"""Minimum duration of a slow step, in seconds. Consecutive slow steps are one wait; a quicker step ends it."""
NOTICES_S: Final = (2.0, 10.0, 60.0)
"""Durations of a wait after which a notice is printed, in seconds; later, one is printed every ``AGAIN_S``."""
AGAIN_S: Final = 300.0


@dataclass(slots=True)
class Step:
    """A step: waiting for the response to the request ``what`` from ``where``.

    If ``where`` is empty, ``what`` is a sentence. If ``what`` is empty, the step waits for a connection to ``where``.
    """

    what: str
    where: str
    since: float
    """Monotonic time at which the step began, in seconds."""

    def __str__(self) -> str:
        if not self.where:
            return self.what
        return (
            f"no response to {self.what} from {self.where} yet"
            if self.what
            else f"no connection to {self.where} yet"
        )


@dataclass(slots=True)
class Pending:
    """The steps of a command, the outermost first, and the errors after which a request was retried.

    Times are monotonic seconds.
    """

    steps: list[Step] = field(default_factory=list)
    where: str = ""
    """Address that the last request was sent to."""
    names: dict[str, Kind] = field(default_factory=dict)
    """The groups and transactional ids that the outermost step is about."""
    refusal: str = ""
    """The error of the last request that was retried; ``refusals`` is the number of such errors."""
    refusals: int = 0
    notices: int = 0
    """Number of notices ("no response to Fetch yet") that were printed for the current wait."""
    is_muted: bool = False
    """True while the command shows its progress in another way: no notices are printed."""
    progress: Callable[[], str | None] | None = None
    """Returns the progress of the command as text, if there is any. Called from another thread."""
    thread: int = field(default_factory=get_ident)
    """The thread of the command: steps of other threads are not tracked."""
    interrupted: str = ""
    """Text of the wait that Ctrl-C interrupted."""
    _before_s: float = 0.0
    """Duration of the consecutive slow steps before the current one, in seconds."""

    def begin(self, what: str, where: str, now: float) -> None:
        """Begin a step (a call that may block) inside the current steps."""
        self.where = where or self.where
        self.steps.append(Step(what, where, now))

    def end(self, now: float, *, is_interrupted: bool) -> None:
        """End the innermost step (a call that may block); ``is_interrupted``: whether Ctrl-C has ended the call."""
        if is_interrupted and not self.interrupted:
            self.interrupted = self.text(now)
        step = self.steps.pop()
        if self.steps:
            return
        took = now - step.since
        self._before_s = 0.0 if took < QUICK_S or self.notices else self._before_s + took
        self.notices = 0
        self.names.clear()
        self.refusal, self.refusals = "", 0

    def refused(self, error: str) -> None:
        """Count an error of a request that will be retried."""
        if self.steps:
            self.refusal = error
            self.refusals += 1

    def waited_s(self, now: float) -> float:
        """Seconds for which the command has been waiting; 0 without a step."""
        # The thread that prints the notices calls this too, while steps end.
        first = self.steps[:1]
        return self._before_s + now - first[0].since if first else 0.0

    def due_in_s(self, now: float) -> float:
        """Seconds until the next notice; without a step, the shortest wait after which a notice is printed."""
        if not self.steps:
            return NOTICES_S[0]
        return max(0.0, self._notice_s() - self.waited_s(now))

    def is_due(self, now: float) -> bool:
        """Whether a notice is due now."""
        return bool(self.steps) and not self.is_muted and self.waited_s(now) >= self._notice_s()

    def _notice_s(self) -> float:
        if self.notices < len(NOTICES_S):
            return NOTICES_S[self.notices]
        return NOTICES_S[-1] + (self.notices - len(NOTICES_S) + 1) * AGAIN_S

    def text(self, now: float) -> str:
        """The text of a notice about the current wait.

        For example ``waiting for 2 s: the coordinator of etl-1: COORDINATOR_NOT_AVAILABLE, asked 14 times``.
        """
        steps = [each for each in self.steps if each.what or each.where]
        step = next((each for each in steps if not each.where), steps[-1] if steps else None)
        # A retried request is pending most of the time: show its error, unless the current response is overdue too.
        if self.refusal and (step is None or now - step.since < QUICK_S):
            reason = f"{self.refusal}, asked {self.refusals} time{'s' * (self.refusals != 1)}"
        else:
            reason = str(step) if step is not None else ""
        return f"waiting for {self.waited_s(now):.0f} s: {reason}"


_of_command: list[Pending] = []


@contextmanager
def watched(pending: Pending) -> Iterator[None]:
    """Context manager: record the steps of a command in ``pending``."""
    _of_command.append(pending)
    try:
        yield
    finally:
        _of_command.pop()


def pending_now() -> Pending | None:
    """The ``Pending`` of the command that this thread runs; None in other threads and programs."""
    return _of_command[-1] if _of_command and _of_command[-1].thread == get_ident() else None


class waiting_for:  # lower case, because it is used as a function
    """Context manager for a step: a response to ``what`` from ``where``, a connection to ``where``, or a sentence."""

    __slots__ = ("_pending", "_what", "_where")

    def __init__(self, what: str, where: str = "") -> None:
        self._what, self._where = what, where

    def __enter__(self) -> None:
        self._pending = pending_now()
        if self._pending is not None:
            self._pending.begin(self._what, self._where, time.monotonic())

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if self._pending is not None:
            interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
            self._pending.end(time.monotonic(), is_interrupted=interrupted)


def from_first(items: Iterable[_T], sentence: str) -> Iterator[_T]:
    """Yield the items; until the first one arrives, a step with this sentence is pending."""
    rest = iter(items)
    with waiting_for(sentence):
        first = list(islice(rest, 1))
    yield from first
    yield from rest


def refused(error: Exception) -> None:
    """Count an error of a request that will be retried."""
    if (pending := pending_now()) is not None:
        pending.refused(str(error))


def about(name: str, kind: Kind) -> None:
    """Add a group or transactional id that the current step is about."""
    if (pending := pending_now()) is not None:
        pending.names[name] = kind
