"""Clocks: the interface, the system clock, a clock that can be advanced, and a clock whose timers end with a node."""

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
    monotonic_epoch_us,
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
    "monotonic_epoch_us",
    "periodic_of",
    "stopwatch_us",
]
