"""The certifier names a cause beyond Kafka only if the requests of the wrong row show it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from odradek.certify.judging.findings import Kind
from odradek.certify.judging.rows import Row
from odradek.certify.lints import Evidence, Lint, changing, lint
from odradek.certify.lints.causes import diagnosed
from odradek.certify.lints.failures import Bad
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection, Plan
from tests.odradek.certify.traces import (
    commit,
    fetch,
    insert,
    offsets,
    post,
    produce,
    sql,
    trace,
    with_records,
)

RESULTS = "postgres:SELECT id, customer, amount FROM results"
ENTRIES = "postgres:SELECT id, amount FROM entries"
TOTALS = "postgres:SELECT customer, amount FROM totals"
LINES = "postgres:SELECT customer, line, amount FROM lines"
PAYMENTS = "http:POST /v1/payments"
IGNORE = "ON CONFLICT DO NOTHING"
ADD = "ON CONFLICT (customer) DO UPDATE SET amount = totals.amount + excluded.amount"
NEXT = "127.0.0.1:6001"
"""The connection of the process that replaces the first one."""


def order(number: int) -> dict[str, Any]:
    return {"id": f"o{number}", "customer": f"c{number}", "amount": 100 + number}


def read(number: int, offset: int | None = None) -> dict[str, Any]:
    """A Fetch of one order, whose offset is its number."""
    offset = number if offset is None else offset
    return with_records(fetch("in", offset=offset, count=1), (f"c{number}", json.dumps(order(number))))


def event(number: int, **more: Any) -> dict[str, Any]:
    return with_records(produce("events", base=number, **more), (f"o{number}", json.dumps(order(number))))


def store(number: int, tx: int, how: str = IGNORE, **more: Any) -> list[Any]:
    """The transaction of one order's row in the table results."""
    return [insert("results", *order(number).values(), tx=tx, how=how, **more), commit(tx)]


def entry(number: int, tx: int, **more: Any) -> list[Any]:
    return [insert("entries", f"o{number}", 100 + number, tx=tx, **more), commit(tx)]


def seen(*entries: Any) -> Evidence:
    outputs = frozenset({"events", RESULTS, ENTRIES, TOTALS, LINES, PAYMENTS})
    return Evidence(trace(*entries), frozenset({"in"}), outputs)


def wrong(kind: Kind, output: str, key: str | None, **value: Any) -> Bad:
    return Bad(frozenset({kind}), wrong=((kind, Row(output, key, json.dumps(value))),))


def row(kind: Kind, number: int, output: str = RESULTS) -> Bad:
    return wrong(kind, output, f"o{number}", **(order(number) if output != ENTRIES else _entry(number)))


def _entry(number: int) -> dict[str, Any]:
    return {"id": f"o{number}", "amount": 100 + number}


def why(bad: Bad, *entries: Any) -> list[Lint]:
    return diagnosed(seen(*entries), bad)


def names(found: list[Lint]) -> list[str]:
    return [each.name for each in found]


LOST, TWICE, CHANGED = Kind.LOST, Kind.DUPLICATED, Kind.CHANGED

# -- lost rows -----------------------------------------------------------------------------------------------------------


def test_an_offset_that_is_committed_before_the_row_loses_the_row() -> None:
    (found,) = why(row(LOST, 1), read(0), offsets("in", 1), store(0, 1), read(1), offsets("in", 2))
    assert found.name == "offset-before-database"
    assert found.link == "docs/certify-services.md#offset-before-database"
    assert found.sentence.startswith("OffsetCommit in #2 at 00:00:00.")
    assert ", then the COMMIT of the row is missing: " in found.sentence


def test_the_pair_names_the_commit_that_came_too_late() -> None:
    late = [read(1), offsets("in", 2), insert("results", *order(1).values(), tx=1), sql("ROLLBACK", tx=1)]
    (found,) = why(row(LOST, 1), *late)
    assert found.name == "offset-before-database"
    assert ", then postgres ROLLBACK #1 at 00:00:00." in found.sentence


