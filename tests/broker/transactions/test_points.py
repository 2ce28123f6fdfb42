"""Fault rules that hold, release or refuse the steps of a transaction, and other requests in the meantime."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from tests.support.coroutines import values_of
from tests.support.points import Gate
from tests.support.world import NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
CONCURRENT = ErrorCode.concurrent_transactions
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 1, 2, 4


@pytest.fixture
def world(tmp_path, peers):
    world = World(tmp_path, peers=peers)
    world.create("t", 5)
    world.cluster.move("t", 4, OTHER_NODE_ID)
    yield world
    world.abandon()


def begin(world: World, *indexes: int, transactional_id: str = "tx") -> tuple[int, int]:
    producer_id, epoch = world.init(transactional_id)
    world.add(transactional_id, producer_id, epoch, *(("t", index) for index in indexes))
    return producer_id, epoch


def state_of(world: World) -> int:
    brief = world.briefs()[-1]
    assert brief is not None
    return brief[0]


def ending(world: World, producer_id: int, epoch: int) -> list[ErrorCode]:
    async def error() -> ErrorCode:
        answer = await world.node.transactions.end("tx", producer_id, epoch, committed=True, bumps_epoch=True)
        return answer.error

    return values_of(error())


def test_before_prepare(world):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.prepare.append")
    answers = ending(world, producer_id, epoch)
    [held] = gate.held
    at = held.at
    shard = world.node.transactions.partition_for("tx")
    assert (at.node_id, at.topic, at.partition) == (NODE_ID, TRANSACTION_STATE, shard)
    assert at.transactional_id == "tx"
    assert (answers, state_of(world), world.markers("t")) == ([], ONGOING, [])
    assert world.ask_init().error_code == CONCURRENT
    gate.release()
    assert (answers, state_of(world), world.markers("t")) == ([OK], COMPLETE_COMMIT, [(1, True)])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.not_enough_replicas_after_append, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
    ],
)
def test_a_prepare_that_is_refused_is_a_failed_append(world, error, told):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.prepare.append")
    answers = ending(world, producer_id, epoch)
    gate.refuse(error)
    assert (answers, state_of(world)) == ([told], ONGOING)
    gate.release()
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK


@pytest.mark.parametrize("elsewhere", [True, False], ids=["another leader", "another epoch"])
def test_a_prepare_that_is_released_after_the_coordinator_has_moved_is_not_written(world, elsewhere):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.prepare.append")
    answers = ending(world, producer_id, epoch)
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, OTHER_NODE_ID if elsewhere else NODE_ID)
    gate.release()
    assert answers == [ErrorCode.not_coordinator]
    assert state_of(world) == ONGOING


def test_k_of_n_markers(world, peers):
    """While a rule holds the markers of three of five partitions, EndTxn has succeeded, the other two partitions
    have their markers, and InitProducerId gets CONCURRENT_TRANSACTIONS."""
    producer_id, epoch = begin(world, 0, 1, 2, 3, 4)
    world.injection.points = gate = Gate("txn.marker", lambda at: at.partition in (1, 2, 4))
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert gate.passed == [], "the response comes before the markers"
    world.clock.advance(0)
    assert [world.markers("t", index) for index in range(4)] == [[(1, True)], [], [], [(1, True)]]
    assert {(held.at.transactional_id, held.at.partition) for held in gate.held} == {
        ("tx", 1),
        ("tx", 2),
        ("tx", 4),
    }
    assert world.ask_init().error_code == CONCURRENT
    assert peers.sent == []
    gate.release()
    assert [world.markers("t", index) for index in (1, 2)] == [[(1, True)], [(1, True)]]
    assert state_of(world) == PREPARE_COMMIT
    [sent] = peers.take()
    assert list(sent.request.markers[0].topics[0].partition_indexes) == [4]


def test_a_marker_that_is_refused_is_tried_again(world):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.marker")
    world.end("tx", producer_id, epoch, committed=True)
    for _ in range(3):
        world.clock.advance(100)
        assert len(gate.held) == 1
        gate.refuse(ErrorCode.not_enough_replicas)
    gate.is_open = True
    world.clock.advance(100)
    assert (world.markers("t"), state_of(world)) == ([(1, True)], COMPLETE_COMMIT)


def test_a_marker_that_is_released_too_late_is_not_written(world):
    """Scenario D4 (tests/scenarios/README.md) on one node: a released marker is not written if the next coordinator has
    completed the transaction before the release."""
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.marker")
    world.end("tx", producer_id, epoch, committed=True)
    world.clock.advance(0)
    shard = world.node.transactions.partition_for("tx")
    world.injection.points = None
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    assert (world.markers("t"), state_of(world)) == ([(1, True)], COMPLETE_COMMIT)
    gate.release()
    assert world.markers("t") == [(1, True)]


def test_before_complete(world):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("txn.complete.append")
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert (world.markers("t"), state_of(world)) == ([(1, True)], PREPARE_COMMIT)
    assert world.add("tx", producer_id, 1, ("t", 1)) == {("t", 1): CONCURRENT}
    gate.refuse(ErrorCode.not_enough_replicas)
    world.clock.advance(100)
    assert state_of(world) == PREPARE_COMMIT
    gate.release()
    assert state_of(world) == COMPLETE_COMMIT
    assert world.add("tx", producer_id, 1, ("t", 1)) == {("t", 1): OK}


def test_a_load_that_is_held(world):
    producer_id, epoch = begin(world, 0)
    world.injection.points = gate = Gate("coordinator.load")
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    loading = ErrorCode.coordinator_load_in_progress
    assert world.ask_init().error_code == loading
    assert world.add("tx", producer_id, epoch, ("t", 1)) == {("t", 1): loading}
    assert world.end("tx", producer_id, epoch, committed=True)[0] == loading
    assert len(gate.held) == 1
    gate.release()
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK


def test_a_load_that_is_released_after_the_next_load_does_nothing(world):
    begin(world, 0)
    world.injection.points = gate = Gate("coordinator.load")
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    world.injection.points = None
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    before = world.memory()
    gate.release()
    assert world.memory() is before


def test_a_load_that_is_refused(world):
    begin(world, 0)
    world.injection.points = gate = Gate("coordinator.load")
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    gate.refuse(ErrorCode.kafka_storage_error)
    assert world.ask_init().error_code == ErrorCode.not_coordinator
    world.injection.points = None
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    assert world.ask_init().error_code == CONCURRENT, (
        "the next leadership loads the log, and aborts the open transaction"
    )


def test_a_long_log_is_read_in_several_turns(world, monkeypatch):
    from broker.coordinator_runtime import loader

    monkeypatch.setattr(loader, "LOAD_TURN_RECORDS", 4)
    for _ in range(10):
        world.init()
    producer_id, epoch = begin(world, 0, 1)
    index = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, index, NODE_ID)
    assert world.ask_init().error_code == ErrorCode.coordinator_load_in_progress
    world.clock.advance(0)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK


def test_nothing_that_waited_in_a_killed_node_happens_any_more(world, peers):
    producer_id, epoch = begin(world, 0, 1, 4)
    world.injection.points = gate = Gate("txn.marker", lambda at: at.partition == 1)
    world.end("tx", producer_id, epoch, committed=True)
    world.clock.advance(0)
    [sent] = peers.take()
    world.node.transactions.abandon()
    gate.release()
    sent.answer(None)
    world.clock.advance(60_000)
    assert world.markers("t", 1) == []
    assert peers.take() == []
    assert state_of(world) == PREPARE_COMMIT
    assert world.end("tx", producer_id, epoch, committed=True)[0] == ErrorCode.not_coordinator
