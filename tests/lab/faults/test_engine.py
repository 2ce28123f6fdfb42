"""Fault rules on real connections and at injection points, and the effect of each action."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.injection.points import InjectionPoint
from broker.loop.life import NodeLife
from broker.net.connections import IDLE_TICKS
from broker.requests.api import NO_RESPONSE
from lab.faults import FaultError, Match, parse_rule
from lab.faults.engine import RULES_MAX
from lab.faults.held_items import HELD_MAX
from lab.faults.released_requests import RELEASED_KEPT
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from tests.broker.net.test_connection import (
    HEARTBEAT,
    NODE,
    PRODUCE,
    Parking,
    heartbeat,
    pong,
    produce,
    turns,
)
from tests.lab.faults.stage import Stage


@pytest.fixture(autouse=True)
def node_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the id of the connections' node to 1. The node knows no topic ids."""
    monkeypatch.setattr(NODE, "node_id", 1, raising=False)
    monkeypatch.setattr(NODE, "topic_name", lambda topic_id: None, raising=False)


# ---- hanging


async def test_nothing_hangs_anywhere_without_a_rule() -> None:
    stage = Stage()
    assert (stage.calls.chain, stage.injection.points) == (None, None)
    first, second = stage.add("Heartbeat -> drop"), stage.add("txn.marker -> lose")
    assert stage.calls.chain is not None
    assert stage.injection.points is not None
    stage.faults.remove(first.id)
    assert stage.calls.chain is None
    stage.faults.remove(second.id)
    assert stage.injection.points is None


async def test_a_rule_hangs_on_its_own_apis_and_points_only() -> None:
    stage = Stage()
    stage.add("Heartbeat -> drop")
    stage.add("txn.* -> lose")
    assert stage.calls.chain is not None
    assert stage.injection.points is not None
    assert [stage.calls.chain.wants(key) for key in (HEARTBEAT, PRODUCE)] == [True, False]
    watched = [
        stage.injection.points.watches(point) for point in ("txn.marker", "txn.prepare.append", "log.write")
    ]
    assert watched == [True, True, False]


async def test_a_spent_rule_stays_listed_but_hangs_no_more() -> None:
    stage = Stage()
    active = stage.add("Heartbeat nth=2 -> error NOT_COORDINATOR")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert [answer.error_code for answer in peer.answers(HEARTBEAT, 4)] == [0, ErrorCode.not_coordinator, 0]
    assert stage.calls.chain is None
    assert stage.faults.list() == (active,)
    assert (active.matches, active.hits, active.spent) == (2, 1, True)


# ---- requests and their responses


async def test_an_error_is_answered_and_nothing_handled() -> None:
    stage = Stage()
    stage.add("Heartbeat -> error REBALANCE_IN_PROGRESS")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2))
    assert [answer.error_code for answer in peer.answers(HEARTBEAT, 4)] == [
        ErrorCode.rebalance_in_progress
    ] * 2
    assert stage.heartbeats.members == []


async def test_an_error_to_who_wants_no_answer_closes_the_connection() -> None:
    stage = Stage({PRODUCE: pong})
    stage.add("Produce -> error NOT_LEADER_OR_FOLLOWER")
    peer = stage.connect()
    peer.send(without_acknowledgement(1))
    assert peer.transport.closing
    assert peer.answered() == []


async def test_a_lost_request_is_not_handled_and_ends_the_connection() -> None:
    stage = Stage()
    stage.add("Heartbeat nth=2 -> lose-request")
    peer = stage.connect()
    peer.send(heartbeat(1, "a") + heartbeat(2, "b") + heartbeat(3, "c"))
    assert peer.answered() == [1]
    assert stage.heartbeats.members == ["a"]
    assert peer.transport.closing
    assert not peer.transport.aborted


async def test_a_request_lost_silently_leaves_the_connection_open_and_mute() -> None:
    stage = Stage()
    stage.add("Heartbeat nth=2 -> lose-request silent")
    peer = stage.connect()
    peer.send(heartbeat(1, "a") + heartbeat(2, "b") + heartbeat(3, "c"))
    assert stage.heartbeats.members == ["a", "c"]
    assert not peer.transport.closing
    peer.send(heartbeat(4, "d"))
    assert stage.heartbeats.members == ["a", "c", "d"]
    assert 3 not in peer.answered()
    assert 4 not in peer.answered()


