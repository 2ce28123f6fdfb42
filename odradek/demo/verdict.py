"""Compare the results with the expected ones by row number and content, with the comparison of ``odradek certify``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.certify.judging.comparison import Compare, Difference, by_key
from odradek.certify.judging.comparison import compare as compare_rows
from odradek.certify.judging.rows import Row

_TOPIC: Final = "results"


def compare(expected: Mapping[int, str], observed: Iterable[str]) -> Difference:
    """Compare the records that a consumer got (``row;…``) with the expected results.

    >>> compare({0: "0;a", 1: "1;b", 2: "2;c"}, ["0;a", "0;a", "2;d", "3;e"]).summary
    'lost 1, duplicated 1, changed 1, unexpected 1'
    """
    wanted = [Row(_TOPIC, str(number), result) for number, result in expected.items()]
    found = [Row(_TOPIC, result.partition(";")[0], result) for result in observed]
    return compare_rows(wanted, found, Compare.ROWS, by_key)


def sees_planted_errors(expected: Mapping[int, str], observed: list[str]) -> bool:
    """Whether ``compare`` detects a duplicated, a lost and a changed record that are planted in the observed results."""
    middle = len(observed) // 2
    twice = compare(expected, [*observed, observed[middle]])
    missing = compare(expected, observed[:middle] + observed[middle + 1 :])
    other = compare(expected, [*observed[:middle], observed[middle] + "?", *observed[middle + 1 :]])
    found = [each.summary for each in (twice, missing, other)]
    return found == ["lost 0, duplicated 1", "lost 1, duplicated 0", "lost 0, duplicated 0, changed 1"]
