"""The explanation why read_committed consumers do not get some committed or plain records, from a fake control port."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.control_client import ControlClient
from odradek.errors import NotFound
from odradek.hidden_records import hidden_records
from odradek.topics import ReadRecords

WHY = "Readers with read_committed of orders-0 stop at offset 3."
HEAD = "orders: 1 decided record is behind the last stable offset, where read_committed consumers do not get them"


class Canned(ControlClient):
    """A fake control port with one topic, ``orders``, with one partition."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("http://127.0.0.1:1")
        self._answers = {"records": [], "transactions": [], "nodes": [], **answers}

    def get(self, path: str, query: object = None, timeout_s: float | None = None) -> Any:
        if path == "/v1/explain":
            if not self._answers.get("explains", True):
                raise NotFound(404, "there is nothing at /v1/explain")
            assert query == {
                **dict.fromkeys(["group", "transactional_id", "offset"]),
                "topic": "orders",
                "partition": 0,
            }
            return {"explanations": [{"subject": "orders-0", "cause": "held", "lines": [WHY, "and more"]}]}
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


def hidden(**answers: Any) -> list[str]:
    lines = hidden_records(Canned(**answers), "orders", ReadRecords([], {0: 3}), None)
    return [line.strip() for line in lines]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(3, "open", 1)],
        [record(3, "open", 1), record(4, "aborted", 2)],
    ],
)
def test_undecided_records_are_not_reported(records: list[dict[str, Any]]) -> None:
    assert hidden(records=records, transactions=[transaction("Ongoing")]) == []
    # A hanging transaction: no coordinator will end it.
    assert hidden(records=records, nodes=[{"node_id": 1, "state": "running"}]) == []


@pytest.mark.parametrize(
    ("state", "more"),
    [
        ("Ongoing", [record(4, None)]),
        ("PrepareAbort", [record(4, "committed", 2), record(5, "aborted", 3)]),
        ("PrepareCommit", []),
    ],
)
def test_decided_records_are_counted_and_their_partition_is_explained(
    state: str, more: list[dict[str, Any]]
) -> None:
    records = [record(3, "open", 1), *more]
    assert hidden(records=records, transactions=[transaction(state)]) == [HEAD, WHY]


def test_a_broker_without_explanations_hides_no_warning() -> None:
    assert hidden(records=[record(3, "open", 1), record(4, None)], explains=False) == [HEAD]


def test_a_transaction_whose_coordinator_may_be_away_is_perhaps_decided() -> None:
    records = [record(3, "open", 1)]
    nodes = [{"node_id": 1, "state": "running"}, {"node_id": 2, "state": "killed"}]
    head = HEAD.replace("decided", "perhaps decided")
    away = "No running coordinator knows producer 1: node 2 is killed"
    assert hidden(records=records, nodes=nodes) == [f"{head}\n  {away}", WHY]
    # If all nodes run and none coordinates the transaction, it hangs. It still hides the committed records behind it.
    assert hidden(records=[*records, record(4, "committed", 2)], nodes=nodes[:1]) == [HEAD, WHY]