async def test_a_lost_answer_is_handled_to_its_end_first() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    active = stage.add("Heartbeat nth=1 -> lose-answer")
    peer = stage.connect()
    peer.send(heartbeat(1))
    assert active.spent
    assert not peer.transport.closing  # the request waits, as it would without the rule
    await parking.release()
    assert peer.transport.closing
    assert peer.answered() == []


async def test_after_an_answer_lost_silently_none_is_ever_sent() -> None:
    stage = Stage()
    stage.add("Heartbeat nth=2 -> lose-answer silent")
    peer = stage.connect()
    peer.send(heartbeat(1, "a"))
    peer.send(heartbeat(2, "b") + heartbeat(3, "c"))
    assert peer.answered() == [1]
    assert stage.heartbeats.members == ["a", "b", "c"]
    assert not peer.transport.closing


async def test_with_acks_0_a_lost_answer_is_the_connection_that_ends() -> None:
    stage = Stage({PRODUCE: lambda message, context: NO_RESPONSE})
    stage.add("Produce -> lose-answer")
    peer = stage.connect()
    peer.send(without_acknowledgement(1))
    assert peer.transport.closing


async def test_an_answer_of_a_rule_that_is_gone_by_then_is_sent() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    active = stage.add("Heartbeat -> lose-answer")
    peer = stage.connect()
    peer.send(heartbeat(1))
    stage.faults.remove(active.id)
    await parking.release()
    assert peer.answered() == [1]


async def test_fields_of_an_answer_are_altered_after_the_request_is_handled() -> None:
    kept = HeartbeatResponse(throttle_time_ms=1)
    stage = Stage({HEARTBEAT: lambda message, context: kept})
    active = stage.add("Heartbeat nth=1 -> answer error_code=REBALANCE_IN_PROGRESS throttle_time_ms=500")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2))
    assert [(each.error_code, each.throttle_time_ms) for each in peer.answers(HEARTBEAT, 4)] == [
        (ErrorCode.rebalance_in_progress, 500),
        (0, 1),
    ]
    assert (kept.error_code, active.hits) == (0, 1)


async def test_an_answer_that_comes_late_is_altered_unless_the_rule_is_gone() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    active = stage.add("Heartbeat -> answer error_code=27")
    peers = [stage.connect() for _ in range(2)]
    peers[0].send(heartbeat(1))
    await parking.release()
    peers[1].send(heartbeat(2))
    stage.faults.remove(active.id)
    await parking.release()
    assert [peer.answers(HEARTBEAT, 4)[0].error_code for peer in peers] == [27, 0]


async def test_what_wants_no_answer_gets_no_altered_one() -> None:
    stage = Stage({PRODUCE: lambda message, context: NO_RESPONSE})
    stage.add("Produce -> answer error_code=3")
    peer = stage.connect()
    peer.send(without_acknowledgement(1))
    assert (peer.answered(), peer.transport.closing) == ([], False)


async def test_a_delayed_request_holds_its_connection_and_no_other() -> None:
    stage = Stage()
    stage.add("Heartbeat nth=1 -> delay 200ms")
    slow, other = stage.connect(), stage.connect()
    slow.send(heartbeat(1, "slow") + heartbeat(2, "behind"))
    other.send(heartbeat(3, "other"))
    assert stage.heartbeats.members == ["other"]
    stage.clock.advance(199)
    assert slow.answered() == []
    stage.clock.advance(1)
    assert slow.answered() == [1, 2]


async def test_a_dropped_connection_is_reset() -> None:
    stage = Stage()
    stage.add("Heartbeat -> drop")
    peer = stage.connect()
    peer.send(heartbeat(1))
    assert peer.transport.aborted
    assert stage.heartbeats.members == []