def test_offsets_that_are_committed_now_before_and_now_after_the_row_are_committed_automatically() -> None:
    first = [read(0), store(0, 1)]
    open_block = [read(1), insert("results", *order(1).values(), tx=2), offsets("in", 2)]
    (found,) = why(row(LOST, 1), first, open_block)
    assert (found.name, found.link) == ("auto-commit", "docs/certify.md#auto-commit")
    assert "OffsetCommit in #1 at" in found.sentence
    always_before = [read(0), insert("results", *order(0).values(), tx=1), offsets("in", 1), commit(1)]
    assert names(why(row(LOST, 1), always_before, open_block)) == ["offset-before-database"]


def test_an_offset_that_is_committed_behind_the_row_is_no_cause() -> None:
    assert why(row(LOST, 1), read(1), store(1, 1), offsets("in", 2)) == []
    assert why(row(LOST, 1), read(1), offsets("in", 1)) == [], "the offset of another record"


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param([commit(1, error="40001")], id="COMMIT is rejected"),
        pytest.param([commit(1, outcome="unanswered")], id="COMMIT gets no response"),
    ],
)
def test_a_failed_commit_behind_which_the_job_goes_on(failed: list[Any]) -> None:
    tried = insert("results", *order(1).values(), tx=1)
    (found,) = why(row(LOST, 1), read(1), tried, failed, offsets("in", 2))
    assert found.name == "commit-swallowed"
    assert "postgres COMMIT #1 at" in found.sentence
    assert ", then OffsetCommit in #1 at" in found.sentence


def test_a_commit_of_a_failed_block_that_returns_rollback() -> None:
    refused = insert("results", *order(1).values(), tx=1, error="40P01")
    (found,) = why(row(LOST, 1), read(1), refused, commit(1, tag="ROLLBACK"), offsets("in", 2))
    assert found.name == "commit-swallowed"
    assert "INSERT failed (40P01), COMMIT returned ROLLBACK, and the job went on" in found.sentence


def test_a_failed_commit_that_is_repeated_is_not_swallowed() -> None:
    tried = insert("results", *order(1).values(), tx=1)
    again = [read(1), insert("results", *order(1).values(), tx=2), commit(2)]
    assert why(row(LOST, 1), read(1), tried, commit(1, error="40001"), again, offsets("in", 2)) == []


def test_a_lost_commit_whose_offset_was_committed_before_is_not_swallowed() -> None:
    tried = [
        read(1),
        offsets("in", 2),
        insert("results", *order(1).values(), tx=1),
        commit(1, outcome="unanswered"),
    ]
    assert names(why(row(LOST, 1), *tried, offsets("in", 3))) == ["offset-before-database"]


def prepare(number: int, tx: int) -> list[Any]:
    return [
        insert("results", *order(number).values(), tx=tx),
        sql(f"PREPARE TRANSACTION 'job-{number}'", tx=tx),
    ]


def test_offsets_on_their_way_when_the_process_is_killed_at_commit_are_no_swallowed_commit() -> None:
    tried = insert("results", *order(1).values(), tx=1)
    kill = Plan((Injection(Moment("postgres:COMMIT", (), 1, ""), BY_NAME["kill-before"]),))
    bad = replace(row(LOST, 1), plan=kill)
    assert names(why(bad, read(1), tried, commit(1, outcome="unanswered"), offsets("in", 2))) == [
        "offset-before-database"
    ]


def test_a_number_that_is_equal_by_chance_concerns_no_other_row() -> None:
    numbered = "postgres:SELECT entry, id, amount FROM entries"
    bad = wrong(LOST, numbered, "101", entry=101, id="o9", amount=7)
    named = sql("INSERT INTO entries (id, amount) VALUES ($1, $2)", "o1", 101, tx=1)
    assert why(bad, read(1), offsets("in", 2), named, commit(1, error="40001")) == []


