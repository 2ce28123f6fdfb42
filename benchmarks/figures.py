"""The parameters of a measure (`Run`) and its results (`Figure`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.targets import Target

WARM_UP_S: Final = 2.0


@dataclass(frozen=True)
class Figure:
    """One measured number, with the project's limit for it and another measurement for comparison."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    higher_is_better: bool = False
    baseline: str = ""
    """The measurement for comparison, as text: for instance of a minimal program that moves the same bytes."""
    note: str = ""
    other_cpu: float = 0.0
    """Cores that other processes used during the measure. Above about 0.35, ``value`` is only an order of magnitude."""

    @property
    def within_limit(self) -> bool | None:
        if self.limit is None:
            return None
        return self.value >= self.limit if self.higher_is_better else self.value <= self.limit


@dataclass(frozen=True)
class Run:
    """One run of the benchmarks against one target."""

    target: Target
    quick: bool
    scratch: Path
    """A directory for data, which is deleted after the run."""
    say: Callable[[str], None]

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full