async def test_a_duplicate_is_handled_twice_and_answered_once_with_the_first() -> None:
    stage = Stage()
    stage.add("Heartbeat nth=1 -> duplicate")
    peer = stage.connect()
    peer.send(heartbeat(1, "twice") + heartbeat(2, "once"))
    assert stage.heartbeats.members == ["twice", "twice", "once"]
    assert [answer.throttle_time_ms for answer in peer.answers(HEARTBEAT, 4)] == [1, 3]


async def test_a_duplicate_comes_after_the_first_was_handled_to_its_end() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    stage.add("Heartbeat -> duplicate")
    peer = stage.connect()
    peer.send(heartbeat(1))
    assert len(parking.seen) == 1
    await parking.release()
    assert peer.answered() == [1]
    assert len(parking.seen) == 2
    assert parking.seen[0] is not parking.seen[1]
    await parking.release()


async def test_a_held_connection_stands_still_until_released() -> None:
    stage = Stage()
    active = stage.add("Heartbeat nth=2 -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert peer.answered() == [1]
    (held,) = active.held
    assert (held.at, held.node_id, held.detached) == ("Heartbeat", 1, False)
    assert stage.faults.release(active.id) == 1
    assert peer.answered() == [1, 2, 3]
    assert active.held == ()


async def test_a_held_connection_is_not_idle() -> None:
    stage = Stage()
    stage.add("Heartbeat -> hold")
    held, idle = stage.connect(), stage.connect()
    held.send(heartbeat(1))
    for _ in range(IDLE_TICKS + 2):
        stage.broker.clock.advance(stage.broker.connections.quotas.idle_ms_max // IDLE_TICKS)
    assert (held.transport.closing, idle.transport.closing) == (False, True)


async def test_the_oldest_are_released_first() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> hold")
    peers = [stage.connect() for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.send(heartbeat(number, f"{number}"))
    assert stage.faults.release(active.id, 2) == 2
    assert stage.heartbeats.members == ["0", "1"]
    assert stage.faults.release(active.id) == 1
    assert stage.faults.release(active.id) == 0


async def test_a_release_picks_what_it_names() -> None:
    stage = Stage()
    active = stage.add("txn.marker -> hold")
    for topic, partition, transactional_id in (("a", 3, "x"), ("a", 4, "x"), ("b", 3, "y"), ("b", 4, "y")):
        at = InjectionPoint("txn.marker", 1, topic, partition, transactional_id)
        stage.step(f"{topic}-{partition}", at)
    first = active.to_json()["held"][0]
    assert (first["topic"], first["partition"], first["transactional_id"]) == ("a", 3, "x")
    assert first["partitions"] == ["a-3"]
    assert stage.faults.release(active.id, only=Match(partition=3, topic="b")) == 1
    assert stage.faults.release(active.id, 1, Match(transactional_id="x")) == 1
    assert stage.faults.release(active.id, only=Match(node=2)) == 0
    assert stage.faults.release(active.id, only=Match(client_id="*")) == 0  # injection points have no client
    assert stage.steps == ["b-3", "a-3"]
    assert stage.faults.release(active.id, only=Match(topic="b")) == 1
    assert stage.steps == ["b-3", "a-3", "b-4"]


async def test_a_released_request_meets_another_rule() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat nth=2 -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2, "2") + heartbeat(3))
    other = stage.add("Heartbeat nth=1 -> lose-answer")
    assert stage.faults.release(holds.id, to=other.id) == 1
    assert other.hits == 1
    assert stage.heartbeats.members[1:] == ["2"]
    assert peer.answered() == [1]
    assert peer.transport.closing


async def test_a_released_request_meets_no_rule_but_the_one_that_is_named() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat nth=1 -> hold")
    bystander = stage.add("Heartbeat -> drop")
    peer = stage.connect()
    peer.send(heartbeat(1))
    elsewhere = stage.add("Produce -> drop")
    stage.faults.release(holds.id, to=elsewhere.id)
    await asyncio.sleep(0)  # responses are written at the end of the turn
    assert peer.answered() == [1]
    assert (bystander.matches, elsewhere.matches) == (0, 0)


async def test_a_released_request_is_handled_if_the_other_rule_does_not_hit_it() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat nth=1 -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1))
    other = stage.add("Heartbeat nth=2 -> drop")
    stage.faults.release(holds.id, to=other.id)
    await asyncio.sleep(0)  # responses are written at the end of the turn
    assert (other.matches, other.hits) == (1, 0)
    assert peer.answered() == [1]


