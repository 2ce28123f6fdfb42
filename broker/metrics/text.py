"""Families as text, by prometheus_client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest


class _Families:
    """What prometheus_client asks of a registry."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield family
            time.sleep(0)  # The thread gives the interpreter to the loop, which would else wait 5 ms for it.


def written(families: Sequence[Metric]) -> bytes:
    """In Prometheus' text format, which every scraper reads."""
    return generate_latest(cast(CollectorRegistry, _Families(families)))
