"""AddPartitionsToTxn: a client's request has one transaction, a broker's request has several. The partitions of a
transaction are either all added or all refused."""

from __future__ import annotations

import pytest

from broker.apis.add_partitions_to_txn import add_partitions_to_txn
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from tests.support.coroutines import handled
from tests.support.world import World, added, by_topic

OK = ErrorCode.none
NOT_TRIED = ErrorCode.operation_not_attempted
CLIENTS = range(4)
BROKERS = (4, 5)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t", 2)
    world.create("s")
    yield world
    world.abandon()


def transaction(transactional_id, producer_id, epoch, *keys, verify_only=False):
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=by_topic(keys, added),
    )


def ask(world: World, *transactions, version: int = 5) -> list[tuple[str, dict[tuple[str, int], int]]]:
    """Send a broker's request and return (transactional id, error by partition) of each transaction."""
    answer = handled(
        add_partitions_to_txn, AddPartitionsToTxnRequest(transactions=transactions), world.context(version)
    )
    assert answer.error_code == OK
    return [
        (
            result.transactional_id,
            {
                (topic.name, one.partition_index): one.partition_error_code
                for topic in result.topic_results
                for one in topic.results_by_partition
            },
        )
        for result in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", CLIENTS)
def test_a_client_gets_a_result_for_each_partition(world, version):
    producer_id, epoch = world.init()
    keys = [("t", 1), ("t", 0), ("s", 0)]
    assert world.add("tx", producer_id, epoch, *keys, version=version) == dict.fromkeys(keys, OK)
    txn = world.memory()
    assert txn is not None
    assert (txn.partitions, txn.client_version) == (frozenset(keys), 0)


@pytest.mark.parametrize("version", CLIENTS)
@pytest.mark.parametrize(
    ("strange", "error"),
    [
        (("t", 2), ErrorCode.unknown_topic_or_partition),
        (("missing", 0), ErrorCode.unknown_topic_or_partition),
        (("__consumer_offsets", 0), ErrorCode.topic_authorization_failed),
        (("__transaction_state", 0), ErrorCode.topic_authorization_failed),
    ],
)
def test_if_one_partition_fails_none_is_added(world, version, strange, error):
    producer_id, epoch = world.init()
    answer = world.add("tx", producer_id, epoch, ("t", 0), strange, ("s", 0), version=version)
    assert answer == {("t", 0): NOT_TRIED, strange: error, ("s", 0): NOT_TRIED}
    assert world.briefs() == [(0, 0)]


def test_partitions_are_checked_before_the_transaction(world):
    answer = world.add("unknown", 7, 3, ("t", 0), ("t", 9))
    assert answer == {("t", 0): NOT_TRIED, ("t", 9): ErrorCode.unknown_topic_or_partition}
    assert world.add("", 7, 3, ("t", 9)) == {("t", 9): ErrorCode.unknown_topic_or_partition}


@pytest.mark.parametrize("transactional_id", ["", None])
def test_the_transactional_id_may_not_be_empty(world, transactional_id):
    assert world.add(transactional_id, 7, 3, ("t", 0)) == {("t", 0): ErrorCode.invalid_request}


@pytest.mark.parametrize("version", CLIENTS)
@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (9, 0, ErrorCode.invalid_producer_id_mapping),
        (0, 5, ErrorCode.producer_fenced),
        (0, -1, ErrorCode.producer_fenced),
    ],
)
def test_a_fenced_producer_gets_the_error_that_its_version_knows(world, version, producer_id, epoch, error):
    world.init()
    if error is ErrorCode.producer_fenced and version < 2:
        error = ErrorCode.invalid_producer_epoch
    assert world.add("tx", producer_id, epoch, ("t", 0), version=version) == {("t", 0): error}


def test_an_unknown_transactional_id_has_no_mapping(world):
    assert world.add("unknown", 7, 3, ("t", 0)) == {("t", 0): ErrorCode.invalid_producer_id_mapping}


@pytest.mark.parametrize("version", BROKERS)
def test_a_broker_asks_for_many_transactions_at_once(world, version):
    one, other = world.init("one"), world.init("other")
    asked = ask(
        world,
        transaction("one", *one, ("t", 0)),
        transaction("other", *other, ("t", 0), ("t", 9)),
        transaction("unknown", 9, 9, ("s", 0)),
        version=version,
    )
    assert asked == [
        ("one", {("t", 0): OK}),
        ("other", {("t", 0): NOT_TRIED, ("t", 9): ErrorCode.unknown_topic_or_partition}),
        ("unknown", {("s", 0): ErrorCode.invalid_producer_id_mapping}),
    ]
    txn = world.memory("one")
    assert txn is not None
    assert txn.client_version == 2


@pytest.mark.parametrize("version", BROKERS)
def test_a_broker_may_add_the_offsets_topic(world, version):
    producer_id, epoch = world.init()
    key = ("__consumer_offsets", 0)
    assert ask(world, transaction("tx", producer_id, epoch, key), version=version) == [("tx", {key: OK})]


@pytest.mark.parametrize("version", BROKERS)
def test_verification_has_a_result_for_each_partition_and_adds_none(world, version):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    before = world.memory()
    question = transaction("tx", producer_id, epoch, ("t", 0), ("t", 1), verify_only=True)
    assert ask(world, question, version=version) == [
        ("tx", {("t", 0): OK, ("t", 1): ErrorCode.transaction_abortable})
    ]
    assert world.memory() == before


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [(9, 0, ErrorCode.invalid_producer_id_mapping), (0, 5, ErrorCode.producer_fenced)],
)
def test_a_broker_gets_producer_fenced(world, verify_only, producer_id, epoch, error):
    world.init()
    question = transaction("tx", producer_id, epoch, ("t", 0), verify_only=verify_only)
    assert ask(world, question) == [("tx", {("t", 0): error})]


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_broker_must_send_a_transactional_id(world, verify_only):
    question = transaction("", 0, 0, ("t", 0), verify_only=verify_only)
    assert ask(world, question) == [("", {("t", 0): ErrorCode.invalid_request})]


def test_a_request_without_transactions_has_no_results(world):
    assert ask(world) == []
