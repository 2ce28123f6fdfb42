"""Rows of outputs that are no topics: what is compared, and how findings show them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.certify import settings
from odradek.certify.judging.agreement import agreed
from odradek.certify.judging.comparison import Compare, compare
from odradek.certify.judging.findings import Finding, Kind, Outputs, Reference, judge
from odradek.certify.judging.rows import has_order, rows
from odradek.topics import Record
from tests.odradek.certify.test_comparison import record

TABLE = "postgres:SELECT id, amount FROM results"
ORDERED = f"{TABLE} ORDER BY id"


def table(*found: dict[str, Any], label: str = TABLE) -> list[Record]:
    """The rows of a table whose first column is the key."""
    return [
        replace(
            record(json.dumps(each, sort_keys=True), str(next(iter(each.values()))), topic=label),
            partition=-1,
            offset=number,
        )
        for number, each in enumerate(found)
    ]


def event(key: str, **fields: Any) -> Record:
    return record(json.dumps(fields), key, topic="events")


def judged(expected: list[Record], found: list[Record], how: Compare = Compare.ROWS) -> list[Finding]:
    return judge(Reference(expected, how), Outputs(found, found))


ONE, TWO = {"id": 1, "amount": 10}, {"id": 2, "amount": 20}


def test_evidence_names_rows() -> None:
    [lost] = judged(table(ONE, TWO), table(TWO))
    assert (lost.kind, lost.evidence) == (
        Kind.LOST,
        (f'{TABLE}: key 1, {{"amount": 10, "id": 1}} (no such row)',),
    )
    [duplicated] = judged(table(ONE), table(ONE, ONE))
    assert (duplicated.kind, duplicated.evidence) == (
        Kind.DUPLICATED,
        (f'{TABLE}: key 1, {{"amount": 10, "id": 1}} (row 1; row 2)',),
    )


def test_another_row_with_a_unique_key_is_a_changed_one() -> None:
    [changed] = judged(table(ONE, TWO), table({**ONE, "amount": 30}, TWO))
    assert changed.kind is Kind.CHANGED
    assert changed.evidence == (
        f'{TABLE}: key 1, {{"amount": 30, "id": 1}}: value {{"amount": 30, "id": 1}}, '
        'without faults {"amount": 10, "id": 1} (row 1)',
    )
    several = judged(table(ONE, ONE, TWO), table({**ONE, "amount": 30}, ONE, TWO))
    assert [each.kind for each in several] == [Kind.LOST, Kind.UNEXPECTED]


def test_ids_that_a_database_generates_are_not_compared() -> None:
    first = [*table(ONE, TWO), event("1", order=1, total=10), event("2", order=2, total=20)]
    second = [
        *table({"id": 3, "amount": 20}, {"id": 2, "amount": 10}),
        event("2", order=2, total=10),
        event("3", order=3, total=20),
    ]
    ignored, lines = agreed(first, second, Compare.ROWS)
    assert lines == []
    assert ignored == {f"id of {TABLE}", f"key of {TABLE}", "key of events", "order"}
    # The field of the table is still compared in the events.
    assert str(rows([event("k", id=7)], ignored)[0]) == 'events: {"id": 7}'


def test_the_keys_of_topics_are_compared_if_there_are_only_topics() -> None:
    ignored, lines = agreed([event("a", n=1)], [event("b", n=1)], Compare.ROWS)
    assert ignored == frozenset()
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("key", "fields"),
    [("1", {"total": 10}), ("customer", {"id": "1", "total": 10}), ("customer", {"id": 1, "total": 10})],
)
def test_a_row_without_its_event_is_torn_and_so_is_an_event_without_its_row(
    key: str, fields: dict[str, Any]
) -> None:
    events = [event(key, **fields), event("2", id=2)]
    whole = [*table(ONE, TWO), *events]
    [finding] = judged(whole, [*table(ONE, TWO), events[1]])
    assert finding.kind is Kind.TORN
    assert finding.sentence == f"1 record missing in events, while {TABLE} has the same keys complete"
    [finding] = judged(whole, [*table(TWO), *events])
    assert finding.kind is Kind.TORN
    assert finding.sentence == f"1 record missing in {TABLE}, while events has the same keys complete"


def test_a_row_that_is_missing_with_its_event_is_lost() -> None:
    events = [event("customer", id=1), event("customer", id=2)]
    [finding] = judged([*table(ONE, TWO), *events], [*table(TWO), events[1]])
    assert (finding.kind, finding.sentence) == (Kind.LOST, "2 records missing")


def difference(expected: list[Record], found: list[Record], how: Compare) -> str:
    return compare(rows(expected), rows(found), how).summary


def test_the_last_row_of_a_key_counts_only_if_the_query_has_an_order() -> None:
    old, new = {"id": 1, "amount": 10}, {"id": 1, "amount": 11}
    for label, lost in ((TABLE, "lost 1, duplicated 0"), (ORDERED, "lost 0, duplicated 0")):
        expected = table(old, new, TWO, label=label)
        assert difference(expected, table(new, TWO, label=label), Compare.KEYED) == lost
    expected = table(old, TWO)
    assert difference(expected, table(old, old, TWO), Compare.KEYED) == "lost 0, duplicated 0, redelivered 1"
    assert difference(expected, table(new, TWO), Compare.KEYED) == "lost 0, duplicated 0, changed 1"
    assert difference(expected, table(old, new, TWO), Compare.KEYED) == "lost 0, duplicated 0, unexpected 1"


def test_rows_in_the_order_of_a_query() -> None:
    first, second = {"customer": "c", "n": 1}, {"customer": "c", "n": 2}
    label = "postgres:SELECT customer, n FROM lines ORDER BY n"
    [finding] = judged(table(first, second, label=label), table(second, first, label=label), Compare.ORDERED)
    assert finding.kind is Kind.REORDERED
    assert finding.evidence[0].startswith(f"{label}: key c: ")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("events", True),
        ("http:POST /v1/payments", True),
        ("postgres:SELECT a FROM t", False),
        ("postgres.second:select a from t\n order by a", True),
        ("postgres:SELECT a, row_number() OVER (PARTITION BY (b) ORDER BY c) FROM t", False),
        ("postgres:SELECT 'ORDER BY' FROM t -- order by a", False),
        ("files:out/*.csv", False),
        ("files:out", False),
        ("files:out/rows.csv.gz", True),
    ],
)
def test_outputs_with_an_order(output: str, *, expected: bool) -> None:
    assert has_order(output) is expected


def test_an_order_by_key_needs_an_order(tmp_path: Path) -> None:
    options = {"job": "true", "output": ["files:out/*.csv"], "compare": "ordered-by-key"}
    with pytest.raises(ValueError, match=r"files:out/\*.csv has no order: add ORDER BY, or name a single"):
        settings.workload(options, tmp_path)