async def test_a_released_request_can_be_held_again_and_refused() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat nth=1 -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1))
    again = stage.add("Heartbeat nth=1 -> hold")
    assert stage.faults.release(holds.id, to=again.id) == 1
    assert (len(holds.held), len(again.held), peer.answered()) == (0, 1, [])
    refuses = stage.add("Heartbeat nth=1 -> error FENCED_INSTANCE_ID")
    assert stage.faults.release(again.id, to=refuses.id) == 1
    await asyncio.sleep(0)  # responses are written at the end of the turn
    assert peer.answered() == [1]
    assert stage.heartbeats.members == []
    assert [each["errors"] for each in again.to_json()["released"]] == [["FENCED_INSTANCE_ID"]]


async def test_a_released_request_that_is_dropped_is_gone() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat nth=1 -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1))
    stage.faults.release(holds.id, to=stage.add("Heartbeat nth=1 -> drop").id)
    assert peer.transport.closing
    assert stage.heartbeats.members == []
    assert [each["outcome"] for each in holds.to_json()["released"]] == ["connection closed"]


async def test_a_released_step_meets_another_rule() -> None:
    stage = Stage()
    holds = stage.add("txn.marker -> hold")
    for topic in ("a", "b"):
        stage.step(topic, InjectionPoint("txn.marker", 1, topic, 0, "payments"))
    refuses = stage.add("txn.marker topic=a nth=1 -> error COORDINATOR_NOT_AVAILABLE")
    assert stage.faults.release(holds.id, to=refuses.id) == 2
    assert refuses.hits == 1
    assert stage.steps == ["a coordinator_not_available", "b"]


async def test_a_step_on_a_log_meets_no_other_rule() -> None:
    stage = Stage()
    holds = stage.add("log.write nth=1 -> hold")
    stage.step("held", write())
    stage.step("behind", write())
    again = stage.add("log.write -> hold")
    stage.faults.release(holds.id, to=again.id)
    assert stage.steps == ["held", "behind"]


async def test_a_release_to_a_rule_that_is_not_there_releases_nothing() -> None:
    stage = Stage()
    holds = stage.add("Heartbeat -> hold")
    stage.connect().send(heartbeat(1))
    with pytest.raises(FaultError, match="there is no rule 9"):
        stage.faults.release(holds.id, to=9)
    assert len(holds.held) == 1


async def test_a_released_request_tells_what_it_was_answered() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    active = stage.add("Heartbeat -> hold")
    peers = [stage.connect() for _ in range(2)]
    for number, peer in enumerate(peers):
        peer.send(heartbeat(number, "m"))
    stage.faults.release(active.id)
    assert [each["outcome"] for each in active.to_json()["released"]] == ["in progress"] * 2
    peers[1].lose()
    await parking.release()
    assert [(each["outcome"], each["errors"]) for each in active.to_json()["released"]] == [
        ("answered", ["NONE"]),
        ("connection closed", []),
    ]
    assert active.to_json()["released"][0]["group"] == "g"


async def test_a_detached_request_tells_what_it_would_have_been_answered() -> None:
    answers = iter([ErrorCode.fenced_instance_id, ErrorCode.none])
    stage = Stage({HEARTBEAT: lambda message, context: HeartbeatResponse(error_code=next(answers))})
    active = stage.add("Heartbeat -> detach")
    for number in range(2):
        stage.connect().send(heartbeat(number))
    stage.faults.release(active.id)
    released = active.to_json()["released"]
    assert [each["errors"] for each in released] == [["FENCED_INSTANCE_ID"], ["NONE"]]
    assert {each["outcome"] for each in released} == {"answered"}


