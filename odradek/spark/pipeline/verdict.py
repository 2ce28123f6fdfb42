"""Is what came out what should have come out? Row by row, by airport and hour, to the last digit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.spark.pipeline.expected import Row, key_of

if TYPE_CHECKING:
    from odradek.spark.audit import Report


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows that are missing, there more than once, there with other content, or not expected at all."""

    missing: int
    doubled: int
    different: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.doubled or self.different or self.foreign)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reader of the result says, and what the files say (None: there were none to read)."""

    verdict: Verdict
    report: Report | None

    @property
    def is_clean(self) -> bool:
        return self.verdict.is_clean and (self.report is None or not self.report.violations)


def compare(expected: Mapping[str, Row], observed: Sequence[tuple[str, str]]) -> Verdict:
    """Judge the (key, value) of every record that a reader saw against the rows that there should be.

    >>> row = {"origin": "JFK", "hour": "2013-01-01T10:00:00Z", "flights": 3}
    >>> compare({key_of(row): row}, [(key_of(row), json.dumps(row)), ("JFK", "{}")])
    Verdict(missing=0, doubled=0, different=0, foreign=1)
    """
    times: Counter[str] = Counter()
    different = foreign = 0
    for key, value in observed:
        wanted = expected.get(key)
        if wanted is None:
            foreign += 1
            continue
        times[key] += 1
        different += json.loads(value) != wanted
    doubled = sum(count - 1 for count in times.values())
    return Verdict(len(expected) - len(times), doubled, different, foreign)


def sees_planted_errors(expected: Mapping[str, Row], observed: Sequence[tuple[str, str]]) -> bool:
    """Would ``compare`` notice a row more, one less, one with a flight more? Tried on what was really read."""
    rows = list(observed)
    middle = len(rows) // 2
    key, value = rows[middle]
    other = json.loads(value)
    other["flights"] += 1
    twice = compare(expected, [*rows, rows[middle]])
    less = compare(expected, rows[:middle] + rows[middle + 1 :])
    changed = compare(expected, [*rows[:middle], (key, json.dumps(other)), *rows[middle + 1 :]])
    return (twice.doubled, less.missing, changed.different) == (1, 1, 1)


__all__ = ["Outcome", "Verdict", "compare", "key_of", "sees_planted_errors"]
