"""What an audit came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.audit.findings import KINDS, VIOLATION


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where: ``offset``, ``file`` and ``position`` (in bytes) lead to the batch."""

    kind: str
    severity: str
    log_dir: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    file: str | None
    position: int | None
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: str | None
    detail: str

    @property
    def where(self) -> str:
        """``orders-3 at 17``"""
        place = "?" if self.topic is None else f"{self.topic}-{self.partition}"
        return place if self.offset is None else f"{place} at {self.offset}"


@dataclass(frozen=True)
class Report:
    """Counts of everything that was found, the first findings of each kind, and figures for people.

    ``counts`` is by (kind, severity). ``findings`` has at most a few hundred of each kind; all of them are in
    ``OUT/findings``. ``tables`` are the results that the page shows, as rows.
    """

    data_dir: str
    live: bool
    counts: Mapping[tuple[str, str], int]
    findings: Sequence[Finding]
    figures: Mapping[str, Any]
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        return sum(count for (_, severity), count in self.counts.items() if severity == VIOLATION)

    @property
    def warnings(self) -> int:
        return sum(self.counts.values()) - self.violations

    @property
    def exit_code(self) -> int:
        """1 if an invariant is broken, else 0."""
        return 1 if self.violations else 0

    def of_kind(self, kind: str) -> list[Finding]:
        return [each for each in self.findings if each.kind == kind]

    @property
    def verdict(self) -> str:
        """One plain sentence."""
        figures = self.figures
        if not self.violations:
            text = (
                f"Nothing is broken: {_count(figures['batches'], 'batch', 'batches')} in"
                f" {_count(figures['partitions'], 'partition')} and"
                f" {_count(figures['transactions'], 'transaction')} keep every rule"
            )
            return text + (f"; {_count(self.warnings, 'warning')}." if self.warnings else ".")
        named = [
            f"{KINDS.get(kind, kind).lower()} ({count:,})"
            for (kind, severity), count in sorted(
                self.counts.items(), key=lambda item: list(KINDS).index(item[0][0])
            )
            if severity == VIOLATION
        ]
        return f"Broken in {_count(self.violations, 'place')}: {', '.join(named)}."


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
