"""Counts the exchanges that equal Kafka's in the recorded stories (scripted requests), for each API and version.

All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.differential.listed import Row
from tests.differential.runner import Difference, Transcript

_ASKED = re.compile(r"(\w+) v(\d+)\b")


@dataclass
class Exchanges:
    """Numbers of exchanges of one API in one version."""

    compared: int = 0
    differ: int = 0
    """Number of exchanges that differ from Kafka's in any field."""
    differ_in_error: int = 0
    """Number of exchanges that differ from Kafka's in an error code, or had no response."""
    rows: set[str] = field(default_factory=set)
    """Ids of the rows of docs/differences.md that explain the differences."""

    def add(self, other: Exchanges) -> None:
        self.compared += other.compared
        self.differ += other.differ
        self.differ_in_error += other.differ_in_error
        self.rows |= other.rows


ByVersion = dict[tuple[str, int], Exchanges]


def exchanges_of(
    kafka: Transcript, differences: Iterable[Difference], table: Iterable[Row] = ()
) -> ByVersion:
    """Exchanges of one story (scripted requests).

    From the first missing or different request on, all exchanges count as different.
    """
    differ: dict[int, set[str]] = {}
    differ_in_error: set[int] = set()
    first_missing = len(kafka)
    rows = list(table)
    for each in differences:
        differ.setdefault(each.number, set()).update(row.id for row in rows if row.met(each))
        if each.field.endswith("error_code") or each.field == "answer":
            differ_in_error.add(each.number)
        if each.field == "ask":
            first_missing = min(first_missing, each.number)
    found: ByVersion = {}
    for number, exchange in enumerate(kafka):
        asked = _ASKED.match(exchange["ask"])
        if asked is not None:
            is_missing = number >= first_missing
            one = Exchanges(
                1,
                int(is_missing or number in differ),
                int(is_missing or number in differ_in_error),
                differ.get(number, set()),
            )
            found.setdefault((asked[1], int(asked[2])), Exchanges()).add(one)
    return found


def to_json(found: ByVersion) -> dict[str, list[Any]]:
    return {
        f"{name} v{version}": [one.compared, one.differ, one.differ_in_error, sorted(one.rows)]
        for (name, version), one in sorted(found.items())
    }


def sum_of(stories: Iterable[Mapping[str, list[Any]]]) -> ByVersion:
    """The numbers of exchanges of several stories, added up by API and version. Each story is given as by `to_json`."""
    total: ByVersion = {}
    for each in stories:
        for asked, (compared, differ, differ_in_error, rows) in each.items():
            name, _, version = asked.rpartition(" v")
            key = (name, int(version))
            total.setdefault(key, Exchanges()).add(Exchanges(compared, differ, differ_in_error, set(rows)))
    return total
