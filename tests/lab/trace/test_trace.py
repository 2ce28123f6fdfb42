"""The trace on a connection: what it records, what it drops, the clients that follow it, and that nothing of it remains when
it is off."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from broker.loop.life import NodeLife
from broker.net.calls import Call
from broker.node.context import RequestContext
from broker.requests.api import NO_RESPONSE, Handler
from lab.trace.decoding import answer_dict
from lab.trace.exchange import Exchange, Outcome
from lab.trace.filters import BadFilter, TraceFilter
from lab.trace.lines import text_line
from lab.trace.ring import EXCHANGE_BYTES, TraceLimits
from lab.trace.subscription import Subscription
from lab.trace.trace import Trace
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from tests.broker.net.test_connection import (
    API_VERSIONS,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    Broker,
    Parking,
    Peer,
    framed,
    heartbeat,
    pong,
    produce,
    turns,
)


class Traced:
    """A broker with handlers given by the test (by API key), a connection to it, and a running trace."""

    def __init__(self, handlers: dict[int, Handler] | None = None, **limits: int) -> None:
        self.broker = Broker(handlers or {HEARTBEAT: pong})
        self.calls = self.broker.connections.calls
        self.broker.connections.node = SimpleNamespace(node_id=3, life=NodeLife())  # type: ignore[assignment]
        self.stopwatch_us = 0
        self.trace = Trace(
            self.calls, self.broker.clock, TraceLimits(**limits), measure_us=lambda: self.stopwatch_us
        )
        self.trace.start()
        self.peer = self.connect()

    def connect(self) -> Peer:
        return self.broker.connect()

    @property
    def numbers(self) -> list[int]:
        return [each.number for each in self.trace.entries()]

    @property
    def last(self) -> Exchange:
        return self.trace.entries()[-1]


async def test_an_exchange_says_who_asked_what_of_whom_and_when() -> None:
    traced = Traced()
    traced.broker.clock.advance(5000)
    traced.peer.send(heartbeat(17))
    now_ms = traced.broker.clock.now
    (found,) = traced.trace.entries()
    assert (found.number, found.node_id, found.connection_id, found.peer) == (1, 3, 1, "192.0.2.7:40000")
    assert (found.api, found.api_key, found.api_version) == ("Heartbeat", HEARTBEAT, 4)
    assert (found.correlation_id, found.client_id, found.listener) == (17, "c", "PLAINTEXT")
    assert (found.arrived_ms, found.answered_ms, found.outcome) == (now_ms, now_ms, Outcome.ANSWERED)
    assert found.request == heartbeat(17)[4:]
    assert found.answer is not None
    assert [found.answer] == list(traced.peer.frames())


async def test_how_long_an_answer_took_is_real_time_to_the_microsecond() -> None:
    parking = Parking()
    traced = Traced({HEARTBEAT: parking})
    traced.peer.send(heartbeat(1))
    assert (traced.last.outcome, traced.last.took_us) == (Outcome.IN_PROGRESS, None)
    traced.stopwatch_us += 1234
    traced.broker.clock.advance(7 * 24 * 3_600_000)  # the virtual clock does not count in the duration
    await parking.release()
    assert (traced.last.outcome, traced.last.took_us) == (Outcome.ANSWERED, 1234)
    assert traced.last.answered_ms == traced.broker.clock.now
    assert traced.last.answered_us is not None
    assert traced.last.answered_us // 1000 == traced.broker.clock.now


async def test_microseconds_follow_the_clock_and_never_go_back() -> None:
    traced = Traced()
    seen = []
    for step_ms, step_us in ((0, 0), (0, 300), (1, 500), (0, 900), (0, 5000), (10**6, 10), (0, 1), (3, 2999)):
        traced.broker.clock.advance(step_ms)
        traced.stopwatch_us += step_us
        traced.peer.send(heartbeat(1))
        seen.append(traced.last.arrived_us)
        assert abs(traced.last.arrived_us // 1000 - traced.last.arrived_ms) <= 5
    assert seen == sorted(seen)


async def test_a_trace_that_was_cleared_follows_a_clock_that_went_back() -> None:
    traced = Traced()
    traced.broker.clock.advance(60_000)
    traced.peer.send(heartbeat(1))
    traced.trace.clear()
    traced.broker.clock.now -= 60_000
    traced.peer.send(heartbeat(2))
    assert traced.last.arrived_us // 1000 == traced.last.arrived_ms == traced.broker.clock.now


async def test_a_request_that_wants_no_answer_and_one_whose_client_leaves_are_told_apart() -> None:
    parking = Parking()
    traced = Traced({PRODUCE: lambda message, context: NO_RESPONSE, HEARTBEAT: parking})
    traced.peer.send(produce(1, b"") + heartbeat(2))
    traced.peer.lose()
    await turns()
    assert [each.outcome for each in traced.trace.entries()] == [Outcome.UNANSWERED, Outcome.CONNECTION_GONE]


class Rule:
    """An interceptor that holds requests or responses."""

    def __init__(self, *, handles: bool, answers: bool) -> None:
        self.handles, self.answers = handles, answers
        self.calls: list[Call] = []

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        self.calls.append(call)
        return self.handles

    def answering(self, call: Call) -> bool:
        return self.answers


async def test_an_answer_that_a_rule_keeps_back_is_seen_and_marked() -> None:
    traced = Traced()
    traced.calls.add(Rule(handles=True, answers=False))
    traced.peer.send(heartbeat(1))
    assert traced.last.outcome is Outcome.ANSWER_LOST
    assert traced.last.answer is not None
    assert list(traced.peer.frames()) == []


async def test_a_request_that_a_rule_holds_is_seen_as_held_and_later_as_answered() -> None:
    traced = Traced()
    rule = Rule(handles=False, answers=True)
    traced.calls.add(rule)
    with traced.trace.follow() as follower:
        traced.peer.send(heartbeat(1))
        assert traced.last.outcome is Outcome.HELD
        rule.calls[0].handle_without_response()
        rule.calls[0].proceed()
        assert (traced.last.outcome, traced.last.was_held) == (Outcome.ANSWERED, True)
        assert traced.last.handled_alone == 1
        assert follower.take() is follower.take() is traced.last  # once when held, once when complete


async def test_it_sees_what_a_rule_stops_that_was_there_before_it() -> None:
    traced = Traced()
    traced.trace.stop()
    traced.calls.add(Rule(handles=False, answers=True))
    traced.trace.start()
    traced.peer.send(heartbeat(1))
    assert traced.last.outcome is Outcome.HELD


async def test_a_stopped_trace_intercepts_nothing() -> None:
    traced = Traced()
    assert traced.calls.chain is traced.trace
    traced.trace.start()
    traced.trace.stop()
    assert traced.calls.chain is None
    traced.peer.send(heartbeat(1))
    assert traced.trace.entries() == []
    traced.trace.stop()
    traced.trace.start()
    traced.peer.send(heartbeat(2))
    assert [each.correlation_id for each in traced.trace.entries()] == [2]


async def test_what_was_under_way_at_the_stop_is_followed_to_its_end() -> None:
    parking = Parking()
    traced = Traced({HEARTBEAT: parking})
    traced.peer.send(heartbeat(1))
    traced.trace.stop()
    await parking.release()
    assert traced.last.outcome is Outcome.ANSWERED


# -- the ring -------------------------------------------------------------------------------------------------------


async def test_the_ring_holds_so_many_and_the_oldest_go() -> None:
    traced = Traced(entries_max=3)
    for number in range(5):
        traced.peer.send(heartbeat(number))
    assert traced.numbers == [3, 4, 5]
    assert traced.trace.status()["pushed_out"] == 2


async def test_the_ring_holds_so_many_bytes_answers_included() -> None:
    one = EXCHANGE_BYTES + len(heartbeat(1)) - 4
    traced = Traced(bytes_max=3 * (one + 40))
    for number in range(20):
        traced.peer.send(heartbeat(number))
        status: Any = traced.trace.status()
        assert status["bytes"] <= 3 * (one + 40)
        assert status["bytes"] == sum(
            EXCHANGE_BYTES + len(each.request) + len(each.answer or b"") for each in traced.trace.entries()
        )
    assert traced.numbers == [18, 19, 20]


async def test_an_answer_to_what_the_ring_has_forgotten_costs_it_nothing() -> None:
    parking = Parking()
    traced = Traced({HEARTBEAT: parking}, entries_max=1)
    traced.peer.send(heartbeat(1))
    other = traced.connect()
    other.send(heartbeat(2))
    before = traced.trace.status()["bytes"]
    await parking.release()
    assert traced.trace.status()["bytes"] == before
    traced.trace.clear()
    await parking.release()
    assert (traced.trace.status()["bytes"], traced.numbers) == (0, [])


async def test_a_frame_above_the_limit_is_cut_and_says_what_it_was_about() -> None:
    traced = Traced({PRODUCE: lambda message, context: NO_RESPONSE}, frame_bytes_max=100)
    traced.peer.send(produce(1, bytes(5000)))
    assert traced.last.request_is_cut
    assert len(traced.last.request) == 100
    assert traced.last.request_bytes == len(produce(1, bytes(5000))) - 4
    assert traced.last.request_summary == "t-0"
    assert traced.trace.status()["bytes"] == EXCHANGE_BYTES + 100


async def test_entries_are_the_newest_after_a_number() -> None:
    traced = Traced()
    for number in range(6):
        traced.peer.send(heartbeat(number))
    assert [each.number for each in traced.trace.entries(since=2)] == [3, 4, 5, 6]
    assert [each.number for each in traced.trace.entries(since=2, limit=2)] == [5, 6]
    assert [each.number for each in traced.trace.entries(limit=0)] == []
    assert traced.trace.entries(since=6) == []


async def test_a_search_finds_what_entries_are_and_leaves_the_loop_to_others() -> None:
    traced = Traced()
    for number in range(6):
        traced.peer.send(heartbeat(number))
    searching = asyncio.ensure_future(traced.trace.search(since=2, limit=2))
    await turns()
    traced.peer.send(heartbeat(7))  # after the start of the search
    assert [each.number for each in await searching] == [5, 6]


# -- filters --------------------------------------------------------------------------------------------------------


async def test_filters_choose() -> None:
    def metadata(message: object, context: RequestContext) -> object:
        return HeartbeatResponse()

    traced = Traced({HEARTBEAT: pong, METADATA: metadata})
    traced.peer.send(heartbeat(1))
    other = traced.connect()
    other.send(heartbeat(2))

    def chosen(**parameters: str) -> list[int]:
        return [each.number for each in traced.trace.entries(TraceFilter.parse(parameters))]

    assert chosen() == [1, 2]
    assert chosen(connection="2") == [2]
    assert chosen(api="Heartbeat", node="3") == chosen(api="heartbeat") == chosen(api="12") == [1, 2]
    assert chosen(api="end-txn") == chosen(client_id="other") == chosen(node="1") == []
    assert chosen(outcome="answered", version="4") == [1, 2]
    assert chosen(transactional_id="t") == []
    assert chosen(without="Heartbeat, Fetch") == chosen(api="Heartbeat", without="12") == []
    assert chosen(without="Fetch") == chosen(without="") == [1, 2]


async def test_what_a_rule_did_to_an_api_is_not_left_out() -> None:
    parking = Parking()
    traced = Traced({HEARTBEAT: parking})
    traced.peer.send(heartbeat(1))
    await turns()
    (exchange,) = traced.trace.entries()
    without = TraceFilter.parse({"without": "heartbeat"})
    assert [without.matches(exchange)] == [False]
    exchange.outcome = Outcome.HELD
    assert without.matches(exchange)
    await parking.release()


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"api": "Telephone"}, "no API is called 'Telephone'"),
        ({"api": "4711"}, "no API is called '4711'"),
        ({"without": "Fetch,Telephone"}, "no API is called 'Telephone'"),
        ({"node": "first"}, "node must be a whole number, not 'first'"),
        ({"outcome": "odd"}, "no outcome is called 'odd'; there are: in_progress, held"),
        ({"colour": "red"}, "no filter is called colour; there are: api, version"),
    ],
)
def test_a_filter_that_says_nothing_sensible_is_refused(parameters: dict[str, str], says: str) -> None:
    with pytest.raises(BadFilter, match=says):
        TraceFilter.parse(parameters)


# -- following ------------------------------------------------------------------------------------------------------


async def numbers_of(subscription: Subscription) -> list[int]:
    return [exchange.number async for exchange in subscription]


async def test_a_follower_sees_each_exchange_once_it_is_over() -> None:
    parking = Parking()
    traced = Traced({HEARTBEAT: parking})
    follower = traced.trace.follow()
    hearing = asyncio.ensure_future(numbers_of(follower))
    traced.peer.send(heartbeat(1))
    other = traced.connect()
    other.send(heartbeat(2))
    await turns()
    parking.waiting.append(parking.waiting.pop(0))  # the second request gets its response first
    await parking.release()
    await parking.release()
    await turns()
    follower.close()
    assert await hearing == [2, 1]
    assert traced.trace.status()["followers"] == 0


async def test_a_slow_follower_loses_some_and_is_told_how_many() -> None:
    traced = Traced(follow_entries_max=2)
    with traced.trace.follow() as follower:
        for number in range(5):
            traced.peer.send(heartbeat(number))
        assert follower.dropped == 3
        first = follower.take()
        assert first is not None
        assert first.number == 1
        traced.peer.send(heartbeat(9))
        assert follower.dropped == 3
    assert await numbers_of(follower) == [2, 6]


async def test_what_waits_for_a_follower_has_a_bound_in_bytes() -> None:
    traced = Traced(follow_bytes_max=2 * EXCHANGE_BYTES)
    with traced.trace.follow() as follower:
        for number in range(3):
            traced.peer.send(heartbeat(number))
        assert follower.dropped == 2


async def test_a_follower_sees_only_what_it_wants() -> None:
    traced = Traced()
    with traced.trace.follow(TraceFilter(api_key=METADATA)) as follower:
        traced.peer.send(heartbeat(1))
        assert follower.take() is None
        assert follower.dropped == 0


async def test_a_follower_may_ask_for_so_many_in_a_second() -> None:
    traced = Traced()
    with traced.trace.follow(per_second=2) as follower:
        for correlation_id in range(5):
            traced.peer.send(heartbeat(correlation_id))
        assert [each.number for each in iter(follower.take, None)] == [1, 2]
        assert follower.dropped == 3
        traced.stopwatch_us += 1_000_000
        traced.peer.send(heartbeat(5))
        assert [each.number for each in iter(follower.take, None)] == [6]


async def test_an_exchange_keeps_the_errors_and_the_throttle_time_of_its_answer() -> None:
    refused = HeartbeatResponse(throttle_time_ms=250, error_code=ErrorCode.rebalance_in_progress)
    traced = Traced({HEARTBEAT: lambda request, context: refused})
    traced.peer.send(heartbeat(1))
    assert (traced.last.errors, traced.last.throttle_ms) == ((ErrorCode.rebalance_in_progress,), 250)
    assert (traced.last.principal, traced.last.rule) == ("User:ANONYMOUS", None)
    assert traced.trace.refused() == [traced.last]


async def test_what_was_served_is_not_among_the_refused() -> None:
    traced = Traced()
    traced.peer.send(heartbeat(1))
    assert (traced.last.errors, traced.last.throttle_ms, traced.trace.refused()) == ((), 0, [])


async def test_an_api_versions_of_an_unserved_version_is_recorded() -> None:
    traced = Traced({API_VERSIONS: pong, HEARTBEAT: pong})
    traced.peer.send(framed(struct.pack(">hhih", API_VERSIONS, 99, 7, -1) + b"\0new fields") + heartbeat(8))
    refused, after = traced.trace.entries()
    assert (refused.api, refused.api_version, refused.correlation_id) == ("ApiVersions", 99, 7)
    assert (refused.errors, refused.outcome) == ((ErrorCode.unsupported_version,), Outcome.ANSWERED)
    assert text_line(refused).endswith("ApiVersions v99 #7 -> UNSUPPORTED_VERSION 0.0 ms")
    assert after.correlation_id == 8
    answer = answer_dict(refused)
    assert answer is not None
    assert [each["api_key"] for each in answer["api_keys"]] == [API_VERSIONS]
