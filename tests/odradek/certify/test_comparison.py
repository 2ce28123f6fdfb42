"""What a run has lost, doubled, or put into another order."""

from __future__ import annotations

from collections import Counter

import pytest

from odradek.certify.comparison import Compare, compare, differing_fields, rows, without
from odradek.topics import Record


def record(
    value: str, key: str | None = None, *, topic: str = "out", offset: int = 0, **more: object
) -> Record:
    facts: dict[str, object] = {
        "timestamp_ms": 0,
        "headers": (),
        "producer_id": -1,
        "producer_epoch": -1,
        "is_transactional": False,
        "outcome": None,
    }
    return Record(topic=topic, partition=0, offset=offset, key=key, value=value, **(facts | more))  # type: ignore[arg-type]


def test_rows_are_compared_as_multisets() -> None:
    expected, found = rows(map(record, "aabc")), rows(map(record, "abbx"))
    difference = compare(expected, found, Compare.ROWS)
    assert difference.lost == Counter({("out", "", "a"): 1, ("out", "", "c"): 1})
    assert difference.duplicated == Counter({("out", "", "b"): 1})
    assert difference.unexpected == Counter({("out", "", "x"): 1})


def test_the_order_of_rows_means_nothing_unless_it_is_asked_for() -> None:
    expected = rows([record("1", "k"), record("2", "k"), record("1", "other")])
    found = rows([record("1", "other"), record("2", "k"), record("1", "k")])
    assert not compare(expected, found, Compare.ROWS)
    assert compare(expected, found, Compare.ORDERED).reordered == (("out", "k"),)


def test_keyed_compares_the_last_value_of_each_key() -> None:
    expected = rows([record("1", "k"), record("2", "k")])
    assert not compare(expected, rows([record("9", "k"), record("2", "k")]), Compare.KEYED)
    assert compare(expected, rows([record("2", "k"), record("1", "k")]), Compare.KEYED).lost


def test_fields_that_differ_without_faults_are_found_and_left_out() -> None:
    one = [record('{"id": 1, "at": "10:00", "in": {"x": 1, "uuid": "a"}}')]
    two = [record('{"id": 1, "at": "10:01", "in": {"x": 1, "uuid": "b"}}')]
    ignored = differing_fields(one, two)
    assert ignored == {"at", "in.uuid"}
    assert rows(one, ignored) == rows(two, ignored)


@pytest.mark.parametrize("value", ["plain", "[1, 2]", '{"not": json', "", "12"])
def test_a_value_that_is_no_object_stays_as_it_is(value: str) -> None:
    assert without(value, frozenset({"at"})) == value
