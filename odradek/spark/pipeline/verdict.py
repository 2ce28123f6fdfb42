"""Compare the written rows with the expected rows, by airport and hour.

The comparison and its words (lost, duplicated, changed, unexpected) are those of ``odradek certify``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.certify.judging.comparison import Compare, Difference, by_key
from odradek.certify.judging.comparison import compare as compare_rows
from odradek.certify.judging.rows import Row as Compared
from odradek.spark.pipeline.expected import Row, key_of

if TYPE_CHECKING:
    from odradek.spark.audit import Report

_TOPIC: Final = "delays"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The difference between the expected and the observed rows, and the audit's report (None without segment files)."""

    difference: Difference
    report: Report | None

    @property
    def is_clean(self) -> bool:
        return not self.difference and (self.report is None or not self.report.violations)


def compare(expected: Mapping[str, Row], observed: Sequence[tuple[str, str]]) -> Difference:
    """Compare the (key, value) of every record that a consumer read with the expected rows.

    >>> row = {"origin": "JFK", "hour": "2013-01-01T10:00:00Z", "flights": 3}
    >>> compare({key_of(row): row}, [(key_of(row), json.dumps(row)), ("JFK", "{}")]).summary
    'lost 0, duplicated 0, unexpected 1'
    """
    wanted = [Compared(_TOPIC, key, _text(row)) for key, row in expected.items()]
    found = [Compared(_TOPIC, key, _text(json.loads(value))) for key, value in observed]
    return compare_rows(wanted, found, Compare.ROWS, by_key)


def _text(row: Any) -> str:
    """The row as JSON, independent of the order of its fields."""
    return json.dumps(row, sort_keys=True)


def sees_planted_errors(expected: Mapping[str, Row], observed: Sequence[tuple[str, str]]) -> bool:
    """Whether ``compare`` finds a duplicated, a lost and a changed row when they are planted in the observed rows."""
    read = list(observed)
    middle = len(read) // 2
    key, value = read[middle]
    other = json.loads(value)
    other["flights"] += 1
    twice = compare(expected, [*read, read[middle]])
    less = compare(expected, read[:middle] + read[middle + 1 :])
    changed = compare(expected, [*read[:middle], (key, json.dumps(other)), *read[middle + 1 :]])
    found = [each.summary for each in (twice, less, changed)]
    return found == ["lost 0, duplicated 1", "lost 1, duplicated 0", "lost 0, duplicated 0, changed 1"]


__all__ = ["Outcome", "compare", "key_of", "sees_planted_errors"]
