"""What holds decided records back, said of a control port whose answers are made up."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.control_client import ControlClient
from odradek.hidden_records import hidden_records
from odradek.topics import ReadRecords

MARKERS = {"id": 7, "text": "txn.marker -> lose", "rule": {"on": "txn.marker", "action": {"do": "lose"}}}
CUT = {"id": 8, "text": "cut 1 2", "rule": {"action": {"do": "cut"}}}


class Canned(ControlClient):
    """A control port of one topic, ``orders``, with one partition."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("http://127.0.0.1:1")
        self._answers = {"records": [], "transactions": [], "faults": [], "nodes": [], **answers}

    def get(self, path: str, query: object = None, timeout_s: float | None = None) -> Any:
        what = {"/v1/cluster": "nodes"}.get(path, path.rpartition("/")[2])
        found = {what: self._answers[what]}
        if what == "records":
            end = 3 + len(self._answers["records"])
            return {**found, "next_offset": end, "end_offset": end, "high_watermark": end, "partitions": 1}
        return found


def record(offset: int, outcome: str | None, producer_id: int = -1) -> dict[str, Any]:
    texts = dict.fromkeys(["key", "key_base64", "value", "value_base64"])
    said = {"offset": offset, "outcome": outcome, "producer_id": producer_id, "producer_epoch": 0}
    return {
        **texts,
        **said,
        "partition": 0,
        "timestamp_ms": 0,
        "headers": [],
        "is_transactional": bool(outcome),
    }


def transaction(state: str) -> dict[str, Any]:
    times = dict.fromkeys(["start_ms", "open_ms", "last_update_ms"])
    ids = {"transactional_id": "etl", "producer_id": 1, "producer_epoch": 0, "coordinator": 1}
    return {**times, **ids, "timeout_ms": 60_000, "state": state, "partitions": ["orders-0"]}


def held(at: str, transactional_id: str | None, *partitions: str) -> dict[str, Any]:
    return {"at": at, "node": 1, "transactional_id": transactional_id, "partitions": list(partitions)}


def rule(base: dict[str, Any], *holds: dict[str, Any], hits: int = 1) -> dict[str, Any]:
    return {**base, "hits": hits, "held": list(holds)}


def hidden(**answers: Any) -> list[str]:
    lines = hidden_records(Canned(**answers), "orders", ReadRecords([], {0: 3}), None)
    return [line.strip() for line in lines]


HEAD = "orders: 1 decided record is behind the last stable offset, where read_committed consumers do not get them"


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(3, "open", 1)],
        [record(3, "open", 1), record(4, "aborted", 2)],
    ],
)
def test_nothing_is_said_of_what_is_undecided(records: list[dict[str, Any]]) -> None:
    assert hidden(records=records, transactions=[transaction("Ongoing")]) == []
    # A hanging transaction: no coordinator will decide it.
    assert hidden(records=records, nodes=[{"node_id": 1, "state": "running"}]) == []


@pytest.mark.parametrize(
    ("state", "rules", "why"),
    [
        ("Ongoing", [], "etl is Ongoing"),
        ("Ongoing", [rule(MARKERS)], "etl is Ongoing"),
        (
            "Ongoing",
            [rule(MARKERS, held("EndTxn", "etl"))],
            "etl is Ongoing: rule 7 (txn.marker -> lose) holds EndTxn on node 1",
        ),
        ("PrepareAbort", [rule(MARKERS, hits=0)], "etl is PrepareAbort: its marker has not come"),
        ("PrepareAbort", [rule(MARKERS)], "etl is PrepareAbort: rule 7 (txn.marker -> lose) may be why"),
        ("PrepareAbort", [rule(CUT, hits=0)], "etl is PrepareAbort: rule 8 (cut 1 2) may be why"),
        (
            "PrepareAbort",
            [rule(CUT), rule(MARKERS, held("WriteTxnMarkers", None, "orders-0"))],
            "etl is PrepareAbort: rule 7 (txn.marker -> lose) holds WriteTxnMarkers on node 1",
        ),
        (
            "PrepareAbort",
            [rule(MARKERS, held("txn.marker", "etl", "payments-0"), held("Fetch", None, "orders-0"), hits=0)],
            "etl is PrepareAbort: its marker has not come",
        ),
    ],
)
def test_what_holds_the_last_stable_offset_is_named(
    state: str, rules: list[dict[str, Any]], why: str
) -> None:
    records = [record(3, "open", 1), record(4, None)]
    lines = hidden(records=records, transactions=[transaction(state)], faults=rules)
    assert lines == [HEAD, f"orders-0 @3: {why}"]


def test_a_transaction_in_prepare_commit_hides_its_own_records() -> None:
    lines = hidden(records=[record(3, "open", 1)], transactions=[transaction("PrepareCommit")])
    assert lines == [HEAD, "orders-0 @3: etl is PrepareCommit: its marker has not come"]


def test_a_transaction_whose_coordinator_may_be_away_is_perhaps_decided() -> None:
    records = [record(3, "open", 1)]
    nodes = [{"node_id": 1, "state": "running"}, {"node_id": 2, "state": "killed"}]
    assert hidden(records=records, nodes=nodes) == [
        HEAD.replace("decided", "perhaps decided"),
        "orders-0 @3: producer id 1, which no running coordinator knows: node 2 is killed",
    ]
    # With all nodes there it hangs, and hides what is behind it.
    lines = hidden(records=[*records, record(4, "committed", 2)], nodes=nodes[:1])
    assert lines[1] == "orders-0 @3: producer id 1, which no running coordinator knows: a hanging transaction"
