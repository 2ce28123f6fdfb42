"""Fault rules at a follower's append, at a disk write and at an fsync, which hold, refuse or release the step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.injection.points import InjectionPoint
from protocol.errors import ErrorCode
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.support.nodes import Nodes, Outcome

OK = ErrorCode.none


class Guard:
    """Rules that hold or refuse the step at one injection point, on some nodes."""

    def __init__(self, nodes: Nodes, point: str, *node_ids: int, refusal: ErrorCode | None = None) -> None:
        self.point = point
        self.node_ids = node_ids
        self.refusal = refusal
        self.held: list[tuple[Callable[[], object], Callable[[ErrorCode], object]]] = []
        self.passages: list[InjectionPoint] = []
        self.open = False
        nodes.injection.points = self

    def watches(self, point: str) -> bool:
        return point == self.point

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        self.passages.append(at)
        if self.open or at.node_id not in self.node_ids:
            go_on()
        elif self.refusal is not None:
            refuse(self.refusal)
        else:
            self.held.append((go_on, refuse))

    def release(self) -> None:
        self.open = True
        while self.held:
            self.held.pop(0)[0]()


async def test_a_followers_append_that_is_held_is_done_when_it_is_released(nodes: Nodes):
    nodes.create()
    guard = Guard(nodes, "replica.append", 3)
    outcome = nodes.outcome(nodes.append(b"a"))
    assert nodes.ends() == {1: (0, 1), 2: (0, 1), 3: (0, 0)}
    nodes.append(b"b")
    assert nodes.ends()[3] == (0, 0)
    assert {(each.node_id, each.topic, each.partition) for each in guard.passages} == {
        (2, "t", 0),
        (3, "t", 0),
    }
    guard.release()
    await nodes.settle()
    assert nodes.ends() == {1: (2, 2), 2: (2, 2), 3: (2, 2)}
    assert outcome.error is OK


async def test_a_followers_append_that_is_refused_is_tried_again(nodes: Nodes):
    nodes.create()
    guard = Guard(nodes, "replica.append", 3, refusal=ErrorCode.network_exception)
    nodes.append(b"a")
    await nodes.settle()
    assert nodes.ends()[3] == (0, 0)
    guard.open = True
    await nodes.pass_time(1000)
    assert nodes.ends()[3] == (1, 1)


async def test_what_was_lost_before_a_followers_append_is_asked_for_again(nodes: Nodes):
    nodes.create()
    guard = Guard(nodes, "replica.append", 3)
    nodes.append(b"a")
    (late, _), guard.open = guard.held.pop(), True
    await nodes.pass_time(29_999)
    assert nodes.ends()[3] == (0, 0)
    await nodes.pass_time(1)
    assert nodes.ends()[3] == (1, 1)
    late()
    assert nodes.content(3) == nodes.content(1)


async def test_what_was_held_for_an_old_leader_is_not_appended_under_a_new_one(nodes: Nodes):
    nodes.create()
    nodes.append(b"common")
    guard = Guard(nodes, "replica.append", 2, 3)
    nodes.append(b"only at 1", acks=1)
    nodes.kill(1)
    guard.release()
    await nodes.settle()
    assert nodes.values() == [b"common"]
    assert nodes.on(3).log_end_offset == 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_on_a_slow_disk_a_write_is_done_and_counts_later(nodes: Nodes, acks: int):
    nodes.create([2])
    guard = Guard(nodes, "log.write", 2)
    result = nodes.append(b"a", acks=acks)
    partition = nodes.leader
    assert (result.error, partition.log_end_offset, partition.high_watermark) == (OK, 1, 0)
    outcome, written = nodes.outcome(result), Outcome()
    partition.unconfirmed.on_written(1, written.hear)
    assert (outcome.error, written.error) == (None, None)
    guard.release()
    assert (outcome.error, written.error) == (OK, OK)
    assert partition.high_watermark == 1


async def test_writes_that_come_after_a_held_one_wait_for_it(nodes: Nodes):
    nodes.create([2])
    guard = Guard(nodes, "log.write", 2)
    first = nodes.outcome(nodes.append(b"a"))
    guard.open = True
    second = nodes.outcome(nodes.append(b"b"))
    assert (first.error, second.error) == (None, None)
    guard.release()
    assert (first.error, second.error, nodes.leader.high_watermark) == (OK, OK, 2)


async def test_a_slow_disk_of_the_leader_keeps_the_bytes_from_its_followers(nodes: Nodes):
    nodes.create()
    guard = Guard(nodes, "log.write", 1)
    outcome = nodes.outcome(nodes.append(b"a"))
    assert nodes.ends() == {1: (0, 1), 2: (0, 0), 3: (0, 0)}
    guard.release()
    await nodes.settle()
    assert nodes.ends() == {1: (1, 1), 2: (1, 1), 3: (1, 1)}
    assert outcome.error is OK


async def test_a_slow_disk_of_a_follower_delays_what_it_says_it_has(nodes: Nodes):
    nodes.create()
    guard = Guard(nodes, "log.write", 3)
    outcome = nodes.outcome(nodes.append(b"a"))
    assert nodes.ends() == {1: (0, 1), 2: (0, 1), 3: (0, 1)}
    guard.release()
    await nodes.settle()
    assert nodes.ends() == {1: (1, 1), 2: (1, 1), 3: (1, 1)}
    assert outcome.error is OK


async def test_a_full_disk_takes_the_partition_offline_with_nothing_written(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    Guard(nodes, "log.write", 1, refusal=ErrorCode.kafka_storage_error)
    assert nodes.append(b"b").error is ErrorCode.kafka_storage_error
    assert nodes.running[1].leader("t", 0) is ErrorCode.kafka_storage_error
    assert nodes.on(1).log_end_offset == 1


async def test_a_disk_that_fails_in_the_end_acknowledges_nothing(nodes: Nodes):
    nodes.create([2])
    guard = Guard(nodes, "log.write", 2)
    result = nodes.append(b"a")
    outcome, written = nodes.outcome(result), Outcome()
    nodes.leader.unconfirmed.on_written(1, written.hear)
    guard.held.pop()[1](ErrorCode.kafka_storage_error)
    assert (outcome.error, written.error) == (ErrorCode.kafka_storage_error,) * 2
    assert nodes.on(2).offline is not None


async def test_a_marker_on_a_slow_disk_ends_nothing_yet(nodes: Nodes):
    nodes.create([2])
    nodes.append(b"a", producer=(7, 0, 0), transactional=True)
    guard = Guard(nodes, "log.write", 2)
    outcome = nodes.outcome(nodes.mark(7, committed=True))
    assert (outcome.error, nodes.leader.last_stable_offset) == (None, 0)
    guard.release()
    assert (outcome.error, nodes.leader.last_stable_offset) == (OK, 2)


async def test_with_flush_messages_followers_report_offsets_after_their_sync(nodes: Nodes):
    nodes.create(min_isr=3, flush_messages="1")
    guard = Guard(nodes, "log.fsync", 3)
    outcome = nodes.outcome(nodes.append(b"a"))
    assert outcome.error is None
    while not nodes.on(2).log.flushed_offset == 1 == nodes.on(1).log.flushed_offset:
        await nodes.settle()
    assert (outcome.error, nodes.on(3).log.flushed_offset, nodes.leader.high_watermark) == (None, 0, 0)
    guard.release()
    while outcome.error is None:
        await nodes.settle()
    assert outcome.error is OK


async def test_an_fsync_that_is_refused_takes_the_partition_offline(make_nodes: MakeNodes):
    nodes = make_nodes(1)
    nodes.create([1], flush_messages="1")
    Guard(nodes, "log.fsync", 1, refusal=ErrorCode.kafka_storage_error)
    result = nodes.append(b"a")
    await nodes.settle()
    assert result.error is OK
    assert nodes.on(1).offline is not None
