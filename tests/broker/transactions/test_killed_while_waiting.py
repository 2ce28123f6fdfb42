"""The node is killed while a request waits, at each `await` of the coordinator, of Produce and of the markers.

After the kill, the event that the request waited for occurs: nothing is written, the client gets no response, and no
coroutine of the node is suspended any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.apis.end_txn import end_txn
from broker.apis.init_producer_id import init_producer_id
from broker.apis.write_txn_markers import write_txn_markers
from broker.transactions.markers import RETRY_BACKOFF_MS
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.coroutines import handled
from tests.support.points import Gate
from tests.support.world import OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
Wake = Callable[[], object]
"""A function that triggers the event that the request waits for."""
LONG_MS = 60_000


@pytest.fixture
def world(tmp_path, peers):
    world = World(tmp_path, peers=peers)
    world.create("t", 3)
    yield world
    world.abandon()


def hold(world: World, topic: str, index: int) -> Wake:
    """Keep the high watermark of the partition from advancing, except when the returned function is called."""
    partition = world.partition(topic, index)
    advance, partition.advance_high_watermark = partition.advance_high_watermark, lambda: None
    return advance


def hold_home(world: World) -> Wake:
    return hold(world, TRANSACTION_STATE, world.node.transactions.partition_for("tx"))


def gate(world: World, point: str) -> Wake:
    """Hold every passage of the point with a fault rule, until the returned function is called."""
    world.injection.points = found = Gate(point)
    return found.release


def init(world: World) -> Any:
    request = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=LONG_MS, producer_id=-1, producer_epoch=-1
    )
    return handled(init_producer_id, request, world.context(5))


def end(world: World, producer: tuple[int, int]) -> Any:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    return handled(end_txn, request, world.context(5))


def opened(world: World, *indexes: int) -> tuple[int, int]:
    producer = world.init()
    assert set(world.add("tx", *producer, *(("t", index) for index in indexes or (0,))).values()) == {OK}
    return producer


def send(world: World, producer: tuple[int, int], index: int = 0, *, transactional: bool = True) -> Any:
    batch = build_batch(
        [(world.clock.now, b"k", b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=transactional,
    )
    return world.ask_produce({("t", index): batch}, transactional_id="tx" if transactional else None)


# -- functions that bring a request to one `await`. They return the trigger and the request (None: it has its response).


def init_for_a_block_of_producer_ids(world: World) -> tuple[Wake, Any]:
    waiting: list[Any] = []
    world.cluster.waiting_for_ids = waiting
    request = init(world)
    return lambda: [each.set_result(500) for each in waiting], request


def init_for_the_commit_of_its_state(world: World) -> tuple[Wake, Any]:
    world.init()
    return hold_home(world), init(world)


def init_for_the_abort_of_the_transaction_before(world: World) -> tuple[Wake, Any]:
    opened(world)
    return hold_home(world), init(world)


def adding_partitions_for_the_commit_of_its_state(world: World) -> tuple[Wake, Any]:
    producer = world.init()
    return hold_home(world), world.ask_add("tx", *producer, ("t", 0))


def end_for_a_rule_at_prepare(world: World) -> tuple[Wake, Any]:
    producer = opened(world)
    return gate(world, "txn.prepare.append"), end(world, producer)


def end_for_the_commit_of_prepare(world: World) -> tuple[Wake, Any]:
    producer = opened(world)
    return hold_home(world), end(world, producer)


def completion_for_a_rule_at_a_marker(world: World) -> tuple[Wake, Any]:
    producer = opened(world, 0, 1)
    wake = gate(world, "txn.marker")
    assert end(world, producer).error_code == OK
    world.clock.advance(0)
    return wake, None


def completion_for_the_commit_of_a_marker(world: World) -> tuple[Wake, Any]:
    producer = opened(world, 0, 1)
    wake = hold(world, "t", 1)
    assert end(world, producer).error_code == OK
    return wake, None


def completion_for_another_node(world: World) -> tuple[Wake, Any]:
    producer = opened(world, 0, 1)
    world.cluster.move("t", 1, OTHER_NODE_ID)
    assert end(world, producer).error_code == OK
    [sent] = world.peers.take()
    return lambda: sent.answer(None), None


def completion_for_the_next_try_of_a_marker(world: World) -> tuple[Wake, Any]:
    producer = opened(world, 0, 1)
    world.cluster.move("t", 1, OTHER_NODE_ID)
    assert end(world, producer).error_code == OK
    [sent] = world.peers.take()
    sent.answer(None)
    return lambda: world.clock.advance(RETRY_BACKOFF_MS), None


def completion_for_a_rule_at_complete(world: World) -> tuple[Wake, Any]:
    producer = opened(world)
    wake = gate(world, "txn.complete.append")
    assert end(world, producer).error_code == OK
    return wake, None


def produce_for_the_commit_of_the_added_partition(world: World) -> tuple[Wake, Any]:
    producer = world.init()
    return hold_home(world), send(world, producer)


def produce_for_the_end_of_the_transaction_before(world: World) -> tuple[Wake, Any]:
    producer = opened(world)
    release = gate(world, "txn.complete.append")
    assert world.end("tx", *producer, committed=True, version=4)[0] == OK
    request = send(world, producer)

    def wake() -> None:
        release()
        world.clock.advance(1_000)

    return wake, request


def produce_for_the_high_watermark(world: World) -> tuple[Wake, Any]:
    return hold(world, "t", 0), send(world, (-1, -1), transactional=False)


def markers_of_another_node_for_their_commit(world: World) -> tuple[Wake, Any]:
    wake = hold(world, "t", 0)
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    return wake, handled(write_txn_markers, request, world.context(2))


WAITS = [value for name, value in globals().items() if "_for_" in name and callable(value)]


def ends_of_logs(world: World) -> dict[tuple[str, int], int]:
    return {each.key: each.log_end_offset for each in world.node.replicas.opened()}


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
async def test_nothing_goes_on_behind_the_death_of_the_node(world, wait):
    wake, request = wait(world)
    assert world.node.life.suspended_coroutines, "it waits"
    world.node.life.end()
    before = ends_of_logs(world)
    wake()
    await asyncio.sleep(0)
    world.clock.advance(LONG_MS)
    assert ends_of_logs(world) == before
    assert request is None or not request.done()
    assert not world.node.life.suspended_coroutines


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
async def test_the_request_continues_while_the_node_lives(world, wait):
    """Without a kill the event resumes the waiting request. Otherwise the test with a kill would pass even if the event
    had no effect."""
    wake, _ = wait(world)
    before = {each: each.waits_at for each in world.node.life.suspended_coroutines}
    wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {each: each.waits_at for each in world.node.life.suspended_coroutines} != before
