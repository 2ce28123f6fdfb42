"""Time as an argument. Nothing in the broker reads the clock or sets a timer but through a ``Clock``.

A timer belongs to a domain, so that a virtual clock can move one kind of time and leave the rest alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol


class Domain(Enum):
    """What a timer or a timestamp is about."""

    TRANSACTIONS = "transactions"
    IDS = "ids"
    RETENTION = "retention"
    GROUPS = "groups"
    PRODUCERS = "producers"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    REPLICATION = "replication"


class Timer(Protocol):
    """A timer that has not fired yet."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock milliseconds, and timers on them."""

    def now_ms(self, domain: Domain | None = None) -> int:
        """Milliseconds since the epoch: as written into records, or as one kind of time-out counts them.

        Without a domain it is the latest of all domains, so that what is written never goes back. A time-out that compares
        what was written with now asks for the now of its own domain.
        """
        ...

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        """Run ``callback`` on the loop once ``delay_ms`` have passed."""
        ...


class SystemClock:
    """The machine's time and the running loop's timers."""

    def now_ms(self, domain: Domain | None = None) -> int:
        return time.time_ns() // 1_000_000

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        return asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, callback)


def stopwatch_us() -> int:
    """Microseconds from some point on, to measure how long a thing took in reality. Never goes back."""
    return time.perf_counter_ns() // 1000


class Periodic:
    """Work that is done again ``interval_ms`` after it was done, until cancelled."""

    __slots__ = ("_clock", "_domain", "_interval_ms", "_timer", "_work")

    def __init__(self, clock: Clock, interval_ms: float, work: Callable[[], object], domain: Domain) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._work = work
        self._domain = domain
        self._timer = self._arm()

    def _arm(self) -> Timer:
        return self._clock.call_later_ms(self._interval_ms, self._run, self._domain)

    def _run(self) -> None:
        self._work()
        self._timer = self._arm()

    def cancel(self) -> None:
        self._timer.cancel()
