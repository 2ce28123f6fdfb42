"""How much was taken of late: a rate over a sliding window, and a bucket of tokens. Pure.

As Kafka's ``Rate`` over ``SampledStat`` and ``TokenBucket``, so that a client is throttled for as long as there.
"""

from __future__ import annotations

from typing import Final

from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

MS_PER_SECOND: Final = 1_000


class Window(NamedTuple):
    """``quota.window.num`` samples of ``quota.window.size.seconds``, or those of another kind of quota."""

    samples: int = 11
    sample_ms: int = 1_000


@slotted
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SampledRate:
    """A sum for each piece of the window; pieces that nothing was added to for a whole window are over."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._window.sample_ms:
            self._samples.append(_Sample(now_ms, now_ms))
        self._samples[-1].value += value
        self._samples[-1].last_ms = now_ms
        self._purge(now_ms)

    def take_back(self, value: float) -> None:
        """What was recorded last has not happened."""
        self._samples[-1].value -= value

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._window.samples * self._window.sample_ms
        self._samples = [sample for sample in self._samples if sample.last_ms > oldest_ms]

    def is_idle(self, now_ms: int) -> bool:
        """Nothing counts any more."""
        self._purge(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> int:
        """What the sum is divided by: a window that has just begun counts as if it were whole but for one sample."""
        sample_ms = self._window.sample_ms
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._window.samples - 1 - elapsed_ms // sample_ms
        return max(elapsed_ms + max(missing, 0) * sample_ms, 1)

    def per_second(self, now_ms: int) -> float:
        self._purge(now_ms)
        total = sum(sample.value for sample in self._samples)
        return total * MS_PER_SECOND / self._elapsed_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be added until the rate is at the limit again; 0 below it (``QuotaUtils.throttleTime``)."""
        rate = self.per_second(now_ms)
        return round((rate - limit) / limit * self._elapsed_ms(now_ms)) if rate > limit else 0


class TokenBucket:
    """So many tokens a second, up to those of a whole window; the last request may take more than there are (KIP-599)."""

    __slots__ = ("_tokens", "_updated_ms", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens: float | None = None
        self._updated_ms = 0

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._window.samples * self._window.sample_ms / MS_PER_SECOND * limit
        tokens = burst if self._tokens is None else self._tokens
        tokens = min(burst, tokens + limit * (now_ms - self._updated_ms) / MS_PER_SECOND)
        self._tokens, self._updated_ms = tokens, now_ms
        return tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until there is a token again; 0 while there are some."""
        tokens = self._refill(limit, now_ms)
        return round(-tokens / limit * MS_PER_SECOND) if tokens < 0 else 0

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self._refill(limit, now_ms) - count

    def is_idle(self, now_ms: int) -> bool:
        """It is full, whatever its limit is: a whole window has passed since the last request."""
        return now_ms - self._updated_ms >= self._window.samples * self._window.sample_ms
