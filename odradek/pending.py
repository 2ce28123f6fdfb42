"""What a command waits for: each thing that may block is a step, and nothing but a command line asks for them.

    with waiting_for("Fetch", "localhost:9092"):
        ...                                      # blocks until the response is there

``odradek.commands.waiting`` writes them to stderr after 2 s. In a program that is no command they cost next to nothing.
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
"""A step that took less was no wait: the next one counts from 0. Several slow ones, one after the other, are one wait."""
NOTICES_S: Final = (2.0, 10.0, 60.0)
"""After such a wait it is told; then each ``AGAIN_S``."""
AGAIN_S: Final = 300.0


@dataclass(slots=True)
class Step:
    """``what`` was asked of ``where``; without ``where`` a sentence, without ``what`` a connection."""

    what: str
    where: str
    since: float
    """Monotonic, in seconds."""

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
    """The steps of a command, the outermost first, and what was retried inside of them. Times are monotonic seconds."""

    steps: list[Step] = field(default_factory=list)
    where: str = ""
    """Where the last request went."""
    names: dict[str, Kind] = field(default_factory=dict)
    """The groups and transactional ids that the outermost step is about."""
    refusal: str = ""
    """The last error that was retried, and how often one was."""
    refusals: int = 0
    told: int = 0
    """How many notices there were of this wait."""
    hushed: bool = False
    """Another part of the command shows its progress."""
    progress: Callable[[], str | None] | None = None
    """How far the command has got, if it can tell; called from another thread."""
    thread: int = field(default_factory=get_ident)
    """That of the command: what others ask meanwhile is none of its steps."""
    interrupted: str = ""
    """What was waited for when Ctrl-C came."""
    _before_s: float = 0.0
    """How long the slow steps before this one took."""

    def begin(self, what: str, where: str, now: float) -> None:
        """Another step, inside of those that have begun."""
        self.where = where or self.where
        self.steps.append(Step(what, where, now))

    def end(self, now: float, *, is_interrupted: bool) -> None:
        """The innermost step is over."""
        if is_interrupted and not self.interrupted:
            self.interrupted = self.text(now)
        step = self.steps.pop()
        if self.steps:
            return
        took = now - step.since
        self._before_s = 0.0 if took < QUICK_S or self.told else self._before_s + took
        self.told = 0
        self.names.clear()
        self.refusal, self.refusals = "", 0

    def refused(self, error: str) -> None:
        """A request that will be repeated got this error."""
        if self.steps:
            self.refusal = error
            self.refusals += 1

    def waited_s(self, now: float) -> float:
        """How long the command has been waiting; 0 where no step is under way."""
        # The teller's thread asks too, while steps end.
        first = self.steps[:1]
        return self._before_s + now - first[0].since if first else 0.0

    def due_in_s(self, now: float) -> float:
        """When to look next: at the time of the next notice; where nothing is under way, the earliest that there can be."""
        if not self.steps:
            return NOTICES_S[0]
        return max(0.0, self._notice_s() - self.waited_s(now))

    def is_due(self, now: float) -> bool:
        """It is time for a notice."""
        return bool(self.steps) and not self.hushed and self.waited_s(now) >= self._notice_s()

    def _notice_s(self) -> float:
        if self.told < len(NOTICES_S):
            return NOTICES_S[self.told]
        return NOTICES_S[-1] + (self.told - len(NOTICES_S) + 1) * AGAIN_S

    def text(self, now: float) -> str:
        """``waiting for 2 s: the coordinator of etl-1: COORDINATOR_NOT_AVAILABLE, asked 14 times``"""
        steps = [each for each in self.steps if each.what or each.where]
        step = next((each for each in steps if not each.where), steps[-1] if steps else None)
        # A retried request is pending again most of the time: the error says more, unless this response is overdue.
        if self.refusal and (step is None or now - step.since < QUICK_S):
            reason = f"{self.refusal}, asked {self.refusals} time{'s' * (self.refusals != 1)}"
        else:
            reason = str(step) if step is not None else ""
        return f"waiting for {self.waited_s(now):.0f} s: {reason}"


_of_command: list[Pending] = []


@contextmanager
def watched(pending: Pending) -> Iterator[None]:
    """A command collects its steps in ``pending``."""
    _of_command.append(pending)
    try:
        yield
    finally:
        _of_command.pop()


def pending_now() -> Pending | None:
    """Of the command that this thread runs; None in other threads and programs."""
    return _of_command[-1] if _of_command and _of_command[-1].thread == get_ident() else None


class waiting_for:  # as a function
    """A step: a response to ``what`` from ``where``, a connection to ``where``, or what a sentence says."""

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
    """The items as they come; until the first is there it is a step, of which the sentence is told."""
    rest = iter(items)
    with waiting_for(sentence):
        first = list(islice(rest, 1))
    yield from first
    yield from rest


def refused(error: Exception) -> None:
    """A request that will be repeated got this error."""
    if (pending := pending_now()) is not None:
        pending.refused(str(error))


def about(name: str, kind: Kind) -> None:
    """The step is about this group or transactional id."""
    if (pending := pending_now()) is not None:
        pending.names[name] = kind
