"""The comparison of outputs finds lost, duplicated, changed and reordered records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from odradek.certify.judging.agreement import LINES_MAX, agreed, differing
from odradek.certify.judging.comparison import Change, Compare, by_key, compare
from odradek.certify.judging.rows import Row, differing_fields, rows, without
from odradek.topics import Record


def record(
    value: str | bytes | None,
    key: str | bytes | None = None,
    *,
    topic: str = "out",
    offset: int = 0,
    **more: Any,
) -> Record:
    facts: dict[str, object] = {
        "partition": 0,
        "timestamp_ms": 0,
        "headers": (),
        "producer_id": -1,
        "producer_epoch": -1,
        "is_transactional": False,
        "outcome": None,
    }
    return Record(topic=topic, offset=offset, key=key, value=value, **(facts | more))  # type: ignore[arg-type]


def test_rows_are_compared_as_multisets() -> None:
    expected, found = rows(map(record, "aabc")), rows(map(record, "abbx"))
    difference = compare(expected, found, Compare.ROWS)
    assert difference.lost == Counter({Row("out", None, "a"): 1, Row("out", None, "c"): 1})
    assert difference.duplicated == Counter({Row("out", None, "b"): 1})
    assert difference.unexpected == Counter({Row("out", None, "x"): 1})
    assert difference.summary == "lost 2, duplicated 1, unexpected 1"


def test_the_order_of_rows_means_nothing_unless_it_is_asked_for() -> None:
    expected = rows([record("1", "k"), record("2", "k"), record("1", "other")])
    found = rows([record("1", "other"), record("2", "k"), record("1", "k")])
    assert not compare(expected, found, Compare.ROWS)
    difference = compare(expected, found, Compare.ORDERED)
    assert [str(each) for each in difference.reordered] == ["out: key k: 2, without faults 1"]


def test_records_without_a_key_have_an_order_where_partitions_are_compared() -> None:
    one, two = [record("1"), record("2")], [record("2"), record("1")]
    assert not compare(rows(one), rows(two), Compare.ORDERED)
    also = ["partition"]
    (order,) = compare(rows(one, also=also), rows(two, also=also), Compare.ORDERED).reordered
    assert str(order) == "out-0: 2, without faults 1"


# -- compared properties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        (record("v", headers=(("trace", "3"),)), record("v"), "header trace missing, without faults 3"),
        (record("v"), record("v", headers=(("again", None),)), "header again null, without faults missing"),
        (
            record("v", headers=(("a", "1"), ("a", "2"))),
            record("v", headers=(("a", "2"), ("a", "1"))),
            "header a 2, 1, ",
        ),
        (
            record("v", headers=(("a", ""),)),
            record("v", headers=(("a", None),)),
            'header a null, without faults ""',
        ),
        (record(""), record(None), 'value null, without faults ""'),
        (record("v", ""), record("v"), 'key null, without faults ""'),
    ],
)
def test_what_a_record_has_besides_its_content_is_compared(one: Record, two: Record, said: str) -> None:
    difference = compare(rows([record("a"), one]), rows([two, record("a")]), Compare.ROWS)
    ((change, count),) = difference.changed.items()
    assert said in str(change)
    assert (count, difference.summary) == (1, "lost 0, duplicated 0, changed 1")


def test_headers_are_the_same_in_any_order_of_their_names() -> None:
    one = record("v", headers=(("a", "1"), ("b", "2")))
    two = record("v", headers=(("b", "2"), ("a", "1")))
    assert rows([one]) == rows([two])


def test_text_and_bytes_are_two_values() -> None:
    difference = compare(rows([record("0x80")]), rows([record(b"\x80")]), Compare.ROWS)
    assert difference.summary == "lost 1, duplicated 0, unexpected 1"
    assert [str(each) for each in difference.unexpected] == ["out: 0x80"]
    assert [str(each) for each in difference.lost] == ['out: "0x80"']


@pytest.mark.parametrize(
    ("name", "fact", "said"),
    [
        ("partition", {"partition": 2}, "out-2: v: partition 2, without faults 0"),
        ("timestamp", {"timestamp_ms": 5}, "out: v: timestamp 5, without faults 0"),
    ],
)
def test_partition_and_timestamp_are_compared_on_demand(name: str, fact: dict[str, Any], said: str) -> None:
    one, two = [record("v")], [record("v", **fact)]
    assert rows(one) == rows(two)
    (change,) = compare(rows(one, also=[name]), rows(two, also=[name]), Compare.ROWS).changed
    assert str(change) == said


def test_a_repeat_with_other_headers_is_a_duplicate() -> None:
    one, again = record("v", headers=(("trace", "3"),)), record("v")
    difference = compare(rows([one]), rows([one, again]), Compare.ROWS)
    assert difference.summary == "lost 0, duplicated 1"


def test_what_was_changed_is_no_loss_and_what_is_missing_besides_is() -> None:
    expected = rows([record("v", headers=(("h", "1"),)), record("v", headers=(("h", "2"),))])
    difference = compare(expected, rows([record("v")]), Compare.ROWS)
    assert difference.summary == "lost 1, duplicated 0, changed 1"


def test_where_a_key_is_there_once_another_value_is_a_change() -> None:
    difference = compare(rows([record("1", "k")]), rows([record("2", "k")]), Compare.ROWS, by_key)
    assert list(difference.changed) == [Change(Row("out", "k", "1"), Row("out", "k", "2"))]


# -- the last value of each key --------------------------------------------------------------------------------------

TWO = [record("1", "k"), record("2", "k")]


@pytest.mark.parametrize(
    ("values", "summary"),
    [
        ("92", "lost 0, duplicated 0"),
        ("212", "lost 0, duplicated 0, redelivered 1"),
        ("1212", "lost 0, duplicated 0, redelivered 2"),
        ("1", "lost 1, duplicated 0"),
        ("", "lost 1, duplicated 0"),
        ("121", "lost 0, duplicated 0, reordered 1"),
        ("123", "lost 0, duplicated 0, changed 1"),
    ],
)
def test_keyed_compares_the_last_value_of_each_key(values: str, summary: str) -> None:
    difference = compare(rows(TWO), rows([record(each, "k") for each in values]), Compare.KEYED)
    assert difference.summary == summary
    assert bool(difference) == any(word in summary for word in ("lost 1", "changed", "reordered"))


def test_keyed_finds_a_key_that_no_reference_run_has_and_changed_headers() -> None:
    found = rows([*TWO[:1], record("2", "k", headers=(("h", "1"),)), record("1", "other")])
    assert compare(rows(TWO), found, Compare.KEYED).summary == "lost 0, duplicated 0, changed 1, unexpected 1"


def test_keyed_compares_records_without_a_key_as_rows() -> None:
    difference = compare(rows(map(record, "abc")), rows(map(record, "aac")), Compare.KEYED)
    assert difference.summary == "lost 1, duplicated 1"


# -- differences without faults --------------------------------------------------------------------------------------


def test_fields_that_differ_without_faults_are_found_and_left_out() -> None:
    one = [record('{"id": 1, "at": "10:00", "in": {"x": 1, "uuid": "a"}}')]
    two = [record('{"id": 1, "at": "10:01", "in": {"x": 1, "uuid": "b"}}')]
    ignored = differing_fields(one, two)
    assert ignored == {"at", "in.uuid"}
    assert rows(one, ignored) == rows(two, ignored)


def test_headers_that_differ_without_faults_are_left_out() -> None:
    one = [record("v", headers=(("trace-id", "a"), ("kind", "x")))]
    two = [record("v", headers=(("trace-id", "b"), ("kind", "x")))]
    ignored, lines = agreed(one, two, Compare.ROWS)
    assert (ignored, lines) == (frozenset({"header trace-id"}), [])
    lost = compare(rows(one, ignored), rows([record("v")], ignored), Compare.ROWS)
    assert [str(each) for each in lost.changed] == ["out: v: header kind missing, without faults x"]


def test_runs_that_agree_leave_nothing_out() -> None:
    one, two = [record('{"n": 1}'), record('{"n": 2}')], [record('{"n": 2}'), record('{"n": 1}')]
    assert agreed(one, two, Compare.ROWS) == (frozenset(), [])


def test_the_records_in_which_two_runs_differ_are_shown() -> None:
    one = [record("a"), record("b"), record("b"), record("h", "k", headers=(("x", "1"),))]
    two = [record("b"), record("c"), record("h", "k")]
    assert differing(one, two, Compare.ROWS) == [
        "in run 1 only: out: a",
        "2 times in run 1, once in run 2: out: b",
        "in run 2 only: out: c",
        "changed in run 2: out: key k, h: header x missing, run 1 has 1",
    ]
    ordered = [record("1", "k"), record("2", "k")]
    assert differing(ordered, ordered[::-1], Compare.ORDERED) == [
        "reordered in run 2: out: key k: 2, run 1 has 1"
    ]
    assert differing(one, one, Compare.ROWS) == []


def test_of_many_records_that_differ_some_are_shown() -> None:
    lines = differing([record(str(each)) for each in range(30)], [], Compare.ROWS)
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "and 10 more"


@pytest.mark.parametrize("value", ["plain", "[1, 2]", '{"not": json', "", "12"])
def test_a_value_that_is_no_object_stays_as_it_is(value: str) -> None:
    assert without(value, frozenset({"at"})) == value