async def test_only_the_newest_released_requests_are_kept() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> hold")
    peer = stage.connect()
    for number in range(RELEASED_KEPT + 1):
        peer.send(heartbeat(number, f"{number}"))
        stage.clock.now += 1
        stage.faults.release(active.id)
    assert len(active.released) == RELEASED_KEPT
    assert len(stage.heartbeats.members) == RELEASED_KEPT + 1


async def test_what_is_held_of_a_connection_that_died_is_forgotten() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> hold")
    peer = stage.connect()
    peer.send(heartbeat(1))
    peer.lose()
    assert active.held == ()
    assert stage.faults.release(active.id) == 0
    assert stage.heartbeats.members == []


async def test_detached_bytes_are_handled_when_released_without_a_client() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> detach")
    peer = stage.connect()
    peer.send(heartbeat(1, "late") + heartbeat(2, "behind"))
    assert peer.transport.closing
    peer.lose()
    assert [held.detached for held in active.held] == [True]
    assert stage.heartbeats.members == []
    assert stage.faults.release(active.id) == 1
    assert stage.heartbeats.members == ["late"]
    assert peer.answered() == []


async def test_reorder_lets_later_requests_go_first() -> None:
    stage = Stage()
    active = stage.add("Heartbeat times=1 -> reorder 2")
    first, later = stage.connect(), stage.connect()
    first.send(heartbeat(1, "a"))
    assert first.transport.closing
    assert active.spent
    later.send(heartbeat(2, "b"))
    assert stage.heartbeats.members == ["b"]
    later.send(heartbeat(3, "c") + heartbeat(4, "d"))
    assert stage.heartbeats.members == ["b", "c", "a", "d"]
    assert later.answered() == [2, 3, 4]
    assert stage.calls.chain is None


async def test_reorder_waits_until_the_later_one_is_handled_to_its_end() -> None:
    parking = Parking()
    stage = Stage({HEARTBEAT: parking})
    stage.add("Heartbeat times=1 -> reorder")
    stage.connect().send(heartbeat(1, "a"))
    stage.connect().send(heartbeat(2, "b"))
    assert [message.member_id for message in parking.seen] == ["b"]
    await parking.release()
    assert [message.member_id for message in parking.seen] == ["b", "a"]
    await parking.release()


# ---- matching and order of rules


async def test_the_first_rule_that_takes_hold_decides() -> None:
    stage = Stage()
    first = stage.add("Heartbeat nth=1 -> error NOT_COORDINATOR")
    second = stage.add("Heartbeat -> error REBALANCE_IN_PROGRESS")
    peer = stage.connect()
    peer.send(heartbeat(1) + heartbeat(2))
    codes = [answer.error_code for answer in peer.answers(HEARTBEAT, 4)]
    assert codes == [ErrorCode.not_coordinator, ErrorCode.rebalance_in_progress]
    assert (first.hits, second.matches) == (1, 1)


@pytest.mark.parametrize(
    ("condition", "hit"),
    [
        ("client_id=c", True),
        ("client_id=d", False),
        ("client_id=*", True),
        ("sender=client", True),
        ("sender=node", False),
        ("version=4", True),
        ("version=0..3", False),
        ("version=2..", True),
        ("node=1", True),
        ("node=2", False),
        ("connection=1", True),
        ("connection=2", False),
        ("listener=PLAINTEXT", True),
        ("listener=OTHER", False),
        ("peer=192.0.2.*", True),
        ("peer=192.0.3.*", False),
        ("group=g", True),
        ("group=h*", False),
        ("group=g client_id=d", False),
    ],
)
async def test_a_rule_looks_at_client_node_and_subject(condition: str, hit: bool) -> None:
    stage = Stage()
    active = stage.add(f"Heartbeat {condition} -> hold")
    stage.connect().send(heartbeat(1))
    assert active.hits == hit


@pytest.mark.parametrize(
    ("condition", "hit"),
    [("topic=t partition=0", True), ("topic=t partition=1", False), ("partition=0", True)],
)
async def test_a_rule_looks_at_partitions(condition: str, hit: bool) -> None:
    stage = Stage({PRODUCE: pong})
    active = stage.add(f"Produce {condition} -> hold")
    stage.connect().send(produce(1, b""))
    assert active.hits == hit


# ---- injection points