def test_a_prepared_transaction_that_nobody_ends() -> None:
    ended = [prepare(0, 1), sql("COMMIT PREPARED 'job-0'")]
    (found,) = why(row(LOST, 1), read(0), ended, read(1), prepare(1, 2), event(1))
    assert found.name == "prepared-forgotten"
    assert "then neither COMMIT PREPARED nor ROLLBACK PREPARED" in found.sentence
    assert "'job-1'" in found.sentence
    assert names(why(Bad(frozenset({Kind.STUCK})), read(1), prepare(1, 2))) == ["prepared-forgotten"]


def test_a_prepared_transaction_of_another_row_is_no_cause() -> None:
    assert why(row(LOST, 2), read(1), prepare(1, 2)) == []
    assert why(row(LOST, 1), prepare(1, 1), sql("ROLLBACK PREPARED 'job-1'")) == []


def test_on_conflict_do_nothing_that_hides_another_row() -> None:
    first = [
        insert("lines", "c0", 1, 100, tx=1, how=IGNORE),
        insert("lines", "c0", 2, 137, tx=1, how=IGNORE),
        commit(1),
    ]
    again = [insert("lines", "c0", 1, 174, tx=2, how=IGNORE, rows=0), commit(2)]
    (found,) = why(wrong(LOST, LINES, "c0", customer="c0", line=3, amount=174), first, again)
    assert found.name == "do-nothing-hides"
    assert "postgres INSERT lines #1 at" in found.sentence
    assert "then postgres INSERT lines #3 at" in found.sentence


def test_a_row_with_counted_values_has_no_known_input_record() -> None:
    lines = [insert("lines", "c1", 1, 101, tx=1, how=IGNORE), commit(1)]
    bad = wrong(LOST, LINES, "c1", customer="c1", line=2, amount=101)
    assert why(bad, read(1), lines, offsets("in", 2), read(1, offset=2), offsets("in", 3)) == []


def test_on_conflict_do_nothing_that_skips_the_same_row_hides_nothing() -> None:
    first = [insert("lines", "c0", 1, 100, tx=1, how=IGNORE), commit(1)]
    again = [insert("lines", "c0", 1, 100, tx=2, how=IGNORE, rows=0), commit(2)]
    assert why(wrong(LOST, LINES, "c0", customer="c0", line=1, amount=100), first, again) == []


def test_an_inbox_row_in_a_transaction_of_its_own_loses_the_output() -> None:
    mark = insert("inbox", "o1", how=IGNORE)
    (found,) = why(
        row(LOST, 1, ENTRIES),
        read(1),
        mark,
        read(1),
        insert("inbox", "o1", how=IGNORE, rows=0),
        offsets("in", 2),
    )
    assert found.name == "dedup-outside-transaction"
    assert "postgres INSERT inbox #1 at" in found.sentence
    assert "then postgres INSERT inbox #2 at" in found.sentence


def test_an_inbox_row_in_the_transaction_of_the_output_is_no_cause() -> None:
    both = [insert("inbox", "o1", tx=1, how=IGNORE), insert("entries", "o1", 101, tx=1), commit(1)]
    again = [insert("inbox", "o1", tx=2, how=IGNORE, rows=0), commit(2)]
    assert why(row(LOST, 1, ENTRIES), read(1), both, read(1), again, offsets("in", 2)) == []


# -- rows and events -----------------------------------------------------------------------------------------------------


def test_a_row_that_is_committed_before_its_event() -> None:
    lost = [store(0, 1), event(0), store(1, 2), insert("results", *order(1).values(), how=IGNORE, rows=0)]
    (found,) = why(row(LOST, 1, "events"), *lost)
    assert found.name == "dual-write"
    assert "the row is committed before the event is sent" in found.sentence
    assert "postgres COMMIT #2 at" in found.sentence
    assert "then no Produce of the row" in found.sentence


