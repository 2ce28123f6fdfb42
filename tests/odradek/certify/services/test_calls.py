"""The requests at a service, and the rules that hit them."""

from __future__ import annotations

import asyncio

import pytest

from odradek.certify.exchanges import Exchange
from odradek.certify.plans.moments import Moment, moments
from odradek.certify.services.calls import Call, Traffic
from odradek.errors import FaultNotHit

COMMIT = "postgres:COMMIT"


def arrived(traffic: Traffic, on: str = COMMIT) -> Call:
    return traffic.arrived(on, "transaction", "127.0.0.1:5", on.partition(":")[2], is_write=True)


async def test_a_rule_hits_the_nth_request_of_its_kind_once() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    rule = traffic.add(f"{COMMIT} nth=2 -> lose-answer silent")
    actions = [
        await arrived(traffic, on).decided() for on in (COMMIT, "postgres:INSERT results", COMMIT, COMMIT)
    ]
    assert actions == ["", "", "lose-answer silent", ""]
    assert rule.hits == 1
    assert rule.call is traffic.calls()[2]


async def test_a_held_request_is_released_by_another_thread() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    rule = traffic.add(f"{COMMIT} nth=1 -> hold")
    call = arrived(traffic)
    decided = asyncio.ensure_future(call.decided())
    await asyncio.to_thread(rule.wait)
    assert rule.held == [call]
    assert not decided.done()
    await asyncio.to_thread(rule.release)
    assert await decided == ""
    assert rule.held == []


async def test_a_held_request_hits_the_rule_to_which_it_is_released() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    holding = traffic.add(f"{COMMIT} nth=1 -> hold")
    decided = asyncio.ensure_future(arrived(traffic).decided())
    await asyncio.sleep(0)
    striking = traffic.add(f"{COMMIT} nth=1 -> error 40001")
    holding.release(to=striking)
    assert await decided == "error 40001"
    assert striking.hits == 1


async def test_a_request_that_is_released_to_a_hold_stays_held() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    first = traffic.add(f"{COMMIT} nth=1 -> hold")
    decided = asyncio.ensure_future(arrived(traffic).decided())
    await asyncio.sleep(0)
    second = traffic.add(f"{COMMIT} nth=1 -> hold")
    first.release(to=second)
    assert len(second.held) == 1
    second.release()
    assert await decided == ""


async def test_a_rule_that_is_not_hit_says_so() -> None:
    rule = Traffic(asyncio.get_running_loop()).add(f"{COMMIT} nth=1 -> hold")
    with pytest.raises(FaultNotHit, match="postgres:COMMIT nth=1 -> hold"):
        rule.wait(timeout_s=0)


async def test_each_request_is_a_moment_with_its_ordinal() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    for on in (COMMIT, "postgres:INSERT results", COMMIT):
        arrived(traffic, on).answered()
    trace: list[Exchange] = [each.exchange() for each in traffic.calls()]
    assert moments(trace) == [
        Moment(COMMIT, (), 1, "transaction"),
        Moment("postgres:INSERT results", (), 1, "transaction"),
        Moment(COMMIT, (), 2, "transaction"),
    ]
    assert [each.service for each in trace] == ["postgres"] * 3
    assert trace[0].succeeded
    assert trace[0].line == "postgres 127.0.0.1:5 COMMIT -> ok"


async def test_requests_have_the_time_of_the_brokers_trace() -> None:
    traffic = Traffic(asyncio.get_running_loop())
    first = arrived(traffic)
    traffic.ahead_us = 71_000_000
    second = arrived(traffic)
    second.answered()
    assert second.arrived_us - first.arrived_us >= 71_000_000
    assert second.answered_us >= second.arrived_us
