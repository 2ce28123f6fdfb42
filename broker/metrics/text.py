"""Families as text, by prometheus_client. Called in a thread: it takes as long as there are samples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector

from broker.metrics.families import Family, Observed
from broker.metrics.names import HELP

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999)
"""As Kafka's histograms and the JMX exporter have them."""


class _Registry:
    """What prometheus_client asks for families."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)
            time.sleep(0)  # The thread gives the interpreter to the loop, which would else wait 5 ms for it.
        # Of Linux, which has /proc; elsewhere there are none of these.
        yield from ProcessCollector(registry=None).collect()


def written(families: Sequence[Family]) -> bytes:
    """In Prometheus' text format, which every scraper reads."""
    return generate_latest(cast(CollectorRegistry, _Registry(families)))


def _metric(family: Family) -> Metric:
    metric = Metric(family.name, HELP[family.name], family.kind.value)
    name = f"{family.name}_total" if family.kind.value == "counter" else family.name
    for values, measured in family.rows:
        labels = dict(zip(family.labels, map(str, values), strict=True))
        if isinstance(measured, Observed):
            _add_quantiles(metric, labels, measured)
        else:
            metric.add_sample(name, labels, measured)
    return metric


def _add_quantiles(metric: Metric, labels: dict[str, str], observed: Observed) -> None:
    ordered = sorted(observed.newest)
    for quantile in QUANTILES:
        at = min(len(ordered) - 1, int(quantile * len(ordered)))
        metric.add_sample(metric.name, {**labels, "quantile": str(quantile)}, ordered[at])
    metric.add_sample(f"{metric.name}_count", labels, observed.count)