def test_the_pair_names_the_produce_that_failed() -> None:
    (found,) = why(row(LOST, 1, "events"), store(1, 2), event(1, error="NOT_LEADER_OR_FOLLOWER"))
    assert found.name == "dual-write"
    assert "postgres COMMIT #1 at" in found.sentence
    assert ", then Produce events #1 at" in found.sentence


def test_an_event_is_found_by_its_value_if_many_records_have_its_key() -> None:
    def copied(number: int) -> list[Any]:
        record = with_records(fetch("in", offset=number, count=1), ("k", f"v{number}"))
        return [record, insert("results", f"v{number}", 5, tx=number), commit(number)]

    sent = with_records(produce("events"), ("k", "V1"))
    bad = Bad(frozenset({LOST}), wrong=((LOST, Row("events", "k", "V2")),))
    assert names(why(bad, copied(1), sent, copied(2), offsets("in", 3))) == ["dual-write"]
    other = Bad(frozenset({LOST}), wrong=((LOST, Row("events", "k", "V3")),))
    assert why(other, copied(1), sent, copied(2), offsets("in", 3)) == []


def test_an_event_that_is_sent_before_its_row() -> None:
    tried = [insert("results", *order(1).values(), tx=1), event(1)]
    (found,) = why(row(LOST, 1), tried, sql("ROLLBACK", tx=1))
    assert found.name == "dual-write"
    assert "the event is sent before the row is committed" in found.sentence
    assert "Produce events #1 at" in found.sentence
    assert "then postgres ROLLBACK #1 at" in found.sentence


def test_an_event_that_is_sent_again_as_its_row_was_not_committed() -> None:
    begun = [read(1), insert("results", *order(1).values(), tx=1), event(1)]
    again = [read(1), insert("results", *order(1).values(), tx=2, peer=NEXT), event(1), commit(2, peer=NEXT)]
    found = why(row(TWICE, 1, "events"), begun, again, offsets("in", 2))
    assert names(found) == ["dual-write"]


def test_a_row_without_an_event_is_no_dual_write_if_the_job_sends_none_for_rows() -> None:
    assert why(row(LOST, 1, "events"), store(0, 1), store(1, 2)) == []
    assert why(row(LOST, 3, "events"), store(0, 1), event(0), store(1, 2)) == [], (
        "a row that was not committed"
    )


def relay(number: int, *, early: bool) -> list[Any]:
    found = sql("SELECT id, key, payload FROM outbox ORDER BY id LIMIT 10", tx=number, rows=1)
    sent = [] if early else [event(number)]
    gone = [sql("DELETE FROM outbox WHERE id = $1", number, tx=number), commit(number)]
    return [found, *sent, *gone, *([event(number)] if early else [])]


def test_an_outbox_row_that_is_deleted_before_its_event() -> None:
    (found,) = why(row(LOST, 2, "events"), relay(1, early=True), relay(2, early=True)[:-1])
    assert found.name == "outbox-deleted-early"
    assert "postgres COMMIT #2 at" in found.sentence
    assert "then no Produce of the event" in found.sentence


def test_a_relay_that_waits_for_the_response_is_no_cause() -> None:
    assert why(row(LOST, 3, "events"), relay(1, early=False), relay(2, early=False)) == []


# -- duplicated rows and requests ----------------------------------------------------------------------------------------


def test_rows_that_are_written_again_as_the_offset_was_not_committed_with_them() -> None:
    found = why(
        row(TWICE, 1, ENTRIES), read(1), entry(1, 1), read(1), entry(1, 2, peer=NEXT), offsets("in", 2)
    )
    assert names(found) == ["offsets-outside"]
    assert "postgres COMMIT #1 at" in found[0].sentence
    assert "then postgres COMMIT #2 at" in found[0].sentence


def test_a_transaction_that_is_executed_again_behind_a_lost_response() -> None:
    first = [insert("entries", "o1", 101, tx=1), commit(1, outcome="answer_lost")]
    assert names(why(row(TWICE, 1, ENTRIES), read(1), first, entry(1, 2), offsets("in", 2))) == [
        "commit-retried"
    ]


