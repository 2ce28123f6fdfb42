"""Clocks: the interface, the system clock, one that can be advanced, one whose timers end with their node."""

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
