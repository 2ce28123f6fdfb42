"""Families of samples as prometheus_client writes them, by their kinds, and the names that they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows = Iterable[tuple[Sequence[object], float]]
"""The values of the labels, and what was measured."""
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)
"""As Kafka's histograms and the JMX exporter have them."""


def gauge(name: str, says: str, labels: Sequence[str] = (), rows: Rows = ()) -> Metric:
    family = GaugeMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric([str(each) for each in values], value)
    return family


def counter(name: str, says: str, labels: Sequence[str] = (), rows: Rows = ()) -> Metric:
    """``name`` without ``_total``, which is written behind it."""
    family = CounterMetricFamily(name, says, labels=labels)
    for values, value in rows:
        family.add_metric([str(each) for each in values], value)
    return family


def summary(
    name: str, says: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[object], int, Sequence[float]]]
) -> Metric:
    """The quantiles of the samples that are given with each row, and the count of all that there have been."""
    family = Metric(name, says, "summary")
    for values, count, samples in rows:
        of_row = dict(zip(labels, map(str, values), strict=True))
        ordered = sorted(samples)
        for quantile in QUANTILES:
            at = min(len(ordered) - 1, int(quantile * len(ordered)))
            family.add_sample(name, {**of_row, "quantile": str(quantile)}, ordered[at] if ordered else 0.0)
        family.add_sample(f"{name}_count", of_row, count)
    return family
