"""Fault rules at the injection points of share groups, and where their crash points lie."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.injection.crash import on_passage
from broker.share.state import RecordState
from protocol.errors import ErrorCode as E
from tests.broker.share.test_dead_letters import ENABLED, QUEUE, letters, queue, states
from tests.broker.share.world import ACCEPT, GROUP, OTHER, REJECT, RELEASE, ShareWorld, turns
from tests.support.points import Gate

LOCK_MS = 30_000


@pytest.fixture
async def world(tmp_path: Path) -> ShareWorld:
    """Five records, which the member m1 has acquired; a dead-letter queue."""
    world = ShareWorld(tmp_path)
    world.create()
    world.initialize(start_offset=0)
    queue(world, ENABLED)
    world.configure(errors_deadletterqueue_topic_name=QUEUE)
    world.produce(5)
    assert await world.acquired(0, 0) == [(0, 4, 1)]
    return world


def gate_at(world: ShareWorld, point: str) -> Gate:
    gate = Gate(point)
    world.node.injection.points = gate
    return gate


def about(gate: Gate) -> tuple[Any, ...]:
    [held] = gate.held
    at = held.at
    return at.node_id, at.topic, at.partition, at.group_id, at.offsets


async def test_a_held_write_keeps_its_records_from_all_members(world: ShareWorld) -> None:
    gate = gate_at(world, "share.write")
    asked = asyncio.create_task(world.ack(1, (0, 1, [RELEASE]), (3, 3, [ACCEPT])))
    await turns()
    assert about(gate) == (1, "t1", 0, GROUP, ((0, 0), (1, 1), (3, 3)))
    world.clock.advance(2 * LOCK_MS)
    assert await world.acquired(0, 0, member=OTHER) == [(2, 2, 2), (4, 4, 2)], "locks of other records end"
    assert (asked.done(), world.persister.written) == (False, [])
    gate.release()
    assert await asked == E.none
    assert await world.acquired(1, 0, member=OTHER) == [(0, 1, 2)]


async def test_a_write_that_is_refused_is_rolled_back(world: ShareWorld) -> None:
    """The client gets the error as if the share coordinator had responded with it."""
    gate = gate_at(world, "share.write")
    asked = asyncio.create_task(world.ack(1, (0, 4, [ACCEPT])))
    await turns()
    gate.refuse(E.not_coordinator)
    assert await asked == E.coordinator_not_available
    assert world.persister.written == []
    world.node.injection.points = None
    assert await world.ack(2, (0, 4, [ACCEPT])) == E.none, "the member still has the records"


async def test_a_lost_write_is_never_answered(world: ShareWorld) -> None:
    gate_at(world, "share.write").held.clear()
    asked = asyncio.create_task(world.ack(1, (0, 4, [ACCEPT])))
    await turns()
    assert (asked.done(), world.persister.written) == (False, [])
    asked.cancel()


async def test_held_locks_do_not_run_out(world: ShareWorld) -> None:
    gate = gate_at(world, "share.expire")
    world.clock.advance(LOCK_MS)
    assert about(gate) == (1, "t1", 0, GROUP, ((0, 4),))
    assert await world.acquired(0, 0, member=OTHER) == []
    gate.release()
    assert await world.acquired(1, 0, member=OTHER) == [(0, 4, 2)]


async def test_locks_that_were_released_are_no_step(world: ShareWorld) -> None:
    gate = gate_at(world, "share.expire")
    assert await world.ack(1, (0, 4, [ACCEPT])) == E.none
    world.clock.advance(LOCK_MS)
    assert (gate.held, gate.passed) == ([], [])


async def test_a_lost_end_of_locks_happens_after_the_next_fetch_that_acquires(world: ShareWorld) -> None:
    """No timer is left then. The next one belongs to the oldest lock."""
    gate = gate_at(world, "share.expire")
    world.clock.advance(LOCK_MS)
    gate.held.clear()
    world.node.injection.points = None
    world.clock.advance(LOCK_MS)
    assert await world.acquired(0, 0, member=OTHER) == []
    world.produce(1)
    assert await world.acquired(1, 0, member=OTHER) == [(5, 5, 1)]
    world.clock.advance(0)
    assert await world.acquired(2, 0, member=OTHER) == [(0, 4, 2)]


async def test_held_locks_of_a_share_partition_that_has_left_this_node(world: ShareWorld) -> None:
    gate = gate_at(world, "share.expire")
    world.clock.advance(LOCK_MS)
    world.share.on_topic_deleted(world.cluster.topics["t1"])
    gate.release()
    await turns()
    assert world.persister.written == []


@pytest.mark.parametrize(("point", "is_written"), [("share.dlq", False), ("share.archive", True)])
async def test_a_held_step_of_the_dead_letter_queue(world: ShareWorld, point: str, is_written: bool) -> None:
    gate = gate_at(world, point)
    assert await world.ack(1, (1, 1, [REJECT])) == E.none, "the client does not wait for the queue"
    await turns()
    assert about(gate) == (1, "t1", 0, GROUP, ((1, 1),))
    assert len(letters(world)) == is_written
    assert states(world) == [(1, 1, RecordState.ARCHIVING)]
    gate.release()
    await turns()
    assert len(letters(world)) == 1
    assert states(world)[1:] == [(1, 1, RecordState.ARCHIVED)]


async def test_a_dead_letter_that_is_refused_is_lost(world: ShareWorld) -> None:
    gate = gate_at(world, "share.dlq")
    assert await world.ack(1, (1, 1, [REJECT])) == E.none
    await turns()
    gate.refuse(E.message_too_large)
    await turns()
    assert letters(world) == []
    assert states(world) == [(1, 1, RecordState.ARCHIVING), (1, 1, RecordState.ARCHIVED)]
    [managed] = world.share.loaded().values()
    assert [each.failure for each in managed.attempts] == ["message_too_large"]


async def test_a_record_that_may_not_be_archived_stays_archiving(world: ShareWorld) -> None:
    """A leader that loads the share partition again sends the dead letter again, as after a crash."""
    gate = gate_at(world, "share.archive")
    assert await world.ack(1, (1, 1, [REJECT])) == E.none
    await turns()
    gate.refuse(E.unknown_server_error)
    await turns()
    assert states(world) == [(1, 1, RecordState.ARCHIVING)]
    world.node.injection.points = None
    world.restart()
    await world.fetch(0, 0)
    await turns()
    assert len(letters(world)) == 2
    assert states(world)[1:] == [(1, 1, RecordState.ARCHIVED)]


async def test_the_crash_points_of_the_leader(world: ShareWorld) -> None:
    passed: list[tuple[str, int, int]] = []

    def passing(name: str) -> None:
        if name.startswith("share."):
            passed.append((name, len(world.persister.written), len(letters(world))))

    with on_passage(passing):
        await world.ack(1, (1, 1, [REJECT]))
        await turns()
    assert passed == [
        ("share.write.before", 0, 0),
        ("share.write.after", 1, 0),
        ("share.dlq.before", 1, 0),
        ("share.dlq.after", 1, 1),
        ("share.write.before", 1, 1),
        ("share.write.after", 2, 1),
    ]
