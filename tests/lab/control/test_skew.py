"""`POST /v1/nodes/{node_id}/skew`: accepted values, and which operations keep or remove a skew."""

from __future__ import annotations

import pytest

from tests.lab.control.conftest import Caller, OpenControl


async def skews(caller: Caller) -> dict[int, int]:
    return {each["node_id"]: each["skew_ms"] for each in (await caller.get("/v1/cluster"))["nodes"]}


async def test_a_node_is_ahead_or_behind_until_it_is_told_otherwise(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    assert (await caller.post("/v1/nodes/2/skew", {"by": "5m"}))["skew_ms"] == 300_000
    assert await skews(caller) == {1: 0, 2: 300_000}
    assert (await caller.post("/v1/nodes/2/skew", {"by": "-1m 30s"}))["skew_ms"] == -90_000
    assert (await caller.post("/v1/nodes/2/skew", {"by_ms": -7}))["skew_ms"] == -7
    assert (await caller.post("/v1/nodes/2/skew", {"by": "0"}))["skew_ms"] == 0
    told = [each.text for each in caller.control.cluster.injection.happenings if "clock" in each.text]
    assert told == [
        "the clock of node 2 is 5m ahead",
        "the clock of node 2 is 1m30s behind",
        "the clock of node 2 is 7ms behind",
        "the clock of node 2 is not skewed",
    ]


async def test_a_dead_node_keeps_its_skew_and_may_be_given_one(caller: Caller) -> None:
    await caller.post("/v1/nodes/1/skew", {"by": "1h"})
    await caller.post("/v1/nodes/1/kill")
    assert await skews(caller) == {1: 3_600_000}
    await caller.post("/v1/nodes/1/start")
    assert await skews(caller) == {1: 3_600_000}
    node = caller.control.cluster.running(1)
    assert node is not None
    assert node.clock.skew_ms == 3_600_000
    await caller.post("/v1/nodes/1/stop")
    await caller.post("/v1/nodes/1/skew", {"by": "-2h"})
    await caller.post("/v1/nodes/1/start")
    assert await skews(caller) == {1: -7_200_000}


async def test_a_reset_takes_skews_away_and_a_snapshot_brings_its_own_back(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    await caller.post("/v1/nodes/2/skew", {"by": "1h"})
    await caller.post("/v1/nodes/1/kill")
    await caller.post("/v1/nodes/1/skew", {"by": "-1h"})
    snapshot = await caller.post("/v1/snapshots")
    await caller.post("/v1/reset")
    assert await skews(caller) == {1: 0, 2: 0}
    await caller.post(f"/v1/snapshots/{snapshot['id']}/restore")
    assert await skews(caller) == {1: -3_600_000, 2: 3_600_000}
    node = caller.control.cluster.running(2)
    assert node is not None
    assert node.clock.skew_ms == 3_600_000


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, 'give the skew, either as {"by": "-30s"} or as {"by_ms": -30000}'),
        ({"by": "5m", "by_ms": 300_000}, 'give the skew, either as {"by": "-30s"} or as {"by_ms": -30000}'),
        (
            {"by": "later"},
            "'later' is not a skew: write how far the node's clock is ahead as a number and a unit "
            "(ms, s, m, h, d, w), as in 5m; -30s for a clock that is behind; 0 for none",
        ),
        ({"by": "--5m"}, "'--5m' is not a skew: "),
        ({"by": "5"}, "'5' is not a skew: "),
        ({"by": ""}, "'' is not a skew: "),
        ({"by": "-20000d"}, "a skew of -1728000000000 ms is more than half a century (1577836800000 ms)"),
        ({"by_ms": 1_577_836_800_001}, "<= 1577836800000"),
    ],
)
async def test_what_is_no_skew_is_refused_with_a_sentence(
    caller: Caller, body: dict[str, object], sentence: str
) -> None:
    status, answer = await caller("POST", "/v1/nodes/1/skew", body)
    assert status == 400
    assert sentence in answer["error"], answer
    assert await skews(caller) == {1: 0}


async def test_a_node_that_is_not_there_is_not_found(caller: Caller) -> None:
    status, answer = await caller("POST", "/v1/nodes/9/skew", {"by": "5m"})
    assert status == 404
    assert "there is no node 9" in answer["error"]
