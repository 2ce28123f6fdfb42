"""Time as an argument: the clock that all is given, one that can be moved on, one that dies with its node."""

from broker.clock.clock import (
    MONOTONIC,
    NOTHING_DONE,
    Alive,
    Clock,
    Domain,
    Guarded,
    Periodic,
    SystemClock,
    Timer,
    Unmoved,
    is_dead,
    periodic_of,
    stopwatch_us,
)

__all__ = [
    "MONOTONIC",
    "NOTHING_DONE",
    "Alive",
    "Clock",
    "Domain",
    "Guarded",
    "Periodic",
    "SystemClock",
    "Timer",
    "Unmoved",
    "is_dead",
    "periodic_of",
    "stopwatch_us",
]
