"""Sleeping in a coroutine (`broker.loop.coroutines`), by the broker's clock."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.loop.coroutines import Waiter

if TYPE_CHECKING:
    from broker.clock import Clock, Domain


async def sleep_ms(clock: Clock, delay_ms: float, domain: Domain) -> None:
    """Return after ``delay_ms`` of ``domain``; 0 means the next turn of the loop. Never returns if the node dies."""
    over: Waiter[None] = Waiter()
    clock.call_later_ms(delay_ms, partial(over.wake, None), domain)
    await over


class Sleep(Waiter[None]):
    """A delay that one coroutine awaits. `cut` ends the delay early. Call `cut` also after the delay, as this breaks a
    reference cycle."""

    __slots__ = ("_timer",)

    def __init__(self, clock: Clock, delay_ms: float, domain: Domain) -> None:
        super().__init__()
        self._timer = clock.call_later_ms(delay_ms, partial(self.wake, None), domain)

    def cut(self) -> None:
        self._timer.cancel()
        self.wake(None)
