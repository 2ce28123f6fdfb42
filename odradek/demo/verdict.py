"""Compares the results with the expected ones, by row number and by content, with the comparison of ``odradek certify``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.certify.judging.comparison import Compare, Difference, by_key
from odradek.certify.judging.comparison import compare as compare_rows
from odradek.certify.judging.rows import Row

_TOPIC: Final = "results"


def compare(expected: Mapping[int, str], observed: Iterable[str]) -> Difference:
    """Judge the results that a reader saw (``row;…``) against those that there should be.

    >>> compare({0: "0;a", 1: "1;b", 2: "2;c"}, ["0;a", "0;a", "2;d", "3;e"]).summary
    'lost 1, duplicated 1, changed 1, unexpected 1'
    """
    wanted = [Row(_TOPIC, str(number), result) for number, result in expected.items()]
    found = [Row(_TOPIC, result.partition(";")[0], result) for result in observed]
    return compare_rows(wanted, found, Compare.ROWS, by_key)


def sees_planted_errors(expected: Mapping[int, str], observed: list[str]) -> bool:
    """Whether ``compare`` notices a missing, an additional and a changed record, tried on the results that were read."""
    middle = len(observed) // 2
    twice = compare(expected, [*observed, observed[middle]])
    missing = compare(expected, observed[:middle] + observed[middle + 1 :])
    other = compare(expected, [*observed[:middle], observed[middle] + "?", *observed[middle + 1 :]])
    found = [each.summary for each in (twice, missing, other)]
    return found == ["lost 0, duplicated 1", "lost 1, duplicated 0", "lost 0, duplicated 0, changed 1"]
