"""Concurrent calls on the nodes over HTTP run in the order of their arrival, and none gets a 500.

`tests/broker/cluster/test_lifecycle.py` tests every pair of calls.
"""

from __future__ import annotations

import asyncio
import gc
import re

import pytest
from structlog.testing import capture_logs

from tests.lab.control.conftest import Caller, OpenControl, until

ROUNDS = 3


@pytest.mark.parametrize("act", ["reset", "snapshots/1/restore"])
async def test_a_watchdog_starts_nodes_beside_a_reset_and_a_restore(
    open_control: OpenControl, act: str
) -> None:
    caller = await open_control(nodes=3)
    await caller.post("/v1/snapshots")
    for _ in range(ROUNDS):
        call = asyncio.ensure_future(caller("POST", f"/v1/{act}"))
        refusals = []
        while not call.done():
            for node_id in (1, 2, 3):
                status, answer = await caller("POST", f"/v1/nodes/{node_id}/start")
                assert status == 409
                refusals.append(answer["error"])
        status, answer = await call
        assert status == 200, answer
        assert refusals
        assert all(re.fullmatch(r"node \d is running, not stopped or killed", each) for each in refusals)
        partitions = (await caller.get("/v1/partitions?topic=orders"))["partitions"]
        assert [(each["leader"] is None, len(each["isr"])) for each in partitions] == [(False, 3)] * 4


async def test_the_refusal_of_a_call_whose_caller_is_gone_is_no_failure(caller: Caller) -> None:
    """A call whose caller disconnects while the call is queued, and which is refused afterwards because the node
    runs already, logs no error."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    lifecycle = caller.control.cluster.lifecycle
    with capture_logs() as lines:
        async with lifecycle.call_on_all_nodes():
            start = asyncio.ensure_future(caller("POST", "/v1/nodes/1/start"))
            await until(lambda: lifecycle.waiting)
            start.cancel()
            await caller.get("/health")
        await until(lambda: lifecycle.is_at_rest)
        gc.collect()
    assert complaints == []
    assert [line for line in lines if line["log_level"] == "error"] == []
