"""One advance of a `VirtualClock`: which timers fire next, and at which of them the clock stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, Protocol

from broker.clock import MONOTONIC, Domain, Periodic, periodic_of

PROMPT_TIMERS_MAX: Final = 200
"""Maximum number of times that an advancing clock stops for a timer of a `MONOTONIC` domain set during the advance.

Retries inside the broker set few such timers. Clients run in real time, and their requests could set any number: the
consecutive Fetch requests of one consumer would stop the clock every half second.
"""


class Advanced(Protocol):
    """The attributes of a `VirtualTimer` that an advance of the clock uses."""

    due_ms: float
    arrival: int
    callback: Callable[[], object]

    @property
    def is_pending(self) -> bool: ...

    def fire_now(self) -> bool: ...

    def idle_until_ms(self) -> float: ...

    def skip_to(self, now_ms: float) -> None: ...

    def catch_up(self, now_ms: float) -> None: ...


class Course:
    """An advance in progress: the timers of the advancing domains, with the real time at which each would fire without
    the advance."""

    def __init__(
        self, by_ms: int, offsets: Mapping[Domain, int], timers: Mapping[Domain, Iterable[Advanced]]
    ) -> None:
        """``offsets``: milliseconds by which each advancing domain is ahead of real time at the beginning. ``timers``
        has the timers of all domains."""
        self.by_ms = by_ms
        self.moved_ms = 0
        self.offsets = offsets
        self._heap: list[tuple[float, int, Advanced]] = []
        self._patient: list[tuple[float, int, Advanced]] = []
        """Timers set during the advance that fire when the clock stops for another timer, or after the advance."""
        self._prompt_left = PROMPT_TIMERS_MAX
        self._repeating: dict[Advanced, Domain] = {}
        self._ran: set[Periodic] = set()
        """Periodic work with ``once_per_advance`` that has run in this advance, and so must not run in it again."""
        for domain in offsets:
            for timer in timers[domain]:
                self._add(self._heap, domain, timer)

    def _add(self, heap: list[tuple[float, int, Advanced]], domain: Domain, timer: Advanced) -> None:
        if periodic_of(timer.callback) is not None:
            self._repeating[timer] = domain
        else:
            heappush(heap, (timer.due_ms - self.offsets[domain], timer.arrival, timer))

    def add(self, domain: Domain, timer: Advanced, *, at_once: bool) -> None:
        """Add a timer that was set during the advance; ``at_once`` if it was set without a delay."""
        heap = self._heap
        if domain in MONOTONIC and not at_once:
            if not self._prompt_left:
                heap = self._patient
            else:
                self._prompt_left -= 1
        self._add(heap, domain, timer)

    def next_due_ms(self) -> float:
        """Real time at which the next timer with work would fire without the advance; infinite if there is none."""
        while self._heap and not self._heap[0][2].is_pending:
            heappop(self._heap)
        due = [self._heap[0][0]] if self._heap else []
        for timer, domain in list(self._repeating.items()):
            if timer.is_pending:
                due.append(self._busy_at_ms(timer) - self.offsets[domain])
            else:
                del self._repeating[timer]
        return min(due, default=float("inf"))

    def _busy_at_ms(self, timer: Advanced) -> float:
        """Time, in the timer's domain, of the next round in which its `Periodic` has work; infinite if none."""
        return float("inf") if periodic_of(timer.callback) in self._ran else timer.idle_until_ms()

    def take(self, until_ms: float) -> list[Advanced]:
        """Remove and return the timers that are due at ``until_ms``, in the order in which they were set.

        ``until_ms`` is real time, to which no advance of the clock is added. A timer of periodic work skips the rounds
        that have nothing to do.
        """
        found = []
        for heap in (self._heap, self._patient):
            while heap and heap[0][0] <= until_ms:
                found.append(heappop(heap)[2])
        for timer, domain in list(self._repeating.items()):
            at_ms = until_ms + self.offsets[domain]
            if timer.is_pending and self._busy_at_ms(timer) <= at_ms:
                del self._repeating[timer]
                timer.catch_up(at_ms)
                work = periodic_of(timer.callback)
                if work is not None and work.once_per_advance:
                    self._ran.add(work)
                found.append(timer)
            elif timer.is_pending:  # a timer of this instant may have cancelled it
                timer.skip_to(at_ms)
        return sorted(found, key=lambda timer: timer.arrival)

    def pass_over(self, until_ms: float) -> None:
        """Skip the remaining rounds, which have no work, at the end of the advance, so that they do not run afterwards."""
        for timer, domain in self._repeating.items():
            if timer.is_pending:
                timer.skip_to(until_ms + self.offsets[domain])
