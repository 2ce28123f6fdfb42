"""Lets time pass in a coroutine (`broker.loop.coroutines`), by a clock that tests may move."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.loop.coroutines import Waiter

if TYPE_CHECKING:
    from broker.clock import Clock, Domain


async def sleep_ms(clock: Clock, delay_ms: float, domain: Domain) -> None:
    """Return ``delay_ms`` later in the time of ``domain``; 0 is the next turn of the loop. Never, if the node has died."""
    over: Waiter[None] = Waiter()
    clock.call_later_ms(delay_ms, partial(over.wake, None), domain)
    await over


class Sleep(Waiter[None]):
    """A time that passes for one coroutine, and can be cut short. Cut it in any case: its timer refers to it."""

    __slots__ = ("_timer",)

    def __init__(self, clock: Clock, delay_ms: float, domain: Domain) -> None:
        super().__init__()
        self._timer = clock.call_later_ms(delay_ms, partial(self.wake, None), domain)

    def cut(self) -> None:
        self._timer.cancel()
        self.wake(None)
