"""``GET /metrics``: what was counted and what is there now, in Prometheus' text format."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from lab.metrics import of_requests
from lab.metrics.families import Family
from lab.metrics.request_metrics import RequestMetrics


class Collector(Protocol):
    """What is there now, of whatever serves clients here."""

    async def collect(self) -> list[Family]:
        """Each family once; the loop has its turns meanwhile."""
        ...


class Metrics:
    """The metrics of one process. Before they are asked for first nothing is counted."""

    def __init__(self, requests: RequestMetrics, collector: Collector) -> None:
        self._requests = requests
        self._collector = collector

    async def exposition(self) -> bytes:
        """All of them as text. The loop collects, in turns; a thread writes."""
        self._requests.start()
        collected = await self._collector.collect()
        return await asyncio.to_thread(_written, [*of_requests.families(self._requests), *collected])


def _written(families: Sequence[Family]) -> bytes:
    # Imported at the first scrape, in its thread.
    from lab.metrics.text import written

    return written(families)
