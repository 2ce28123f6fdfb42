"""Batches of transactions whose coordinator is another node, which verifies them before they are appended (KIP-890)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.apis.txn_offset_commit import txn_offset_commit
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.coroutines import handled
from tests.support.peers import Sent
from tests.support.world import CONSUMER_OFFSETS, NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none


@pytest.fixture
def world(tmp_path, peers):
    """A world in which node 2 coordinates every transactional id, and node 1 leads all other partitions."""
    world = World(tmp_path, peers=peers)
    world.create("t", 3)
    for state in list(world.cluster.topics[TRANSACTION_STATE].partitions):
        world.cluster.move(TRANSACTION_STATE, state.index, OTHER_NODE_ID)
    yield world
    world.abandon()


def produce(
    world: World, *indexes: int, transactional_id: str = "tx", epoch: int = 0, version: int = 12
) -> asyncio.Future[Any]:
    batch = build_batch(
        [(world.clock.now, b"k", b"v")],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    answer = world.ask_produce(
        {("t", index): batch for index in indexes}, transactional_id=transactional_id, version=version
    )
    if isinstance(answer, asyncio.Future):
        return answer
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answered.set_result(answer)
    return answered


def errors_of(answer: asyncio.Future[Any]) -> list[int]:
    return [part.error_code for topic in answer.result().responses for part in topic.partition_responses]


def answer(sent: Sent, *errors: ErrorCode, whole: ErrorCode = OK) -> None:
    """Respond to the requested partitions with ``errors``, in their order; the last error is repeated for all
    further partitions. ``whole`` is the error of the whole response, which then has no partitions."""
    left = list(errors) or [OK]

    def next_error() -> ErrorCode:
        return left.pop(0) if len(left) > 1 else left[0]

    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=next_error()
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ],
        )
        for transaction in sent.request.transactions
    ]
    sent.answer(
        AddPartitionsToTxnResponse(error_code=whole, results_by_transaction=results if whole is OK else [])
    )


@pytest.mark.parametrize(("version", "verifies"), [(11, True), (12, False)])
async def test_the_coordinator_is_asked_for_all_partitions_at_once(world, peers, version, verifies):
    waiting = produce(world, 0, 2, version=version)
    [sent] = peers.take()
    assert (sent.node_id, sent.client_id) == (OTHER_NODE_ID, "AddPartitionsManager-client-1")
    assert (sent.api_key, sent.api_version) == (24, 5)
    [transaction] = sent.request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("tx", 7, 0)
    assert transaction.verify_only is verifies
    assert [(topic.name, list(topic.partitions)) for topic in transaction.topics] == [("t", [0, 2])]
    assert world.partition("t", 0).log_end_offset == 0
    answer(sent)
    assert errors_of(waiting) == [OK, OK]
    assert [world.partition("t", index).log_end_offset for index in range(3)] == [1, 0, 1]


async def test_only_what_was_verified_is_appended(world, peers):
    waiting = produce(world, 0, 2, version=11)
    answer(peers.take()[0], OK, ErrorCode.transaction_abortable)
    assert errors_of(waiting) == [OK, ErrorCode.transaction_abortable]
    assert [world.partition("t", index).log_end_offset for index in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (12, ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch),
        (12, ErrorCode.coordinator_load_in_progress, ErrorCode.not_enough_replicas),
        (12, ErrorCode.not_coordinator, ErrorCode.not_enough_replicas),
        (12, ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping),
        (11, ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas),
        (10, ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state),
        (12, None, ErrorCode.not_enough_replicas),
    ],
)
async def test_the_error_that_the_producer_gets(world, peers, version, said, told):
    waiting = produce(world, 0, version=version)
    [sent] = peers.take()
    if said is None:
        sent.answer(None)
    else:
        answer(sent, said)
    assert errors_of(waiting) == [told]


async def test_an_authorization_error_between_nodes_is_not_returned_to_the_producer(world, peers):
    waiting = produce(world, 0)
    answer(peers.take()[0], whole=ErrorCode.cluster_authorization_failed)
    assert errors_of(waiting) == [ErrorCode.invalid_txn_state]


async def test_an_id_that_is_missing_in_the_response_is_not_verified(world, peers):
    waiting = produce(world, 0)
    peers.take()[0].answer(AddPartitionsToTxnResponse())
    assert errors_of(waiting) == [ErrorCode.not_enough_replicas]


async def test_an_add_is_tried_again_while_the_transaction_before_is_completed(world, peers):
    waiting = produce(world, 0)
    answer(peers.take()[0], ErrorCode.concurrent_transactions)
    assert peers.take() == []
    world.clock.advance(world.config.add_partitions_to_txn_retry_backoff_ms)
    answer(peers.take()[0])
    assert errors_of(waiting) == [OK]


async def test_an_add_is_retried_only_for_a_limited_time(world, peers):
    waiting = produce(world, 0)
    for _ in range(10):
        for sent in peers.take():
            answer(sent, ErrorCode.concurrent_transactions)
        world.clock.advance(world.config.add_partitions_to_txn_retry_backoff_ms)
    assert errors_of(waiting) == [ErrorCode.concurrent_transactions]


async def test_without_a_coordinator_the_producer_gets_a_retriable_error(world, peers):
    peers.dead.add(OTHER_NODE_ID)
    assert errors_of(produce(world, 0)) == [ErrorCode.not_enough_replicas]
    assert peers.take() == []


async def test_requests_of_many_producers_are_batched(world, peers):
    first = produce(world, 0, transactional_id="a")
    others = [produce(world, 1, transactional_id=name) for name in ("b", "c")]
    [sent] = peers.take()
    answer(sent)
    assert first.done()
    [sent] = peers.take()
    assert [each.transactional_id for each in sent.request.transactions] == ["b", "c"]
    answer(sent)
    assert all(waiting.done() for waiting in others)


@pytest.mark.parametrize(
    ("epoch_before", "epoch", "before", "after"),
    [
        (1, 2, ErrorCode.invalid_producer_epoch, None),
        (2, 1, None, ErrorCode.invalid_producer_epoch),
        (1, 1, ErrorCode.not_enough_replicas, None),
    ],
    ids=["fenced", "too late", "asked again"],
)
async def test_of_two_requests_for_one_id_only_one_is_sent(world, peers, epoch_before, epoch, before, after):
    produce(world, 2, transactional_id="other")
    first, second = produce(world, 0, epoch=epoch_before), produce(world, 1, epoch=epoch)
    put = second if after is None else first
    told = first if after is None else second
    assert errors_of(told) == [before or after]
    answer(peers.take()[0])
    answer(peers.take()[0])
    assert errors_of(put) == [OK]


async def test_a_marker_that_comes_while_the_coordinator_is_asked_refuses_the_batch(world, peers):
    """A batch is refused if the marker of an abort is written while the coordinator verifies the batch: appended after the
    marker, it would be a hanging transaction."""
    waiting = produce(world, 0, version=11)
    [sent] = peers.take()
    world.write_markers(7, 1, ("t", 0), transaction_version=2)
    answer(sent)
    assert errors_of(waiting) == [ErrorCode.invalid_producer_epoch]


async def test_the_coordinator_that_has_come_here_is_not_asked_over_the_network(world, peers):
    for state in list(world.cluster.topics[TRANSACTION_STATE].partitions):
        world.cluster.move(TRANSACTION_STATE, state.index, NODE_ID)
    producer_id, epoch = world.init()
    assert world.produce(
        "t", 0, b"v", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0
    ).error_code == int(OK)
    assert peers.take() == []


# -- offsets ------------------------------------------------------------------------------------------------


def commit_offsets(world: World, version: int) -> asyncio.Future[Any]:
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=7,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0,
                        committed_offset=5,
                        committed_leader_epoch=-1,
                        committed_metadata=None,
                    )
                ],
            )
        ],
    )
    waiting = handled(txn_offset_commit, request, world.context(version))
    assert isinstance(waiting, asyncio.Future)
    return waiting


@pytest.mark.parametrize(("version", "verifies"), [(4, True), (5, False)])
async def test_offsets_are_asked_for_as_well(world, peers, version, verifies):
    waiting = commit_offsets(world, version)
    [sent] = peers.take()
    [transaction] = sent.request.transactions
    index = world.node.groups.partition_for("g")
    assert transaction.verify_only is verifies
    assert [(topic.name, list(topic.partitions)) for topic in transaction.topics] == [
        (CONSUMER_OFFSETS, [index])
    ]
    answer(sent)
    assert waiting.result().topics[0].partitions[0].error_code == OK


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch),
        (ErrorCode.not_coordinator, ErrorCode.not_coordinator),
        (ErrorCode.concurrent_transactions, ErrorCode.concurrent_transactions),
        (ErrorCode.transaction_abortable, ErrorCode.transaction_abortable),
    ],
)
async def test_the_error_for_offsets(world, peers, said, told):
    waiting = commit_offsets(world, 5)
    [sent] = peers.take()
    if said is None:
        sent.answer(None)
    else:
        answer(sent, said)
    assert waiting.result().topics[0].partitions[0].error_code == told