def write(partition: int = 0, topic: str = "orders", node_id: int = 1) -> InjectionPoint:
    return InjectionPoint("log.write", node_id, topic, partition)


async def test_a_step_is_refused_held_delayed_or_lost() -> None:
    stage = Stage()
    stage.add("txn.marker topic=a -> error COORDINATOR_NOT_AVAILABLE")
    held = stage.add("txn.marker topic=b -> hold")
    stage.add("txn.marker topic=c -> delay 1s")
    stage.add("txn.marker topic=d -> lose")
    for topic in "abcde":
        stage.step(topic, InjectionPoint("txn.marker", 1, topic, 0, "payments"))
    assert stage.steps == ["a coordinator_not_available", "e"]
    stage.clock.advance(1000)
    stage.faults.release(held.id)
    assert stage.steps[2:] == ["c", "b"]


async def test_k_of_n_steps_are_taken_and_the_rest_held() -> None:
    stage = Stage()
    active = stage.add("txn.marker transactional_id=payments after=2 -> hold")
    for number in range(5):
        stage.step(f"{number}", InjectionPoint("txn.marker", 1, "orders", number, "payments"))
    assert stage.steps == ["0", "1"]
    stage.faults.release(active.id, 1)
    assert stage.steps == ["0", "1", "2"]
    stage.faults.remove(active.id)
    assert stage.steps == ["0", "1", "2", "3", "4"]


async def test_a_full_disk_refuses_writes_where_it_is_full() -> None:
    stage = Stage()
    stage.add("full-disk node=1 topic=orders partition=0")
    stage.step("other", write(1))
    stage.step("full", write(0))
    stage.step("sync", InjectionPoint("log.fsync", 1, "orders", 0))
    assert stage.steps == ["other", "full kafka_storage_error", "sync"]


async def test_a_slow_disk_delays_and_keeps_the_order() -> None:
    stage = Stage()
    stage.add("slow-disk node=1 delay=200ms")
    stage.step("first", write())
    stage.clock.advance(100)
    stage.step("second", write())
    stage.step("elsewhere", write(node_id=2))
    assert stage.steps == ["elsewhere"]
    stage.clock.advance(100)
    assert stage.steps == ["elsewhere", "first"]
    stage.clock.advance(100)
    assert stage.steps == ["elsewhere", "first", "second"]


async def test_no_write_overtakes_one_before_it_on_the_same_log() -> None:
    stage = Stage()
    active = stage.add("log.write topic=orders partition=0 nth=1 -> hold")
    stage.step("held", write(0))
    stage.step("behind", write(0))
    stage.step("other", write(1))
    stage.step("behind again", write(0))
    assert stage.steps == ["other"]
    assert len(active.held) == 3
    stage.faults.release(active.id, 1)
    assert stage.steps == ["other", "held", "behind", "behind again"]
    assert stage.injection.points is None


async def test_what_is_released_early_waits_for_what_is_held_before_it() -> None:
    stage = Stage()
    first = stage.add("log.write topic=orders nth=1 -> hold")
    second = stage.add("log.write topic=orders -> hold")
    stage.step("one", write())
    stage.step("two", write())
    assert stage.faults.release(second.id) == 1
    assert stage.steps == []
    stage.faults.release(first.id)
    assert stage.steps == ["one", "two"]


# ---- nodes


class Cluster:
    """Fake nodes by id. `kill` removes a node; to restart a node, a test adds another object with its id."""

    def __init__(self) -> None:
        self.nodes: dict[int, Any] = {1: NODE}
        self.killed: list[int] = []

    def kill(self, node_id: int) -> None:
        self.killed.append(node_id)
        self.nodes.pop(node_id, None)


async def test_kill_kills_the_node_that_was_asked_or_takes_the_step() -> None:
    cluster = Cluster()
    stage = Stage(kill_node=cluster.kill)
    stage.add("Heartbeat -> kill")
    stage.add("txn.marker -> kill")
    stage.connect().send(heartbeat(1))
    stage.step("marker", InjectionPoint("txn.marker", 3))
    assert cluster.killed == [1, 3]
    assert stage.heartbeats.members == stage.steps == []


