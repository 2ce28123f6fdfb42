"""One direction of a link: delays steps while the link is slow, without changing their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.clock import Clock, Domain, Timer


class Lane:
    """A queue of steps, such as sending a frame, that a slow link delays. ``delay_ms`` returns the delay of the link.

    At a delay of 0 a step runs without being queued.
    """

    __slots__ = ("_clock", "_delay_ms", "_last_due_ms", "_steps", "_timers")

    def __init__(self, clock: Clock, delay_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._delay_ms = delay_ms
        self._steps: deque[Callable[[], object]] = deque()
        self._timers: deque[Timer] = deque()
        self._last_due_ms = 0

    def put(self, step: Callable[[], object]) -> None:
        """Run ``step`` after the delay of the link; immediately if there is no delay and no other step is waiting."""
        delay_ms = self._delay_ms()
        if not delay_ms and not self._steps:
            step()
            return
        now_ms = self._clock.now_ms(Domain.REQUESTS)
        # A later step never runs before an earlier one, even if the delay was reduced meanwhile.
        due_ms = max(now_ms + delay_ms, self._last_due_ms)
        self._last_due_ms = due_ms
        self._steps.append(step)
        self._timers.append(self._clock.call_later_ms(due_ms - now_ms, self._arrived, Domain.REQUESTS))

    def _arrived(self) -> None:
        self._timers.popleft()
        self._steps.popleft()()

    def clear(self) -> None:
        """Drop all steps, such as sent frames, that the delay of the link holds back."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._steps.clear()
        self._last_due_ms = 0
