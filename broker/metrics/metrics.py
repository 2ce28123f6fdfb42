"""``GET /metrics``: what was counted and what is there now, in Prometheus' text format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.metrics.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Collector(Protocol):
    """What is there now, of whatever serves clients here."""

    async def collect(self) -> list[Metric]: ...


class Metrics:
    """The metrics of one process. Before they are asked for first nothing is counted, and nothing imported."""

    def __init__(self, requests: RequestMetrics, collector: Callable[[], Collector]) -> None:
        """``collector`` imports what it needs; it is called in a thread."""
        self.requests = requests
        self._make_collector = collector
        self._collector: Collector | None = None

    async def exposition(self) -> bytes:
        """All of them as text.

        The loop collects, in turns; a thread writes the text, and lets the loop go on between two families.
        """
        self.requests.start()
        if self._collector is None:
            self._collector = await asyncio.to_thread(self._make_collector)
        collected = await self._collector.collect()
        from broker.metrics import of_requests
        from broker.metrics.text import written

        families = [*of_requests.families(self.requests), *collected]
        return await asyncio.to_thread(written, families)
