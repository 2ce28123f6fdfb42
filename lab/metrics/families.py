"""Families of samples: read on the loop as plain values, and written elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from protocol.slotted import slotted


class Kind(Enum):
    """What Prometheus calls the type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@slotted(frozen=True)
class Observed:
    """One row of a summary: how many there have been, and the newest of them, of which the quantiles are."""

    count: int
    newest: tuple[float, ...]


Row = tuple[tuple[object, ...], float]
"""The values of the labels, and what was measured."""


@slotted(frozen=True)
class Family:
    """All samples of one name, which `lab.metrics.names` explains. A counter's name is that without ``_total``."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[object, ...], float | Observed]]


def gauge(name: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(Kind.GAUGE, name, labels, list(rows))


def single(name: str, value: float) -> Family:
    """A gauge without labels."""
    return Family(Kind.GAUGE, name, (), [((), value)])


def counter(name: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(Kind.COUNTER, name, labels, list(rows))


def summary(
    name: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[object, ...], Observed]]
) -> Family:
    return Family(Kind.SUMMARY, name, labels, list(rows))