async def test_where_no_node_can_be_killed_the_rule_is_refused() -> None:
    with pytest.raises(FaultError, match="crash"):
        Stage().add("Heartbeat -> kill")


async def test_crash_kills_the_process() -> None:
    crashes: list[str] = []
    stage = Stage(crash=crashes.append)
    stage.add("Heartbeat -> crash")
    stage.add("txn.prepare.append -> crash")
    stage.connect().send(heartbeat(1))
    stage.step("prepare", InjectionPoint("txn.prepare.append", 1))
    assert len(crashes) == 2
    assert stage.heartbeats.members == stage.steps == []


async def test_what_a_killed_node_had_under_way_never_happens_on_its_next_life() -> None:
    cluster = Cluster()
    stage = Stage(kill_node=cluster.kill, running=cluster.nodes.get)
    active = stage.add("log.write -> hold")
    stage.step("old", write())
    cluster.nodes[1] = SimpleNamespace(node_id=1, life=NodeLife())
    assert active.held == ()
    assert stage.faults.release(active.id) == 0
    stage.faults.clear()
    assert stage.steps == []


async def test_detached_bytes_arrive_at_the_node_that_then_runs() -> None:
    asked: list[object] = []

    def note(message: object, context: Any) -> HeartbeatResponse:
        asked.append(context.node)
        return HeartbeatResponse()

    cluster = Cluster()
    stage = Stage({HEARTBEAT: note}, running=cluster.nodes.get)
    active = stage.add("Heartbeat times=2 -> detach")
    stage.connect().send(heartbeat(1))
    stage.connect().send(heartbeat(2))
    cluster.nodes.clear()
    stage.faults.release(active.id, 1)
    assert asked == []
    cluster.nodes[1] = successor = SimpleNamespace(node_id=1, life=NodeLife())
    stage.faults.release(active.id)
    assert asked == [successor]


# ---- links


async def test_links_and_replicas_are_as_the_rules_say_while_they_are_there() -> None:
    stage = Stage()
    links = stage.injection.links
    stage.add("cut 1 2")
    stage.add("cut 2 1 one-way")
    stage.add("slow-link 1 3 delay=200ms")
    stage.add("slow-link 1 3 delay=50ms one-way")
    stage.add("pause node=2 topic=orders partition=1")
    assert [links.is_cut(1, 2), links.is_cut(2, 1), links.is_cut(1, 3)] == [True, True, False]
    assert [links.delay_ms(1, 3), links.delay_ms(3, 1)] == [250, 200]
    assert [links.is_paused(2, "orders", 1), links.is_paused(2, "orders", 0)] == [True, False]
    stage.faults.remove(1)
    assert [links.is_cut(1, 2), links.is_cut(2, 1)] == [False, True]
    assert stage.faults.clear() == 4
    assert links.all_up
    assert (stage.calls.chain, stage.injection.points) == (None, None)


# ---- the life of rules


async def test_a_rule_expires_and_lets_go() -> None:
    stage = Stage()
    active = stage.add("Heartbeat expires=2s -> hold")
    assert active.expires_at_ms == stage.clock.now + 2000
    stage.add("cut 1 2 expires=1s")
    peer = stage.connect()
    peer.send(heartbeat(1))
    stage.clock.advance(1999)
    assert peer.answered() == []
    assert stage.injection.links.all_up
    stage.clock.advance(1)
    await turns()
    assert peer.answered() == [1]
    assert stage.faults.list() == ()


async def test_removing_a_rule_lets_go_what_stands_still_and_drops_what_it_detached() -> None:
    stage = Stage()
    held, late = stage.add("Heartbeat nth=1 -> hold"), stage.add("Heartbeat nth=1 -> delay 9s")
    detached = stage.add("Heartbeat -> detach")
    for name in ("held", "late", "detached"):
        stage.connect().send(heartbeat(1, name))
    for active in (detached, late, held):
        stage.faults.remove(active.id)
    assert stage.heartbeats.members == ["late", "held"]
    assert [timer for timer in stage.clock.timers] == []


