"""The result of an audit: ``Report``, and ``Finding`` for a single violation or warning."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.spark.audit.findings import NAMES, OLD_NAMES, VIOLATION

_NO_BATCH: Final = ("damage", "torn_tail")
_BYTES_SHOWN: Final = 128
_LINES_SHOWN: Final = 5
_NEW_NAMES: Final = {old: new for new, old in OLD_NAMES.items()}
_DECODERS: Final = {
    "__transaction_state": "--transaction-log-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}


@dataclass(frozen=True)
class Finding:
    """One violation or warning; ``offset``, ``file`` and ``position`` (in bytes) locate the batch."""

    name: str
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
    kind: str = field(init=False)
    """The finding's name before 0.2.0. Deprecated in 0.2.0, removed in 0.3.0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", OLD_NAMES.get(self.name, self.name))

    @property
    def command(self) -> str | None:
        """A shell command that shows the finding's bytes: ``kafka-dump-log.sh``, or ``xxd`` if they are not a batch.

        None if the finding names no file.
        """
        if None in (self.log_dir, self.topic, self.partition, self.file):
            return None
        path = shlex.quote(f"{self.log_dir}/{self.topic}-{self.partition}/{self.file}")
        if self.name in _NO_BATCH:
            return f"xxd -s {self.position or 0} -l {_BYTES_SHOWN} {path}"
        if not str(self.file).endswith(".log"):
            return f"kafka-dump-log.sh --files {path}"
        decoder = _DECODERS.get(str(self.topic), "--deep-iteration")
        only = "" if self.position is None else f" | grep -A {_LINES_SHOWN} ' position: {self.position} '"
        return f"kafka-dump-log.sh {decoder} --files {path}{only}"

    @property
    def where(self) -> str:
        """The place of the finding as text: ``orders-3 at 17``."""
        place = "?" if self.topic is None else f"{self.topic}-{self.partition}"
        return place if self.offset is None else f"{place} at {self.offset}"


class Counts(dict[tuple[str, str], int]):
    """Number of findings by (name, severity). The names before 0.2.0 are accepted until 0.3.0."""

    def __missing__(self, key: tuple[str, str]) -> int:
        name, severity = key
        return self[_NEW_NAMES[name], severity]


@dataclass(frozen=True)
class Report:
    """The result of an audit: numbers of findings by name, the first findings of each name, and the figures of the page.

    ``counts`` has the keys (name, severity). ``findings`` has at most a few hundred of each name; ``OUT/findings`` has
    all of them. ``tables`` are the result tables that the page shows, as rows.
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
        """Exit code of the program: 1 if the audit found a violation, else 0."""
        return 1 if self.violations else 0

    def of_kind(self, kind: str) -> list[Finding]:
        """The findings with this name. The names before 0.2.0 are accepted until 0.3.0."""
        return [each for each in self.findings if kind in (each.name, each.kind)]

    @property
    def verdict(self) -> str:
        """The verdict of the audit as one sentence: clean, or the number of violations."""
        figures = self.figures
        if not self.violations:
            text = (
                f"Clean: {_count(figures['batches'], 'batch', 'batches')} in"
                f" {_count(figures['partitions'], 'partition')} and"
                f" {_count(figures['transactions'], 'transaction')} break no rule"
            )
            return text + (f"; {_count(self.warnings, 'warning')}." if self.warnings else ".")
        named = [
            f"{NAMES.get(name, name).lower()} ({count:,})"
            for (name, severity), count in sorted(
                self.counts.items(), key=lambda item: list(NAMES).index(item[0][0])
            )
            if severity == VIOLATION
        ]
        return f"Failed: {_count(self.violations, 'violation')}: {', '.join(named)}."


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
