"""``GET /metrics``: counters and the current state, in Prometheus' text format."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from lab.metrics import of_requests
from lab.metrics.families import Family
from lab.metrics.request_metrics import RequestMetrics


class Collector(Protocol):
    """A source of families with the current state of the broker or proxy."""

    async def collect(self) -> list[Family]:
        """Return all metric families, each once. Suspends, so that the event loop serves other tasks meanwhile."""
        ...


class Metrics:
    """The metrics of one process. Nothing is counted before the first scrape."""

    def __init__(self, requests: RequestMetrics, collector: Collector) -> None:
        self._requests = requests
        self._collector = collector

    async def exposition(self) -> bytes:
        """All metrics as text. The event loop collects them in several turns; a thread formats them."""
        self._requests.start()
        collected = await self._collector.collect()
        return await asyncio.to_thread(_written, [*of_requests.families(self._requests), *collected])


def _written(families: Sequence[Family]) -> bytes:
    # Imported at the first scrape, in its thread.
    from lab.metrics.text import written

    return written(families)
