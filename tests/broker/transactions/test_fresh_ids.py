"""Requests that wait for a new producer id: the coordinator checks them again after the wait, and each gets a response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.apis.end_txn import end_txn
from broker.apis.init_producer_id import init_producer_id
from broker.transactions import decisions
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.coroutines import handled
from tests.support.deadlines import HANG_S
from tests.support.world import NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
LOADING = ErrorCode.coordinator_load_in_progress
CONCURRENT = ErrorCode.concurrent_transactions
TIMED_OUT_AFTER_MS = 80_000
LAST_USABLE_EPOCH = 32766
BLOCK_LOST = OSError("the metadata log failed")


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t", 1)
    yield world
    world.abandon()


def wear_out(world: World, epoch: int = LAST_USABLE_EPOCH) -> int:
    """Write a record of "tx" with this producer epoch, for a new coordinator to load. Returns the producer id."""
    producer_id, _ = world.init()
    index = world.node.transactions.partition_for("tx")
    value = world.states("tx")[-1].value
    assert index is not None
    assert value is not None
    value.producer_epoch = epoch
    record = (1, b"\0\0\0\x02tx", value.encode(1))
    assert world.partition(TRANSACTION_STATE, index).append_internal(build_batch([record])).error is OK
    world.drop_coordinator()
    return producer_id


def opened(world: World, epoch: int = LAST_USABLE_EPOCH) -> int:
    """Begin a transaction in this epoch. Returns its producer id."""
    producer_id = wear_out(world, epoch)
    answer = world.produce(
        "t", 0, b"v", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0
    )
    assert answer.error_code == OK
    return producer_id


def exhausted(world: World) -> list[asyncio.Future[int]]:
    """Make producer ids unavailable, so that requests wait. Returns the list of the waiting futures."""
    world.cluster.waiting_for_ids = []
    return world.cluster.waiting_for_ids


def init(world: World) -> asyncio.Future[Any]:
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    return asyncio.ensure_future(handled(init_producer_id, request, world.context(5)))


def end(world: World, producer_id: int, epoch: int) -> asyncio.Future[Any]:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    return asyncio.ensure_future(handled(end_txn, request, world.context(5)))


async def answered(waiting: asyncio.Future[Any]) -> Any:
    return await asyncio.wait_for(waiting, HANG_S)


async def test_an_end_of_version_4_that_comes_meanwhile_is_seen(world):
    producer_id = opened(world)
    waiting_for_ids = exhausted(world)
    answer = init(world)
    assert world.end("tx", producer_id, LAST_USABLE_EPOCH, committed=True, version=4)[0] == OK
    waiting_for_ids[0].set_result(500)
    told = await answered(answer)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (OK, 500, 0)
    assert world.markers("t") == [(LAST_USABLE_EPOCH, True)]


async def test_of_two_that_wait_one_aborts_and_both_are_answered(world):
    opened(world)
    waiting_for_ids = exhausted(world)
    answers = [init(world), init(world)]
    for future in waiting_for_ids:
        future.set_result(500 + waiting_for_ids.index(future))
    told = [await answered(answer) for answer in answers]
    assert [each.error_code for each in told] == [CONCURRENT, OK]
    assert (told[1].producer_id, told[1].producer_epoch) == (500, 1)
    assert world.markers("t") == [(32767, False)]


async def test_an_id_is_not_stuck_when_there_is_no_producer_id(world):
    producer_id = opened(world)
    waiting_for_ids = exhausted(world)
    answer = init(world)
    waiting_for_ids[0].set_exception(BLOCK_LOST)
    assert (await answered(answer)).error_code == LOADING
    world.cluster.waiting_for_ids = None
    assert world.ask_init().error_code == CONCURRENT
    assert world.init() == (producer_id + 1, 1)


async def test_a_timeout_without_a_producer_id_is_tried_again(world):
    producer_id = opened(world)
    world.node.transactions.start()
    waiting_for_ids = exhausted(world)
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert world.markers("t") == []
    for future in waiting_for_ids:
        future.set_exception(BLOCK_LOST)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.cluster.waiting_for_ids = None
    world.clock.advance(20_000)
    assert world.markers("t") == [(32767, False)]
    assert world.init() == (producer_id + 1, 1)


async def test_a_timeout_that_waited_leaves_the_next_transaction_alone(world):
    producer_id = opened(world)
    world.node.transactions.start()
    waiting_for_ids = exhausted(world)
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert world.end("tx", producer_id, LAST_USABLE_EPOCH, committed=True, version=4)[0] == OK
    assert world.add("tx", producer_id, LAST_USABLE_EPOCH, ("t", 0)) == {("t", 0): OK}
    for future in waiting_for_ids:
        future.set_result(500)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.markers("t") == [(LAST_USABLE_EPOCH, True)]
    assert world.briefs()[-1] == (1, LAST_USABLE_EPOCH)


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_coordinator_that_has_moved_meanwhile_says_so(world, is_back):
    producer_id = opened(world)
    waiting_for_ids = exhausted(world)
    answers = [init(world), end(world, producer_id, LAST_USABLE_EPOCH)]
    index = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, index, OTHER_NODE_ID)
    if is_back:
        world.cluster.move(TRANSACTION_STATE, index, NODE_ID)
    for number, future in enumerate(waiting_for_ids):
        future.set_result(500 + number)
    told = [(await answered(answer)).error_code for answer in answers]
    moved = ErrorCode.not_coordinator
    assert told == ([CONCURRENT, ErrorCode.invalid_txn_state] if is_back else [moved, moved])


async def test_an_exception_after_the_wait_is_the_request_s(world, monkeypatch):
    """An exception after the wait for a producer id fails the request, and the connection sends an error. Otherwise the
    client would wait until its request timeout."""
    producer_id = opened(world)
    waiting_for_ids = exhausted(world)
    answers = [init(world), end(world, producer_id, LAST_USABLE_EPOCH)]

    def broken(*arguments: object, **more: Any) -> None:
        raise AssertionError("a broken invariant")

    monkeypatch.setattr(decisions, "init_producer_id", broken)
    monkeypatch.setattr(decisions, "end_v2", broken)
    for future in waiting_for_ids:
        future.set_result(500)
    for answer in answers:
        with pytest.raises(AssertionError, match="a broken invariant"):
            await answered(answer)


async def test_an_exception_after_the_append_is_the_request_s(world, monkeypatch):
    """An exception after an append was committed fails the request that waits for the append, and not the
    follower's fetch or the flush that committed it."""
    index = world.node.transactions.partition_for("tx")
    partition = world.partition(TRANSACTION_STATE, index)
    advance, partition.advance_high_watermark = partition.advance_high_watermark, lambda: None
    answer = init(world)
    shard = world.node.transactions._runtime.find(index)
    monkeypatch.setattr(type(shard), "install", lambda *arguments: 1 / 0)
    advance()
    with pytest.raises(ZeroDivisionError):
        await answered(answer)


def test_an_abort_of_version_5_at_the_very_last_epoch_does_not_bump(world):
    """EndTxn version 5 aborts a transaction in epoch 32767, which should never be in use: the marker has epoch
    32767, and the response has a new producer id with epoch 0."""
    producer_id = opened(world, 32767)
    assert world.end("tx", producer_id, 32767, committed=False) == (OK, producer_id + 1, 0)
    assert world.briefs()[-2:] == [(3, 32767), (5, 0)]
    assert world.markers("t") == [(32767, False)]


def test_a_commit_of_version_5_at_the_very_last_epoch_is_an_error(world):
    producer_id = opened(world, 32767)
    assert world.end("tx", producer_id, 32767, committed=True)[0] == ErrorCode.unknown_server_error
    assert world.briefs()[-1] == (1, 32767)
    assert world.end("tx", producer_id, 32767, committed=False) == (OK, producer_id + 1, 0)