async def test_clear_counts_and_ids_are_never_given_twice() -> None:
    stage = Stage()
    stage.add("Heartbeat -> hold")
    stage.add("cut 1 2")
    assert stage.faults.clear() == 2
    assert stage.faults.clear() == 0
    assert stage.add("cut 1 2").id == 3


async def test_a_rule_that_there_is_not_is_said_so() -> None:
    stage = Stage()
    stage.add("cut 1 2")
    for call in (stage.faults.get, stage.faults.remove, stage.faults.release):
        with pytest.raises(FaultError, match="no rule 7; rules: 1"):
            call(7)


async def test_rules_are_bounded() -> None:
    stage = Stage()
    for _ in range(RULES_MAX):
        stage.add("cut 1 2")
    with pytest.raises(FaultError, match="already"):
        stage.add("cut 1 2")


async def test_what_is_held_is_bounded_and_the_rest_passes_by() -> None:
    stage = Stage()
    active = stage.add("txn.marker -> hold")
    for number in range(HELD_MAX + 2):
        stage.step(f"{number}", InjectionPoint("txn.marker", 1))
    assert stage.steps == [f"{HELD_MAX}", f"{HELD_MAX + 1}"]
    assert (active.hits, len(active.held)) == (HELD_MAX, HELD_MAX)


async def test_requests_of_closed_connections_make_room() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> hold")
    for number in range(HELD_MAX + 10):
        peer = stage.connect()
        peer.send(heartbeat(number))
        peer.lose()
    assert active.hits == HELD_MAX + 10
    assert active.held == ()


# ---- waiting for a hit


async def test_a_test_waits_until_a_rule_has_taken_hold_often_enough() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> error NOT_COORDINATOR")
    waiting = asyncio.ensure_future(stage.faults.reached(active.id, 2, 5000))
    await turns()
    stage.connect().send(heartbeat(1))
    await turns()
    assert not waiting.done()
    stage.connect().send(heartbeat(2))
    assert await waiting is active
    assert await stage.faults.reached(active.id) is active
    assert (active.waiting, stage.clock.timers) == ([], [])


async def test_waiting_for_a_hit_ends_in_time() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> drop")
    waiting = asyncio.ensure_future(stage.faults.reached(active.id, 1, 5000))
    await turns()
    stage.clock.advance(5000)
    with pytest.raises(TimeoutError, match="0 hits, not 1, after 5000 ms"):
        await waiting
    assert active.waiting == []


async def test_waiting_for_a_hit_of_a_rule_that_is_removed_ends() -> None:
    stage = Stage()
    active = stage.add("Heartbeat -> drop")
    waiting = asyncio.ensure_future(stage.faults.reached(active.id))
    await turns()
    stage.faults.clear()
    with pytest.raises(FaultError, match="removed"):
        await waiting


async def test_an_active_rule_tells_all_of_itself() -> None:
    stage = Stage()
    active = stage.add("Heartbeat client_id=c times=3 expires=1s -> hold")
    stage.connect().send(heartbeat(1))
    assert active.to_json() == {
        "id": 1,
        "rule": {
            "on": "Heartbeat",
            "match": {"client_id": "c"},
            "when": {"times": 3, "expires": "1s"},
            "action": {"do": "hold"},
        },
        "text": "Heartbeat client_id=c times=3 expires=1s -> hold",
        "matches": 1,
        "hits": 1,
        "spent": False,
        "expires_at_ms": stage.clock.now + 1000,
        "held": [
            {
                "at": "Heartbeat",
                "node": 1,
                "connection": 1,
                "client_id": "c",
                "transactional_id": None,
                "group": "g",
                "member": "m",
                "topic": None,
                "partition": None,
                "partitions": [],
                "detached": False,
                "since_ms": stage.clock.now,
            }
        ],
        "released": [],
    }
    assert parse_rule(active.to_json()["text"]) == active.rule


def without_acknowledgement(correlation_id: int) -> bytes:
    """A Produce request with acks=0."""
    from protocol.messages.produce import ProduceRequest
    from tests.broker.net.test_connection import request

    return request(PRODUCE, 9, ProduceRequest(acks=0), correlation_id)
