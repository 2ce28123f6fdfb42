"""`odradek consume` reports the records that it does not show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

import odradek as package
from tests.support.clients import eventually
from tests.support.notices import without_notices
from tests.tools.conftest import Run, invoke
from tools.client.transactions import Transaction
from tools.explain.hidden import SHOWN_MAX, Hidden, Stops, sentences

ETL = Transaction("etl-3", "Ongoing", 5, 0, 1, 60_000, 1_795_904_000_000, (("orders", 0),))
OPEN = Hidden("orders", 0, stable=12, end=20, producer_id=5, known=ETL)
MORE = "`odradek explain orders/0` explains it"


def test_aborted_records_are_counted() -> None:
    assert Hidden("orders", 0, aborted=3).sentences() == ["orders-0: 3 aborted records are not shown"]
    assert Hidden("orders", 0, aborted=1).sentences() == ["orders-0: 1 aborted record is not shown"]


def test_the_open_transaction_at_which_readers_stop_is_named() -> None:
    assert OPEN.sentences() == [
        "orders-0: readers stop at offset 12 of 20: a transaction of producer 5 (etl-3), open since "
        f"2026-11-28T22:13:20.000Z, begins there; {MORE}"
    ]


def test_a_transaction_that_begins_in_the_future_is_not_called_old() -> None:
    future = "4 min 58 s in the future of the coordinator's clock"
    assert replace(OPEN, future=future).sentences() == [
        "orders-0: readers stop at offset 12 of 20: a transaction of producer 5 (etl-3), open since "
        f"2026-11-28T22:13:20.000Z, {future}, begins there; {MORE}"
    ]


def test_a_decided_transaction_without_its_marker_is_not_called_open_and_the_rule_is_named() -> None:
    decided = replace(
        OPEN, known=replace(ETL, state="PrepareCommit"), cause="rule 6 (txn.marker -> hold) holds it"
    )
    assert decided.sentences() == [
        "orders-0: readers stop at offset 12 of 20: a transaction of producer 5 (etl-3), in PrepareCommit and without its "
        "marker, begins there; rule 6 (txn.marker -> hold) holds it"
    ]


def test_unknown_details_are_omitted() -> None:
    gone = replace(ETL, state="CompleteAbort", start_ms=None)
    for hidden, who in (
        (replace(OPEN, known=gone), "a transaction of producer 5 (etl-3) without a marker"),
        (replace(OPEN, known=None), "a transaction of producer 5 without a marker"),
        (replace(OPEN, known=None, producer_id=-1), "a transaction without a marker"),
    ):
        assert hidden.sentences() == [
            f"orders-0: readers stop at offset 12 of 20: {who} begins there; {MORE}"
        ]


def test_many_partitions_are_a_few_lines() -> None:
    many = [Hidden("orders", index, aborted=2) for index in range(SHOWN_MAX + 5)]
    assert sentences(many)[SHOWN_MAX:] == ["5 more partitions: 10 aborted records, 0 where readers stop"]


def test_following_reports_once_where_it_has_been_stuck_for_2_s() -> None:
    stops = Stops()
    assert [stops.new([OPEN], now) for now in (100.0, 101.0)] == [[], []]
    assert stops.new([replace(OPEN, aborted=3)], 102.0) == [OPEN]
    assert stops.new([OPEN], 110.0) == []
    further = replace(OPEN, stable=14)
    assert [stops.new([further], now) for now in (111.0, 113.0)] == [[], [further]]


def test_following_reports_once_that_there_are_no_records() -> None:
    stops = Stops()
    assert [stops.is_idle(now) for now in (100.0, 101.0, 102.0, 110.0)] == [False, False, True, False]
    stops = Stops()
    stops.shown = True
    assert [stops.is_idle(now) for now in (100.0, 110.0)] == [False, False]


def test_consume_reports_hidden_records_and_prints_the_others(
    run: Run, consumed: Callable[..., tuple[str, str]]
) -> None:
    run("topic", "create", "hidden1")
    run("produce", "hidden1", "shown")
    run("produce", "hidden1", "-x", "hidden1-a", "one", "two", "--abort")
    # The coordinator responds to EndTxn before it writes the markers.
    eventually(lambda: consumed("hidden1") == ("shown ", "hidden1-0: 2 aborted records are not shown\n"))
    run("txn", "hang", "hidden1-b", "hidden1", "three")
    told = eventually(partial(with_id, consumed, "hidden1", "hidden1-b"))
    assert "hidden1-0: readers stop at offset 4 of 5: a transaction of producer " in told
    assert " (hidden1-b), open since " in told
    assert consumed("hidden1", "-u")[1] == ""


def test_consume_does_not_report_markers(run: Run, consumed: Callable[..., tuple[str, str]]) -> None:
    run("topic", "create", "hidden2")
    run("produce", "hidden2", "-x", "hidden2-a", "one")
    eventually(lambda: consumed("hidden2") == ("one ", ""))
    run("produce", "hidden2", "-x", "hidden2-a", "two", "--abort")
    eventually(lambda: consumed("hidden2")[1])
    # At the end offset the reader passes over no aborted records.
    assert consumed("hidden2", "-o", "end") == ("", "")
    assert consumed("hidden2", "-n", "1") == ("one ", "")


def with_id(consumed: Callable[..., tuple[str, str]], topic: str, transactional_id: str) -> str:
    """The report of `consume` if it contains the transactional id, else "". A busy coordinator may respond too late for the
    report."""
    told = consumed(topic)[1]
    return told if transactional_id in told else ""


@pytest.fixture
def consumed(cluster_of_two: package.Broker) -> Callable[..., tuple[str, str]]:
    """A function that runs `consume` and returns its stdout and stderr."""

    def consumed(*words: str) -> tuple[str, str]:
        done = invoke(cluster_of_two.bootstrap_servers, "consume", *words, "--format", "%v ")
        assert done.exit_code == 0, done.output
        return done.stdout, without_notices(done.stderr)

    return consumed
