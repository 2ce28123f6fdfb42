"""Time as an argument. Nothing in the broker reads the clock or sets a timer but through a ``Clock``.

A timer belongs to a domain, so that a virtual clock can move one kind of time and leave the rest alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, Protocol


class Domain(Enum):
    """What a timer or a timestamp is about."""

    TRANSACTIONS = "transactions"
    IDS = "ids"
    RETENTION = "retention"
    GROUPS = "groups"
    CREDENTIALS = "credentials"
    PRODUCERS = "producers"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    REPLICATION = "replication"

    # Each append asks for the time of a domain: an enum's own hash is a function in Python.
    __hash__ = object.__hash__


MONOTONIC: Final = frozenset({Domain.CONNECTIONS, Domain.REQUESTS, Domain.REPLICATION})
"""The domains whose times are compared with each other only: Kafka reads them from a clock that is never set."""


NOTHING_DONE: Final = object()
"""What a timer's callback may return if it found nothing to do: a clock that is moved on need not wait for anything then."""


class Timer(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock milliseconds, and timers on them."""

    @property
    def skew_ms(self) -> int:
        """How far this is ahead of the cluster's clock, where it is the clock of one node; negative if it is behind.

        Timers and the domains in `MONOTONIC` have no skew.
        """
        ...

    def now_ms(self, domain: Domain | None = None) -> int:
        """Milliseconds since the epoch: as written into records, or as one kind of time-out counts them.

        Without a domain it is not before that of any domain, and what is written never goes back. A time-out that compares
        what was written with now asks for the now of its own domain.
        """
        ...

    def cluster_ms(self) -> int:
        """``now_ms()`` without the skew of a node: what users are told is by one clock for all nodes."""
        ...

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        """Run ``callback`` on the loop once ``delay_ms`` have passed."""
        ...

    def now_for(self, written_ms: int, domain: Domain) -> int:
        """Now, for computing the age of what was written: ``written_ms`` and what has passed since then.

        Not always the same as ``now_ms(domain)``: what is written has the time of the domain that is furthest ahead.
        """
        ...

    def wait_for(self, work: Awaitable[object]) -> None:
        """A clock that advances waits until this work, which is under way in a thread, is done."""
        ...


class Unmoved:
    """What is the same for all clocks that cannot be advanced."""

    skew_ms: Final = 0

    def now_ms(self, domain: Domain | None = None) -> int:
        raise NotImplementedError

    def cluster_ms(self) -> int:
        return self.now_ms()

    def now_for(self, written_ms: int, domain: Domain) -> int:
        return self.now_ms()

    def wait_for(self, work: Awaitable[object]) -> None:
        pass


class SystemClock(Unmoved):
    """The machine's time and the running loop's timers."""

    def now_ms(self, domain: Domain | None = None) -> int:
        return time.time_ns() // 1_000_000

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        return asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, callback)


def stopwatch_us() -> int:
    """Microseconds from some point on, to measure how long a thing took in reality. Never goes back."""
    return time.perf_counter_ns() // 1000


class Periodic:
    """Work that is done again ``interval_ms`` after it was done, until cancelled.

    ``idle_until_ms``, where it is given, tells when (by the now of the domain) there will be something to do as things
    are, None if never: a clock that is moved on by a week need not stop at each of 60,000 rounds in which nothing happens.
    ``passed_over`` is then told how many rounds were not run.

    ``once_per_advance``: the work follows real time, as clients do, and an advance runs it in the first round that is due
    and not again. Writers would otherwise give each of its rounds something to do: two days have 34,560 of five seconds.
    """

    __slots__ = (
        "_clock",
        "_domain",
        "_timer",
        "_work",
        "idle_until_ms",
        "interval_ms",
        "once_per_advance",
        "passed_over",
    )

    def __init__(
        self,
        clock: Clock,
        interval_ms: float,
        work: Callable[[], object],
        domain: Domain,
        idle_until_ms: Callable[[], float | None] | None = None,
        passed_over: Callable[[int], object] | None = None,
        once_per_advance: bool = False,
    ) -> None:
        self._clock = clock
        self.interval_ms = interval_ms
        self.idle_until_ms = idle_until_ms
        self.passed_over = passed_over
        self.once_per_advance = once_per_advance
        self._work = work
        self._domain = domain
        self._timer = self._arm()

    def busy_at_ms(self) -> float | None:
        """``idle_until_ms`` by the clock of the timers, which no skew of a node moves; None for never."""
        busy_at_ms = self.idle_until_ms() if self.idle_until_ms is not None else None
        if busy_at_ms is None or self._domain in MONOTONIC:
            return busy_at_ms
        return busy_at_ms - self._clock.skew_ms

    def _arm(self) -> Timer:
        return self._clock.call_later_ms(self.interval_ms, self, self._domain)

    def __call__(self) -> object:
        done = self._work()
        self._timer = self._arm()
        return done

    def every(self, interval_ms: float) -> None:
        """Another interval, which begins now."""
        if interval_ms != self.interval_ms:
            self.cancel()
            self.interval_ms = interval_ms
            self._timer = self._arm()

    def cancel(self) -> None:
        self._timer.cancel()


class Alive(Protocol):
    """The owner of a timer, which may be dead when the timer fires."""

    alive: bool


class Guarded:
    """A timer's callback that does nothing once its owner is gone."""

    __slots__ = ("_owner", "callback")

    def __init__(self, callback: Callable[[], object], owner: Alive) -> None:
        self.callback = callback
        self._owner = owner

    @property
    def is_alive(self) -> bool:
        return self._owner.alive

    def __call__(self) -> object:
        return self.callback() if self._owner.alive else NOTHING_DONE


def is_dead(callback: Callable[[], object]) -> bool:
    """Whether a timer's callback does nothing any more, because its owner is gone."""
    return isinstance(callback, Guarded) and not callback.is_alive


def periodic_of(callback: Callable[[], object]) -> Periodic | None:
    """The periodic work that a timer's callback stands for; None if it may do something every time."""
    if isinstance(callback, Guarded):
        callback = callback.callback
    return callback if isinstance(callback, Periodic) and callback.idle_until_ms is not None else None
