"""Formats families as Prometheus' text format. Called in a thread, because it takes long if there are many samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lab.metrics.families import Family, Kind, Observed
from lab.metrics.names import HELP
from lab.metrics.of_process import process_families
from lab.sharing import loop_goes_first

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999)
"""The quantiles of Kafka's histograms and the JMX exporter."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def written(families: Sequence[Family]) -> bytes:
    """Return ``families`` and the families of `lab.metrics.of_process` in Prometheus' text format 0.0.4."""
    with loop_goes_first():
        # Encode each family separately: one call for megabytes would block the event loop.
        return b"".join("".join(_lines(family)).encode() for family in [*families, *process_families()])


def _lines(family: Family) -> Iterator[str]:
    name = f"{family.name}_total" if family.kind is Kind.COUNTER else family.name
    yield f"# HELP {name} {HELP[family.name]}\n# TYPE {name} {family.kind.value}\n"
    for values, measured in family.rows:
        labels = [
            f'{label}="{str(value).translate(_ESCAPES)}"'
            for label, value in zip(family.labels, values, strict=True)
        ]
        if isinstance(measured, Observed):
            yield from _quantiles(name, labels, measured)
        else:
            yield _sample(name, labels, measured)


def _quantiles(name: str, labels: list[str], observed: Observed) -> Iterator[str]:
    ordered = sorted(observed.newest)
    for quantile in QUANTILES:
        at = min(len(ordered) - 1, int(quantile * len(ordered)))
        yield _sample(name, [*labels, f'quantile="{quantile}"'], ordered[at])
    yield _sample(f"{name}_count", labels, observed.count)


def _sample(name: str, labels: list[str], value: float) -> str:
    return f"{name}{{{','.join(labels)}}} {float(value)!r}\n" if labels else f"{name} {float(value)!r}\n"
