"""Mechanisms of exactly-once at services are recognised in the traces of jobs, and not in traces that only look similar."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.mechanisms import caps, mechanisms, warnings
from odradek.certify.lints import Evidence, lint
from tests.odradek.certify.test_service_causes import (
    BODY,
    EARLY,
    INBOX,
    INBOX_APART,
    POSITIONS,
    ROWS_FIRST,
    add,
    entry,
    prepare,
    read,
    relay,
    seen,
    store,
)
from tests.odradek.certify.traces import commit, end, init, insert, offsets, post, produce, sql, trace
from tests.odradek.certify.traces import entry as request

ASKS = request("OffsetFetch", {"group_id": "g"})


def found(one: list[Any], two: list[Any] | None = None, compare: Compare = Compare.ROWS) -> list[str]:
    ours, theirs = seen(ASKS, *one), seen(ASKS, *(one if two is None else two))
    return [each.name for each in mechanisms(ours, theirs, compare, has_check=False)]


def upserted(number: int, tx: int, *, key: str = "") -> list[Any]:
    how = "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount"
    return [insert("results", key or f"o{number}", f"c{number}", 5, tx=tx, how=how), commit(tx)]


PLAIN = [read(1), entry(1, 1), offsets("in", 2)]


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        pytest.param(POSITIONS, "positions-in-database", id="positions"),
        pytest.param(INBOX, "inbox", id="inbox"),
        pytest.param([read(1), upserted(1, 1), offsets("in", 2)], "idempotent-upsert", id="upsert"),
        pytest.param([read(1), store(1, 1), offsets("in", 2)], "idempotent-upsert", id="do nothing"),
        pytest.param(
            [read(0), prepare(0, 1), offsets("in", 1), sql("COMMIT PREPARED 'job-0'")],
            "two-phase-commit",
            id="xa",
        ),
        pytest.param([relay(1, early=False), relay(2, early=False)], "outbox", id="outbox"),
        pytest.param([read(1), post(BODY, key="o1"), offsets("in", 2)], "idempotency-keys", id="keys"),
    ],
)
def test_a_mechanism_at_a_service(entries: list[Any], name: str) -> None:
    assert name in found(entries)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(PLAIN, id="rows that are inserted, offsets in Kafka"),
        pytest.param([read(1), entry(1, 1)], id="rows that are inserted, offsets elsewhere"),
        pytest.param([read(1), add(1, 1), offsets("in", 2)], id="additions"),
        pytest.param([read(1), post(BODY), offsets("in", 2)], id="requests without keys"),
        pytest.param(INBOX_APART, id="inbox in another transaction"),
    ],
)
def test_no_mechanism(entries: list[Any]) -> None:
    assert found(entries) == []


def test_keys_of_rows_that_are_others_in_each_run_are_no_mechanism() -> None:
    one = [read(1), upserted(1, 1, key="2f1a"), offsets("in", 2)]
    assert found(one, [read(1), upserted(1, 1, key="77cd"), offsets("in", 2)]) == []
    assert found(one) == ["idempotent-upsert"]


def test_keys_of_requests_that_are_others_in_each_run_are_no_mechanism() -> None:
    one, two = ([read(1), post(BODY, key=key), offsets("in", 2)] for key in ("a", "b"))
    assert found(one, two) == []


def test_an_offset_that_no_statement_reads_is_no_position() -> None:
    assert "positions-in-database" not in found(POSITIONS[1:])


def test_files_with_the_same_names_in_both_runs() -> None:
    one = seen(ASKS, read(1), offsets("in", 2))

    def by(*files: frozenset[str]) -> list[str]:
        found = mechanisms(one, one, Compare.ROWS, has_check=False, files=(files[0], files[-1]))
        return [each.name for each in found]

    assert "named-files" in by(frozenset({"a-0", "a-5"}))
    assert "named-files" not in by(frozenset({"a-0", "a-5"}), frozenset({"a-0", "b-5"}))
    assert "named-files" not in by(frozenset({"all"})), "a file that grows"


def connector(name: str, *, stores: bool = True) -> list[Any]:
    """A source task of Kafka Connect that sends one record, and stores its offset."""
    stored = [produce("connect-offsets", tx=name)] if stores else []
    return [init(name), produce("events", tx=name), *stored, end(name)]


def sourced(one: list[Any], two: list[Any]) -> list[str]:
    ours, theirs = (Evidence(trace(each), frozenset(), frozenset({"events"})) for each in (one, two))
    return [each.name for each in mechanisms(ours, theirs, Compare.ROWS, has_check=False)]


def test_records_and_offsets_of_a_source_connector_in_one_transaction() -> None:
    assert "offsets-in-transaction" in sourced(connector("c-1"), connector("c-1"))
    assert "offsets-in-transaction" not in sourced(
        connector("c-1", stores=False), connector("c-1", stores=False)
    )
    assert "offsets-in-transaction" not in sourced(connector("c-1"), connector("c-2")), (
        "another id at each start"
    )


@pytest.mark.parametrize(
    ("entries", "defeated"),
    [
        pytest.param(ROWS_FIRST, {"dual-write"}, id="events beside idempotent rows"),
        pytest.param(EARLY, {"offset-before-database"}, id="offsets before idempotent rows"),
        pytest.param(PLAIN, {"offsets-outside"}, id="rows that are inserted"),
        pytest.param([ASKS, *INBOX], set(), id="inbox"),
        pytest.param([read(1), store(1, 1), offsets("in", 2)], set(), id="upsert"),
        pytest.param([read(1), post(BODY, key="o1"), offsets("in", 2)], set(), id="keys"),
    ],
)
def test_the_lints_that_defeat_the_mechanisms(entries: list[Any], defeated: set[str]) -> None:
    evidence = seen(ASKS, *entries)
    by = mechanisms(evidence, evidence, Compare.ROWS, has_check=False)
    assert {each.name for each in caps(lint(evidence), by)} == defeated
    assert {each.name for each in warnings(lint(evidence), by)} == defeated
