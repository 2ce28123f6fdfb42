"""The clock interface. The broker reads time and sets timers only through a ``Clock`` that is passed to it.

Each timer belongs to a domain, so that a virtual clock can advance one kind of time without the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, Protocol


class Domain(Enum):
    """The kind of a timer or timestamp. A clock can advance the time of one domain without the other domains."""

    TRANSACTIONS = "transactions"
    IDS = "ids"
    RETENTION = "retention"
    GROUPS = "groups"
    CREDENTIALS = "credentials"
    PRODUCERS = "producers"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    REPLICATION = "replication"

    # Each append uses a domain as a key, and the hash function of Enum is written in Python.
    __hash__ = object.__hash__


MONOTONIC: Final = frozenset({Domain.CONNECTIONS, Domain.REQUESTS, Domain.REPLICATION})
"""Domains whose times are only compared with other times of the same domain, not with record timestamps. Kafka reads
these times from the monotonic clock."""


NOTHING_DONE: Final = object()
"""Result of a timer's callback that had nothing to do.

An advance of the clock then does not wait for other callbacks and threads that the callback could have started.
"""


class Timer(Protocol):
    """A timer that was set with a `Clock`, and can be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time in milliseconds since the epoch, and timers."""

    @property
    def skew_ms(self) -> int:
        """Milliseconds by which a node's clock is ahead of the cluster's clock (negative: behind); 0 if this is the
        cluster's clock.

        The skew does not apply to timers and to the domains in `MONOTONIC`.
        """
        ...

    def now_ms(self, domain: Domain | None = None) -> int:
        """Milliseconds since the epoch: the time for new records, or the time of one domain.

        Without a domain, the result is at least the time of every domain, and never goes back. A timeout that starts at the
        timestamp of a record must be compared with the time of the timeout's domain (`now_for`).
        """
        ...

    def cluster_ms(self) -> int:
        """``now_ms()`` without a node's skew. All times shown to users are from this method, so they are comparable."""
        ...

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        """Call ``callback`` on the event loop after ``delay_ms``."""
        ...

    def now_for(self, written_ms: int, domain: Domain) -> int:
        """The time to compare with the record timestamp ``written_ms``: the timestamp plus the time of ``domain`` that
        has passed since the record was written.

        May differ from ``now_ms(domain)``, since records have the time of the domain that is furthest ahead.
        """
        ...

    def wait_for(self, work: Awaitable[object]) -> None:
        """Register work that runs in a thread: an advance of the clock waits until the work has ended."""
        ...


class Unmoved:
    """Base class of clocks that cannot be advanced."""

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
    """The system's time, and timers of the running event loop."""

    def now_ms(self, domain: Domain | None = None) -> int:
        return time.time_ns() // 1_000_000

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        return asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, callback)


def stopwatch_us() -> int:
    """Microseconds of a monotonic clock, for measuring real durations."""
    return time.perf_counter_ns() // 1000


_BEGAN_US: Final = time.time_ns() // 1000 - stopwatch_us()


def monotonic_epoch_us() -> int:
    """Microseconds since the epoch by a monotonic clock, which does not follow later changes of the system's clock."""
    return _BEGAN_US + stopwatch_us()


class Periodic:
    """Work that is repeated, each time ``interval_ms`` after the previous round, until it is cancelled.

    ``idle_until_ms``, if not None, is a function that returns the next time at which the work will have something
    to do, in the time of its domain; None for never. A clock that advances by a week then need not stop at each of
    60,000 rounds without work. ``passed_over`` is called with the number of rounds that were skipped.

    With ``once_per_advance``, an advance runs the work only in the first due round. This is for work that clients
    cause: they act in real time, and could cause work for each round. Two days have 34,560 rounds of five seconds.
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
        """Result of ``idle_until_ms`` without the node's skew, which timers do not have; None for never."""
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
        """Change the interval; the next round starts ``interval_ms`` from now."""
        if interval_ms != self.interval_ms:
            self.cancel()
            self.interval_ms = interval_ms
            self._timer = self._arm()

    def cancel(self) -> None:
        self._timer.cancel()


class Alive(Protocol):
    """The owner of a timer, which may have died when the timer fires."""

    alive: bool


class Guarded:
    """A timer callback that does nothing if its owner is dead."""

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
    """Whether the callback does nothing because its owner is dead."""
    return isinstance(callback, Guarded) and not callback.is_alive


def periodic_of(callback: Callable[[], object]) -> Periodic | None:
    """The `Periodic` that a timer callback runs, if it has ``idle_until_ms``; else None."""
    if isinstance(callback, Guarded):
        callback = callback.callback
    return callback if isinstance(callback, Periodic) and callback.idle_until_ms is not None else None