def test_an_inbox_row_behind_the_output_duplicates_it() -> None:
    mark = insert("inbox", "o1", how=IGNORE, peer=NEXT)
    found = why(
        row(TWICE, 1, ENTRIES), read(1), entry(1, 1), read(1), entry(1, 2, peer=NEXT), mark, offsets("in", 2)
    )
    assert names(found) == ["dedup-outside-transaction"]


def test_a_lookup_by_select_alone_duplicates_the_output() -> None:
    def looked(tx: int, peer: str) -> list[Any]:
        return [
            sql("SELECT 1 FROM inbox WHERE id = $1", "o1", tx=tx, rows=0, peer=peer),
            insert("entries", "o1", 101, tx=tx, peer=peer),
            insert("inbox", "o1", tx=tx, peer=peer),
        ]

    both = [
        read(1),
        looked(1, "h:1"),
        read(1),
        looked(2, "h:2"),
        commit(1, peer="h:1"),
        commit(2, peer="h:2"),
    ]
    assert names(why(row(TWICE, 1, ENTRIES), *both)) == ["dedup-outside-transaction"]
    one_by_one = [
        read(1),
        looked(1, "h:1"),
        commit(1, peer="h:1"),
        read(1),
        looked(2, "h:2"),
        commit(2, peer="h:2"),
    ]
    assert names(why(row(TWICE, 1, ENTRIES), *one_by_one)) == ["offsets-outside"]


BODY = json.dumps({"order": "o1", "amount": 101})
PAID = wrong(TWICE, PAYMENTS, None, order="o1", amount=101)


def test_a_post_that_is_sent_again_without_a_key() -> None:
    (found,) = why(PAID, read(1), post(BODY, outcome="answer_lost"), post(BODY), offsets("in", 2))
    assert found.name == "post-retried"
    assert "http POST /v1/payments #1 at" in found.sentence
    assert "then http POST /v1/payments #2 at" in found.sentence


def test_a_post_of_a_record_that_is_read_again() -> None:
    assert names(why(PAID, read(1), post(BODY), read(1), post(BODY), offsets("in", 2))) == [
        "no-idempotency-key"
    ]


def test_a_post_that_is_delivered_twice() -> None:
    assert names(why(PAID, read(1), post(BODY), offsets("in", 2))) == ["no-idempotency-key"]


def test_a_new_key_for_each_attempt() -> None:
    (found,) = why(
        PAID, read(1), post(BODY, key="a", outcome="answer_lost"), post(BODY, key="b"), offsets("in", 2)
    )
    assert found.name == "new-idempotency-key"


def test_a_post_with_the_same_key_is_no_cause() -> None:
    assert (
        why(PAID, read(1), post(BODY, key="a", outcome="answer_lost"), post(BODY, key="a"), offsets("in", 2))
        == []
    )
    assert why(PAID, read(0), post('{"order": "o0", "amount": 100}'), offsets("in", 1)) == [], (
        "another record"
    )


def test_equal_requests_of_two_records_have_keys_of_their_own() -> None:
    both = [read(1), post(BODY, key="a"), read(1, offset=2), post(BODY, key="b"), offsets("in", 3)]
    assert why(PAID, *both) == []
    assert names(why(PAID, *both, post(BODY, key="c"))) == ["new-idempotency-key"]


def test_a_status_that_the_job_ignores() -> None:
    lost = wrong(LOST, PAYMENTS, None, order="o1", amount=101)
    assert names(why(lost, read(1), post(BODY, status=503), offsets("in", 2))) == ["response-ignored"]
    assert names(why(lost, read(1), offsets("in", 2))) == ["offset-before-request"]
    assert why(lost, read(1), post(BODY, status=503), post(BODY), offsets("in", 2)) == []


# -- changed rows --------------------------------------------------------------------------------------------------------


def add(number: int, tx: int) -> list[Any]:
    return [insert("totals", f"c{number}", 100 + number, tx=tx, how=ADD), commit(tx)]


