"""Compares the results with the expected ones, by row number and by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rows that are missing, there more than once, there with other content, or not expected at all."""

    lost: int
    doubled: int
    changed: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.foreign)


def compare(expected: Mapping[int, str], observed: Iterable[str]) -> Verdict:
    """Judge the results that a reader saw (``row;…``) against those that there should be.

    >>> compare({0: "0;a", 1: "1;b"}, ["0;a", "0;a", "2;c"])
    Verdict(lost=1, doubled=1, changed=0, foreign=1)
    """
    times: Counter[int] = Counter()
    changed = foreign = 0
    for result in observed:
        text = result.partition(";")[0]
        row = int(text) if text.isdigit() else -1
        if row not in expected:
            foreign += 1
            continue
        times[row] += 1
        changed += result != expected[row]
    doubled = sum(count - 1 for count in times.values())
    return Verdict(len(expected) - len(times), doubled, changed, foreign)


def sees_planted_errors(expected: Mapping[int, str], observed: list[str]) -> bool:
    """Whether ``compare`` notices a missing, an additional and a changed record, tried on the results that were read."""
    middle = len(observed) // 2
    twice = compare(expected, [*observed, observed[middle]])
    missing = compare(expected, observed[:middle] + observed[middle + 1 :])
    other = compare(expected, [*observed[:middle], observed[middle] + "?", *observed[middle + 1 :]])
    return (twice.doubled, missing.lost, other.changed) == (1, 1, 1)
