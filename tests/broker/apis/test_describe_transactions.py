"""DescribeTransactions: the coordinator's view of one transactional id, from its first InitProducerId to its expiry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.apis.describe_transactions import describe_transactions as describe_transactions_handler
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from tests.support.coroutines import served
from tests.support.world import OTHER_NODE_ID, TRANSACTION_STATE, World

describe_transactions = served(describe_transactions_handler)

OK = ErrorCode.none


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    world.create("t", 2)
    world.create("u")
    yield world
    world.abandon()


def described(world: World, transactional_id: str = "tx", context: Any = None) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = describe_transactions(request, context or world.context(0)).transaction_states
    assert state.transactional_id == transactional_id
    return state


def partitions(state: TransactionState) -> list[tuple[str, int]]:
    return [(topic.topic, index) for topic in state.topics for index in topic.partitions]


def test_an_id_before_between_and_after_transactions(world):
    producer_id, epoch = world.init(timeout_ms=1234)
    empty = described(world)
    assert (empty.error_code, empty.transaction_state) == (OK, "Empty")
    assert (empty.producer_id, empty.producer_epoch) == (producer_id, epoch)
    assert (empty.transaction_timeout_ms, empty.transaction_start_time_ms) == (1234, -1)
    assert partitions(empty) == []

    began_ms = world.clock.now_ms()
    world.add("tx", producer_id, epoch, ("u", 0), ("t", 1))
    world.clock.advance(5)
    world.add("tx", producer_id, epoch, ("t", 0))
    ongoing = described(world)
    assert (ongoing.transaction_state, ongoing.transaction_start_time_ms) == ("Ongoing", began_ms)
    assert partitions(ongoing) == [("t", 0), ("t", 1), ("u", 0)]

    world.end("tx", producer_id, epoch, committed=False)
    ended = described(world)
    assert (ended.transaction_state, ended.producer_epoch) == ("CompleteAbort", epoch + 1)
    assert partitions(ended) == []


def test_during_completion_only_partitions_without_a_marker_are_listed(world):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0), ("t", 1))
    world.cluster.move("t", 1, OTHER_NODE_ID)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    ending = described(world)
    assert (ending.transaction_state, partitions(ending)) == ("PrepareCommit", [("t", 1)])

    world.cluster.move("t", 1, 1)
    world.clock.advance(1_000)
    assert (described(world).transaction_state, partitions(described(world))) == ("CompleteCommit", [])


def test_an_unknown_id_and_an_empty_one(world):
    world.init("tx")
    for transactional_id, error in (
        ("", ErrorCode.invalid_request),
        ("unheard of", ErrorCode.transactional_id_not_found),
    ):
        state = described(world, transactional_id)
        assert (state.error_code, state.transaction_state, state.producer_id) == (error, "", 0)


def test_an_id_of_another_coordinator(world):
    world.init()
    for state in list(world.cluster.topics[TRANSACTION_STATE].partitions):
        world.cluster.move(TRANSACTION_STATE, state.index, OTHER_NODE_ID)
    assert described(world).error_code == ErrorCode.not_coordinator


def test_an_expired_id_is_not_found(world):
    world.init()
    world.clock.advance(8 * 24 * 3600 * 1000)
    world.node.transactions.cleanup.remove_expired()
    assert described(world).error_code == ErrorCode.transactional_id_not_found


def test_topics_without_describe_permission_are_omitted(world, monkeypatch):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0), ("u", 0))
    context = world.context(0)
    monkeypatch.setattr(
        type(context), "authorize", lambda self, *what, **how: what != ("DESCRIBE", "TOPIC", "t")
    )
    assert partitions(described(world, context=context)) == [("u", 0)]
    monkeypatch.setattr(type(context), "authorize", lambda self, *what, **how: what[1] != "TRANSACTIONAL_ID")
    refused = described(world, context=context)
    assert refused.error_code == ErrorCode.transactional_id_authorization_failed