def test_an_addition_that_is_repeated() -> None:
    bad = wrong(CHANGED, TOTALS, "c1", customer="c1", amount=202)
    (found,) = why(bad, read(1), add(1, 1), read(1), add(1, 2), offsets("in", 2))
    assert found.name == "not-idempotent-upsert"
    assert "postgres COMMIT #1 at" in found.sentence
    assert "then postgres COMMIT #2 at" in found.sentence


def test_equal_additions_of_two_records_are_no_cause() -> None:
    bad = wrong(CHANGED, TOTALS, "c1", customer="c1", amount=202)
    assert why(bad, read(1), add(1, 1), read(1, offset=2), add(1, 2), offsets("in", 3)) == []


# -- without faults ------------------------------------------------------------------------------------------------------


def warned(*entries: Any) -> set[str]:
    return {each.name for each in lint(seen(*entries))}


ROWS_FIRST = [
    read(0),
    store(0, 1),
    event(0),
    offsets("in", 1),
    read(1),
    store(1, 2),
    event(1),
    offsets("in", 2),
]
EARLY = [read(0), offsets("in", 1), store(0, 1), read(1), offsets("in", 2), store(1, 2)]
INBOX_APART = [
    *(read(0), insert("inbox", "o0", how=IGNORE), entry(0, 1)),
    *(read(1), insert("inbox", "o1", how=IGNORE), entry(1, 2)),
]


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        pytest.param(ROWS_FIRST, "dual-write", id="dual write"),
        pytest.param(EARLY, "offset-before-database", id="offset first"),
        pytest.param(INBOX_APART, "dedup-outside-transaction", id="inbox apart"),
        pytest.param([read(1), add(1, 1)], "not-idempotent-upsert", id="addition"),
        pytest.param([relay(1, early=True), relay(2, early=True)], "outbox-deleted-early", id="relay"),
        pytest.param([prepare(1, 1)], "prepared-forgotten", id="prepared"),
        pytest.param([read(1), post(BODY)], "no-idempotency-key", id="no key"),
    ],
)
def test_a_run_without_faults_shows_what_is_dangerous(entries: list[Any], name: str) -> None:
    assert name in warned(*entries)


INBOX = [
    *(
        read(0),
        insert("inbox", "o0", tx=1, how=IGNORE),
        insert("totals", "c0", 100, tx=1, how=ADD),
        commit(1),
    ),
    offsets("in", 1),
]
POSITIONS = [
    sql("SELECT position FROM positions", rows=1),
    *(
        read(0),
        insert("results", *order(0).values(), tx=1),
        sql("UPDATE positions SET position = $1", 1, tx=1),
        commit(1),
    ),
    *(
        read(1),
        insert("results", *order(1).values(), tx=2),
        sql("UPDATE positions SET position = $1", 2, tx=2),
        commit(2),
    ),
]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(INBOX, id="inbox"),
        pytest.param(POSITIONS, id="positions in the database"),
        pytest.param([relay(1, early=False), relay(2, early=False)], id="relay"),
        pytest.param(
            [read(0), prepare(0, 1), offsets("in", 1), sql("COMMIT PREPARED 'job-0'")], id="two phases"
        ),
        pytest.param([sql("START_REPLICATION SLOT shop", tx=0), *ROWS_FIRST], id="change data capture"),
        pytest.param([read(1), post(BODY, key="o1")], id="key"),
    ],
)
def test_a_right_job_gets_no_warning_on_its_services(entries: list[Any]) -> None:
    assert warned(*entries) - {"offsets-outside"} == set()


def test_keys_that_are_others_at_each_start() -> None:
    one, two = seen(read(1), post(BODY, key="a")), seen(read(1), post(BODY, key="b"))
    assert [each.name for each in changing(one, two)] == ["new-idempotency-key"]
    assert changing(one, one) == []
    kept = seen(insert("outbox", "a", BODY), post(BODY, key="a"))
    assert changing(kept, two) == [], "a key that is stored before it is sent"
