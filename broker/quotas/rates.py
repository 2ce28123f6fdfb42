"""Recent usage of a quota: a rate over a sliding window, and a token bucket. Pure.

The counterparts of Kafka's ``Rate`` over ``SampledStat`` and of ``TokenBucket``: they compute the same throttle times.
"""

from __future__ import annotations

from typing import Final

from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

MS_PER_SECOND: Final = 1_000


class Window(NamedTuple):
    """Number and length of a rate's samples, as set by ``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int = 11
    sample_ms: int = 1_000


@slotted
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SampledRate:
    """A rate over a sliding window of samples. A sample without an addition for a whole window is dropped."""

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
        """Subtract the value that was recorded last."""
        self._samples[-1].value -= value

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._window.samples * self._window.sample_ms
        self._samples = [sample for sample in self._samples if sample.last_ms > oldest_ms]

    def is_idle(self, now_ms: int) -> bool:
        """Whether the window has no samples."""
        self._purge(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> int:
        """Milliseconds by which the sum of the samples is divided: at least the window's length without one sample.

        Otherwise the first values of a new rate would count as a very high rate.
        """
        sample_ms = self._window.sample_ms
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self._window.samples - 1 - elapsed_ms // sample_ms
        return max(elapsed_ms + max(missing, 0) * sample_ms, 1)

    def per_second(self, now_ms: int) -> float:
        self._purge(now_ms)
        total = sum(sample.value for sample in self._samples)
        return total * MS_PER_SECOND / self._elapsed_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Time in milliseconds until the rate is back at the limit; 0 if it is not above (``QuotaUtils.throttleTime``)."""
        rate = self.per_second(now_ms)
        return round((rate - limit) / limit * self._elapsed_ms(now_ms)) if rate > limit else 0


class TokenBucket:
    """A bucket that gets ``limit`` tokens per second and holds at most the tokens of one window (KIP-599).

    A request may overdraw the bucket.
    """

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
        """Time in milliseconds until the bucket is no longer overdrawn; 0 if it is not."""
        tokens = self._refill(limit, now_ms)
        return round(-tokens / limit * MS_PER_SECOND) if tokens < 0 else 0

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self._refill(limit, now_ms) - count

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket is full, whatever its limit is, because a whole window has passed since the last request."""
        return now_ms - self._updated_ms >= self._window.samples * self._window.sample_ms
