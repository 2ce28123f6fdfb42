"""The facts that `odradek.certify.runs.observation` reads from the trace of a run in progress."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.runs.observation import (
    are_offsets_pending,
    furthest_fetch,
    newest_number,
    newest_of_work,
    peers,
    session_timeout_ms,
    struck,
    unanswered,
)


def entry(number: int, api: str, outcome: str = "answered", **more: Any) -> dict[str, Any]:
    return {"number": number, "api": api, "outcome": outcome, "line": f"{api} -> ok", "request": {}, **more}


def test_a_client_without_work_fetches_and_heartbeats() -> None:
    idle = [entry(number, api) for number, api in enumerate(("Fetch", "Heartbeat", "Metadata"), 7)]
    assert newest_of_work(idle) == 0
    read = entry(5, "Fetch", line="Fetch v16 #8 records-0@0 -> ok records-0[1 record] 0.2 ms")
    assert newest_of_work([read, *idle]) == 5
    assert newest_of_work([entry(3, "OffsetFetch"), *idle]) == 3
    assert newest_of_work([entry(3, "Fetch", line="Fetch v16 #8 records-0@0 -> ok 500 ms")]) == 0


def test_the_newest_request_of_some_apis() -> None:
    found = [entry(1, "Produce"), entry(2, "EndTxn"), entry(3, "Fetch")]
    assert newest_number(found, {"Produce", "EndTxn"}) == 2
    assert newest_number(found, {"OffsetCommit"}) == 0


def test_what_has_no_response_so_far() -> None:
    assert unanswered([entry(1, "JoinGroup", "in_progress"), entry(2, "JoinGroup")]) == {1}


@pytest.mark.parametrize(
    ("action", "outcomes", "place"),
    [
        pytest.param("lose-answer silent", ("answered", "answer_lost", "in_progress"), 1, id="handled"),
        pytest.param("lose-answer", ("answered", "in_progress"), 1, id="not handled yet"),
        pytest.param("lose-answer", ("held", "in_progress"), 0, id="held first"),
        pytest.param("lose-request silent", ("unanswered", "in_progress"), 0, id="lost"),
        pytest.param("hold", ("held", "in_progress"), 0, id="held"),
        pytest.param("hold", ("answered",), None, id="gone"),
    ],
)
def test_the_request_that_a_rule_has_hit(action: str, outcomes: tuple[str, ...], place: int | None) -> None:
    """The request that a rule has hit is recognised by its outcome.

    This works although a request of another instance to the same API may be in progress.
    """
    found = [entry(number, "JoinGroup", outcome) for number, outcome in enumerate(outcomes)]
    assert struck(found, action) == (None if place is None else found[place])


def test_offsets_are_pending_while_the_newest_request_for_them_is_refused() -> None:
    refused = entry(1, "OffsetFetch", line="OffsetFetch group=g -> in-0:UNSTABLE_OFFSET_COMMIT")
    assert are_offsets_pending([refused])
    assert not are_offsets_pending([refused, entry(2, "OffsetFetch")])
    assert not are_offsets_pending([])


def test_the_longest_session_time_out() -> None:
    joins = [entry(1, "JoinGroup", request={"session_timeout_ms": each}) for each in (6_000, 10_000)]
    assert session_timeout_ms(joins) == 10_000
    assert session_timeout_ms([]) == 45_000


def test_connections_of_clients_are_sorted_newest_first() -> None:
    found = [entry(1, "Fetch", peer="h:1"), entry(2, "Fetch", peer="h:2"), entry(3, "Fetch", peer="h:1")]
    node = entry(4, "WriteTxnMarkers", peer="h:3", from_node=2)
    assert peers([*found, node]) == ["h:1", "h:2"]


def test_how_far_a_partition_was_read() -> None:
    asked = [{"topic_name": "in", "partitions": [{"partition": 1, "fetch_offset": 7}]}]
    assert furthest_fetch([entry(1, "Fetch", request={"topics": asked})], "in", 1) == 7
    assert furthest_fetch([entry(1, "Fetch", request={"topics": asked})], "in", 0) == -1
    assert furthest_fetch([entry(1, "Fetch", request={"topics": []})], "in", 1) == -1
