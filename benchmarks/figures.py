"""What a measure is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.targets import Target

WARM_UP_S: Final = 2.0


@dataclass(frozen=True)
class Figure:
    """One number, the bound that the project has set itself, and what else was measured beside it."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    higher_is_better: bool = False
    baseline: str = ""
    """What the same machine took, at the same time, for the least that could be done instead."""
    note: str = ""
    other_cpu: float = 0.0
    """Cores that neither we nor the target used meanwhile: above about 0.35 the figure is an order of magnitude."""

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
    """A directory for data; what is in it goes away with the run."""
    say: Callable[[str], None]

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full
