"""Metric families, as plain values: the event loop creates them, and a thread formats them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from protocol.slotted import slotted


class Kind(Enum):
    """The type of a metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@slotted(frozen=True)
class Observed:
    """One sample of a summary: the number of observations, and the newest ones, which determine the quantiles."""

    count: int
    newest: tuple[float, ...]


Row = tuple[tuple[object, ...], float]
"""One sample: (values of the labels, measured value)"""


@slotted(frozen=True)
class Family:
    """All samples of one metric of `lab.metrics.names`. ``name`` has no ``_total`` suffix, even for a counter."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[object, ...], float | Observed]]


def gauge(name: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(Kind.GAUGE, name, labels, list(rows))


def single(name: str, value: float) -> Family:
    """A gauge with one sample and without labels."""
    return Family(Kind.GAUGE, name, (), [((), value)])


def counter(name: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(Kind.COUNTER, name, labels, list(rows))


def summary(
    name: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[object, ...], Observed]]
) -> Family:
    return Family(Kind.SUMMARY, name, labels, list(rows))
