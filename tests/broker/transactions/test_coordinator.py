"""The transaction coordinator on real logs: its records, their order, failures, and timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.apis.end_txn import end_txn
from broker.metadata.values import PartitionState
from broker.replicas.partition import AppendResult
from broker.transactions.transaction import TransactionState
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.records.transaction_log import TransactionLogValue
from tests.support.coroutines import handled, values_of
from tests.support.deadlines import HANG_S
from tests.support.world import CONSUMER_OFFSETS, NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
KAFKAS_ORDER = {"odradek.commit.order": "kafka", "odradek.commit.marker.delay.ms": "50"}
TIMED_OUT_AFTER_MS = 80_000
"""Time after which these transactions are aborted: more than their timeout plus the interval of the job that aborts them."""
DAY_MS = 86_400_000


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t", 3)
    yield world
    world.abandon()


@pytest.fixture
def kafka(tmp_path):
    """A broker with `odradek.commit.order=kafka`: it responds to EndTxn before it writes the markers."""
    world = World(tmp_path, settings=KAFKAS_ORDER)
    world.create("t", 3)
    yield world
    world.abandon()


def send(world: World, producer_id: int, epoch: int, sequence: int = 0, index: int = 0, version: int = 12):
    return world.produce(
        "t",
        index,
        b"v%d" % sequence,
        transactional_id="tx",
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        version=version,
    ).error_code


def begin(world: World) -> tuple[int, int]:
    """Begin a transaction of version 2 and write one record. Returns the producer id and epoch."""
    producer_id, epoch = world.init()
    assert send(world, producer_id, epoch) == OK
    return producer_id, epoch


def fail_appends(world: World, *errors: ErrorCode) -> None:
    """Make the next appends to the coordinator's partition fail with these errors."""
    shard = world.node.transactions.partition_for("tx")
    assert shard is not None
    partition = world.partition(TRANSACTION_STATE, shard)
    left = list(errors)
    append = partition.append_internal

    def failing(records, *more):
        return AppendResult(left.pop(0)) if left else append(records, *more)

    partition.append_internal = failing


def hold_high_watermark(world: World, topic: str, index: int):
    """Keep the high watermark of a partition from advancing until the returned function is called."""
    partition = world.partition(topic, index)
    advance = partition.advance_high_watermark
    partition.advance_high_watermark = lambda: None

    def release() -> None:
        del partition.advance_high_watermark
        advance()

    return release


def hold_home(world: World):
    shard = world.node.transactions.partition_for("tx")
    assert shard is not None
    return hold_high_watermark(world, TRANSACTION_STATE, shard)


# -- records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "prepared"), [(True, 2), (False, 3)])
def test_a_transaction_of_version_2_goes_to_its_next_epoch_with_prepare(world, committed, prepared):
    producer_id, epoch = begin(world)
    assert world.end("tx", producer_id, epoch, committed=committed) == (OK, producer_id, epoch + 1)
    assert world.briefs() == [(0, 0), (1, 0), (prepared, 1), (prepared + 2, 1)]
    assert world.markers("t") == [(1, committed)]


@pytest.mark.parametrize(("committed", "prepared"), [(True, 2), (False, 3)])
@pytest.mark.parametrize("version", range(5))
def test_a_transaction_of_version_1_stays_in_its_epoch(world, committed, prepared, version):
    producer_id, epoch = world.init()
    assert world.add("tx", producer_id, epoch, ("t", 0)) == {("t", 0): OK}
    assert send(world, producer_id, epoch, version=11) == OK
    assert world.end("tx", producer_id, epoch, committed=committed, version=version)[0] == OK
    assert world.briefs() == [(0, 0), (1, 0), (prepared, 0), (prepared + 2, 0)]
    assert world.markers("t") == [(0, committed)]


def test_records_of_a_transaction_field_by_field(world):
    begun = world.clock.now
    producer_id, epoch = world.init(timeout_ms=7_000)
    world.clock.advance(10)
    send(world, producer_id, epoch, index=2)
    world.clock.advance(10)
    send(world, producer_id, epoch, index=0)
    world.clock.advance(10)
    world.end("tx", producer_id, epoch, committed=True)
    values = [state.value for state in world.states("tx")]
    assert [_summary(value, begun) for value in values] == [
        # status, epoch, partitions, start, last update, previous and next producer id, client version
        (0, 0, None, None, 0, 0, -1, 0),
        (1, 0, {"t": [2]}, 10, 10, 0, -1, 2),
        (1, 0, {"t": [0, 2]}, 10, 20, 0, -1, 2),
        (2, 1, {"t": [0, 2]}, 10, 30, 0, -1, 2),
        (4, 1, {}, 10, 30, 0, -1, 2),
    ]
    assert {value.transaction_timeout_ms for value in values if value} == {7_000}


def _summary(value: TransactionLogValue | None, begun: int):
    assert value is not None
    topics = value.transaction_partitions
    start = value.transaction_start_timestamp_ms
    return (
        value.transaction_status,
        value.producer_epoch,
        None if topics is None else {topic.topic: list(topic.partition_ids) for topic in topics},
        None if start == -1 else start - begun,
        value.transaction_last_update_timestamp_ms - begun,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )


def test_the_client_version_survives_into_later_empty_records(world):
    producer_id, epoch = begin(world)
    _, producer_id, epoch = world.end("tx", producer_id, epoch, committed=True)
    world.init()
    last = world.states("tx")[-1].value
    assert last is not None
    assert (last.transaction_status, last.client_transaction_version) == (0, 2)


def test_an_abort_with_nothing_added_moves_the_epoch_and_writes_no_marker(world):
    producer_id, epoch = world.init()
    assert world.end("tx", producer_id, epoch, committed=False) == (OK, producer_id, 1)
    assert world.briefs() == [(0, 0), (3, 1), (5, 1)]
    prepared = world.states("tx")[1].value
    assert prepared is not None
    assert prepared.transaction_partitions == ()
    assert prepared.transaction_start_timestamp_ms == world.clock.now
    assert world.batches("t") == []


def test_what_is_there_already_is_not_written_again(world):
    producer_id, epoch = world.init()
    for _ in range(3):
        assert world.add("tx", producer_id, epoch, ("t", 0), ("t", 1)) == {("t", 0): OK, ("t", 1): OK}
    assert world.briefs() == [(0, 0), (1, 0)]


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_clusters_level_decides_the_version_of_values(tmp_path, level, version):
    world = World(tmp_path, transaction_version=level)
    world.init()
    shard = world.node.transactions.partition_for("tx")
    [batch] = world.batches(TRANSACTION_STATE, shard or 0)
    [record] = batch.records()
    assert record.value is not None
    assert int.from_bytes(record.value[:2], "big") == version
    world.abandon()


def test_a_transaction_begun_by_version_2_may_be_ended_by_version_1(world):
    producer_id, epoch = begin(world)
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    assert world.briefs() == [(0, 0), (1, 0), (2, 0), (4, 0)]
    assert world.markers("t") == [(0, True)]


def test_both_protocols_take_turns_on_one_id(world):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    send(world, producer_id, epoch, 0, version=11)
    world.end("tx", producer_id, epoch, committed=True, version=4)
    assert send(world, producer_id, epoch, 1, version=12) == OK
    _, producer_id, epoch = world.end("tx", producer_id, epoch, committed=True)
    assert epoch == 1
    world.add("tx", producer_id, epoch, ("t", 0))
    assert send(world, producer_id, epoch, 0, version=11) == OK
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    assert world.committed_values("t") == [b"v0", b"v1", b"v0"]


# -- Kafka's order: the response before the markers ---------------------------------------------------------


@pytest.mark.parametrize(("version", "epoch_after"), [(4, 0), (5, 1)])
def test_between_the_response_and_complete_every_request_has_to_be_repeated(kafka, version, epoch_after):
    producer_id, epoch = kafka.init()
    send(kafka, producer_id, epoch)
    assert kafka.end("tx", producer_id, epoch, committed=True, version=version)[0] == OK
    assert kafka.briefs()[-1] == (2, epoch_after)
    assert kafka.markers("t") == []
    concurrent = ErrorCode.concurrent_transactions
    assert kafka.add("tx", producer_id, epoch_after, ("t", 0)) == {("t", 0): concurrent}
    assert kafka.ask_init().error_code == concurrent
    assert kafka.end("tx", producer_id, epoch, committed=True, version=version)[0] == concurrent
    assert kafka.partition("t").last_stable_offset == 0
    kafka.clock.advance(50)
    assert kafka.briefs()[-1] == (4, epoch_after)
    assert kafka.add("tx", producer_id, epoch_after, ("t", 0)) == {("t", 0): OK}


def test_until_the_complete_state_is_written_every_request_gets_concurrent_transactions(kafka):
    """Every request gets CONCURRENT_TRANSACTIONS until the Complete state is written. This check comes before the checks of
    producer id, epoch and verdict."""
    producer_id, epoch = kafka.init()
    send(kafka, producer_id, epoch)
    kafka.end("tx", producer_id, epoch, committed=True)
    concurrent = ErrorCode.concurrent_transactions
    assert kafka.add("tx", producer_id + 9, epoch, ("t", 0)) == {("t", 0): concurrent}
    assert kafka.add("tx", producer_id, epoch + 7, ("t", 0)) == {("t", 0): concurrent}
    assert kafka.ask_init(producer_id=producer_id + 9, epoch=0).error_code == concurrent
    assert kafka.end("tx", producer_id, epoch, committed=False)[0] == concurrent
    assert kafka.end("tx", producer_id + 9, epoch, committed=True)[0] == concurrent


def test_a_retry_of_version_1_gets_concurrent_transactions_and_then_success(kafka):
    producer_id, epoch = kafka.init()
    send(kafka, producer_id, epoch)
    for expected in (OK, ErrorCode.concurrent_transactions):
        assert kafka.end("tx", producer_id, epoch, committed=True, version=4)[0] == expected
    kafka.clock.advance(50)
    for _ in range(2):
        assert kafka.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    assert kafka.end("tx", producer_id, epoch, committed=False, version=4)[0] == ErrorCode.invalid_txn_state
    assert kafka.markers("t") == [(0, True)]


async def test_a_batch_of_version_12_waits_for_an_end_of_version_4_and_is_appended(kafka):
    """Produce version 12 waits until a transaction that was ended by EndTxn version 4 is complete. The marker and
    the waiting batch have the same epoch, so the batch is verified for the next transaction (KIP-890)."""
    producer_id, epoch = kafka.init()
    kafka.add("tx", producer_id, epoch, ("t", 0))
    assert kafka.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    batch = build_batch(
        [(kafka.clock.now, b"k", b"next")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    waiting = kafka.ask_produce({("t", 0): batch}, transactional_id="tx")
    for _ in range(6):
        kafka.clock.advance(20)
    answer = await asyncio.wait_for(waiting, HANG_S)
    assert kafka.markers("t") == [(0, True)]
    assert answer.responses[0].partition_responses[0].error_code == OK


async def test_a_batch_that_waits_is_verified_again_at_each_try(kafka):
    """A waiting batch is verified again before each attempt to append it: the marker discards the verification
    guard of an earlier attempt."""
    kafka.create("u", 1)
    producer_id, epoch = kafka.init()
    kafka.add("tx", producer_id, epoch, ("u", 0))
    kafka.partition("u").log.producers.start_verification(
        producer_id, epoch, 0, supports_epoch_bump=False, now_ms=kafka.clock.now_ms()
    )
    assert kafka.end("tx", producer_id, epoch, committed=False, version=4)[0] == OK
    batch = build_batch(
        [(kafka.clock.now, b"k", b"next")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    waiting = kafka.ask_produce({("u", 0): batch}, transactional_id="tx")
    for _ in range(6):
        kafka.clock.advance(20)
    answer = await asyncio.wait_for(waiting, HANG_S)
    assert answer.responses[0].partition_responses[0].error_code == OK


async def test_an_exception_in_a_later_try_is_the_answer(kafka, monkeypatch):
    """An exception in a later attempt to append fails the request. If the exception were lost, neither this request nor any
    later request of its connection would get a response."""
    producer_id, epoch = kafka.init()
    kafka.add("tx", producer_id, epoch, ("t", 0))
    assert kafka.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    batch = build_batch(
        [(kafka.clock.now, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    waiting = kafka.ask_produce({("t", 0): batch}, transactional_id="tx")
    monkeypatch.setattr(kafka.partition("t"), "append_as_sent", lambda *arguments, **more: 1 / 0)
    for _ in range(6):
        kafka.clock.advance(20)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(waiting, HANG_S)


async def test_an_exception_after_the_records_were_read_is_the_answer(world, monkeypatch):
    partition = world.partition("t")
    check = partition.check

    def slowly(batch, limits):
        for _ in range(3):
            yield None
        return check(batch, limits)

    monkeypatch.setattr(partition, "append_as_sent", lambda *arguments, **more: None)
    monkeypatch.setattr(partition, "check", slowly)
    monkeypatch.setattr(partition, "append", lambda *arguments, **more: 1 / 0)
    waiting = world.ask_produce({("t", 0): build_batch([(world.clock.now, b"k", b"v")])})
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(waiting, HANG_S)
    assert world.node.append_queues.is_free(partition)


@pytest.mark.parametrize("version", [11, 12])
def test_a_transactional_batch_without_a_producer_is_in_no_transaction(world, version):
    """A transactional batch without a producer id is appended outside of any transaction. Its request must have a
    transactional id. Kafka verifies only batches with a producer id."""
    batch = build_batch([(world.clock.now, b"k", b"v")], transactional=True)
    for transactional_id, error in ((None, 53), ("tx", 0)):
        answer = world.ask_produce({("t", 0): batch}, transactional_id=transactional_id, version=version)
        assert answer.responses[0].partition_responses[0].error_code == error
    assert world.partition("t").last_stable_offset == 1


@pytest.mark.parametrize("version", [4, 5])
def test_version_0_stores_nothing_of_the_new_protocol(tmp_path, version):
    """With transaction.version 0 requests of the new protocol fail with UNSUPPORTED_VERSION: record values of version 0
    cannot store the fields of the new protocol. The old protocol works."""
    world = World(tmp_path, transaction_version=0)
    world.create("t", 1)
    producer_id, epoch = world.init()
    assert send(world, producer_id, epoch) == ErrorCode.unsupported_version
    assert world.add("tx", producer_id, epoch, ("t", 0)) == {("t", 0): OK}
    assert send(world, producer_id, epoch, version=11) == OK
    error = world.end("tx", producer_id, epoch, committed=True, version=version)[0]
    assert error == (OK if version == 4 else ErrorCode.unsupported_version)
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    assert world.committed_values("t") == [b"v0"]
    world.abandon()


# -- fencing ------------------------------------------------------------------------------------------------


def test_a_new_instance_aborts_what_the_old_one_left_open(world):
    producer_id, epoch = begin(world)
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    assert world.briefs()[2:] == [(3, 1), (5, 1)]
    assert world.init() == (producer_id, 2)
    assert world.markers("t") == [(1, False)]
    assert send(world, producer_id, epoch, 1) == ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("level", [0, 1])
def test_on_an_older_cluster_the_new_instance_fences_by_the_epoch_as_well(tmp_path, level):
    world = World(tmp_path, transaction_version=level)
    world.create("t")
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    send(world, producer_id, epoch, version=11)
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    assert world.briefs()[2:] == [(3, 1), (5, 1)]
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == ErrorCode.producer_fenced
    assert world.init() == (producer_id, 2)
    assert world.markers("t") == [(1, False)]
    world.abandon()


def test_a_fence_that_could_not_be_written_holds_in_memory_and_is_not_repeated(tmp_path):
    world = World(tmp_path, transaction_version=1)
    world.create("t")
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    fail_appends(world, ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas)
    for _ in range(2):
        assert world.ask_init().error_code == ErrorCode.coordinator_not_available
        txn = world.memory()
        assert txn is not None
        assert (txn.state, txn.epoch) == (TransactionState.ONGOING, 1)
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == ErrorCode.producer_fenced
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    assert world.briefs()[2:] == [(3, 1), (5, 1)]
    world.abandon()


# -- producer ids -------------------------------------------------------------------------------------------


def wear_out(world: World, epoch: int = 32766) -> int:
    """Write a record of "tx" with this producer epoch, for a new coordinator to load. Returns the producer id."""
    producer_id, _ = world.init()
    shard = world.node.transactions.partition_for("tx")
    assert shard is not None
    value = world.states("tx")[-1].value
    assert value is not None
    value.producer_epoch = epoch
    key = b"\0\0\0\x02tx"
    partition = world.partition(TRANSACTION_STATE, shard)
    assert partition.append_internal(build_batch([(1, key, value.encode(1))])).error is OK
    world.drop_coordinator()
    return producer_id


@pytest.mark.parametrize("given", [True, False])
def test_a_worn_out_producer_id_is_replaced_by_init(world, given):
    producer_id = wear_out(world)
    identity = {"producer_id": producer_id, "epoch": 32766} if given else {}
    fresh = world.init(**identity)
    assert fresh == (producer_id + 1, 0)
    last = world.states("tx")[-1].value
    assert last is not None
    assert (last.previous_producer_id, last.producer_id, last.producer_epoch) == (producer_id, *fresh)
    if given:
        assert world.init(**identity) == fresh, "a retry after a lost response gets the same identity"
    else:
        answer = world.ask_init(producer_id=producer_id, epoch=32766)
        assert answer.error_code == ErrorCode.producer_fenced


@pytest.mark.parametrize("committed", [True, False])
def test_a_worn_out_producer_id_is_replaced_by_end(world, committed):
    producer_id = wear_out(world)
    assert send(world, producer_id, 32766) == OK
    answer = (OK, producer_id + 1, 0)
    assert world.end("tx", producer_id, 32766, committed=committed) == answer
    prepared, done = (state.value for state in world.states("tx")[-2:])
    assert prepared is not None
    assert done is not None
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (
        producer_id,
        32767,
        producer_id + 1,
    )
    assert (done.producer_id, done.producer_epoch) == (producer_id + 1, 0)
    assert (done.previous_producer_id, done.next_producer_id) == (producer_id, -1)
    assert world.markers("t") == [(32767, committed)]
    assert world.end("tx", producer_id, 32766, committed=committed) == answer, (
        "a late retry gets the same response"
    )
    world.drop_coordinator()
    assert world.end("tx", producer_id, 32766, committed=committed) == answer, "also from a new coordinator"
    assert send(world, producer_id + 1, 0) == OK
    late = world.end("tx", producer_id, 32766, committed=committed)
    assert late == (ErrorCode.invalid_producer_id_mapping, -1, -1)


def test_a_worn_out_producer_that_times_out_gets_a_new_producer_id(world):
    producer_id = wear_out(world)
    send(world, producer_id, 32766)
    world.node.transactions.start()
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert world.markers("t") == [(32767, False)]
    assert world.init() == (producer_id + 1, 1)


async def test_all_requests_wait_for_the_next_block_of_producer_ids(world):
    from broker.apis.init_producer_id import init_producer_id
    from protocol.messages.init_producer_id import InitProducerIdRequest

    waiting: list[Any] = []
    world.cluster.waiting_for_ids = waiting
    requests = [
        InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
        )
        for name in ("a", "b", None)
    ]
    answers = [asyncio.ensure_future(handled(init_producer_id, each, world.context(5))) for each in requests]
    world.cluster.waiting_for_ids = None
    waiting[0].set_result(500)
    waiting[1].set_exception(OSError("no"))
    waiting[2].set_exception(OSError("no"))
    first, *others = [await answer for answer in answers]
    assert (first.error_code, first.producer_id, first.producer_epoch) == (OK, 500, 0)
    for answer in others:
        assert answer.error_code == ErrorCode.coordinator_load_in_progress
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_no_producer_id_comes_twice_whatever_way_the_process_ends(world):
    first, _ = world.init("a")
    world.crash()
    second, _ = world.init("b")
    world.crash()
    third, _ = world.init("c")
    assert (first, second, third) == (0, 1000, 2000)


# -- appends that fail or wait ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.unknown_topic_or_partition, ErrorCode.coordinator_not_available),
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.not_enough_replicas_after_append, ErrorCode.coordinator_not_available),
        (ErrorCode.request_timed_out, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.unknown_server_error),
        (ErrorCode.record_list_too_large, ErrorCode.unknown_server_error),
        (ErrorCode.invalid_timestamp, ErrorCode.invalid_timestamp),
    ],
)
def test_a_state_that_cannot_be_written_is_not_taken(world, failure, told):
    producer_id, epoch = begin(world)
    before = world.memory()
    for ask in (
        lambda: world.end("tx", producer_id, epoch, committed=True)[0],
        lambda: world.end("tx", producer_id, epoch, committed=True, version=4)[0],
        lambda: world.add("tx", producer_id, epoch, ("t", 1))["t", 1],
        lambda: world.ask_init().error_code,
    ):
        fail_appends(world, failure)
        assert ask() == told
        assert world.memory() == before
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK, "no transition is pending"


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_complete_is_written_in_the_end(world, failures):
    producer_id, epoch = begin(world)
    shard = world.node.transactions.partition_for("tx")
    partition = world.partition(TRANSACTION_STATE, shard or 0)
    append, left = partition.append_internal, failures

    def failing(records, *more):
        nonlocal left
        if world.briefs()[-1][0] == 2 and left:
            left -= 1
            return AppendResult(ErrorCode.not_enough_replicas)
        return append(records, *more)

    partition.append_internal = failing
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert world.briefs()[-1] == (2, 1)
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    world.clock.advance(failures * world.config.request_timeout_ms)
    assert world.briefs()[-1] == (4, 1)
    assert world.init() == (producer_id, 2)


@pytest.mark.parametrize("version", [4, 5])
def test_no_request_gets_a_response_before_the_decision_is_committed(world, version):
    producer_id, epoch = begin(world)
    release = hold_home(world)
    answers = values_of(
        world.node.transactions.end("tx", producer_id, epoch, committed=True, bumps_epoch=version >= 5)
    )
    assert answers == []
    assert world.markers("t") == [], "no marker before the decision is committed"
    concurrent = ErrorCode.concurrent_transactions
    assert world.end("tx", producer_id, epoch, committed=True, version=version)[0] == concurrent
    assert world.add("tx", producer_id, epoch, ("t", 1))["t", 1] == concurrent
    assert world.ask_init().error_code == concurrent
    release()
    assert [answer.error for answer in answers] == [OK]
    assert world.markers("t") == [(version - 4, True)]


def test_a_new_leader_in_the_meantime_makes_the_answer_not_coordinator(world):
    producer_id, epoch = begin(world)
    hold_home(world)
    answers = values_of(
        world.node.transactions.end("tx", producer_id, epoch, committed=True, bumps_epoch=True)
    )
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard or 0, OTHER_NODE_ID)
    assert [answer.error for answer in answers] == [ErrorCode.not_coordinator]
    assert world.markers("t") == []
    assert world.ask_init().error_code == ErrorCode.not_coordinator


def test_an_epoch_that_changed_under_an_append_makes_the_answer_not_coordinator(world):
    producer_id, epoch = begin(world)
    release = hold_home(world)
    answers = values_of(
        world.node.transactions.end("tx", producer_id, epoch, committed=True, bumps_epoch=True)
    )
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard or 0, NODE_ID)
    release()
    assert [answer.error for answer in answers] == [ErrorCode.not_coordinator]
    world.start()
    assert world.briefs()[-1] == (4, 1), "the next coordinator completes the decision in the log"
    assert world.markers("t") == [(1, True)]


# -- markers ------------------------------------------------------------------------------------------------


def test_complete_waits_for_the_markers_to_be_committed(world):
    producer_id, epoch = world.init()
    send(world, producer_id, epoch, index=0)
    send(world, producer_id, epoch, index=1)
    release = hold_high_watermark(world, "t", 1)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert world.briefs()[-1] == (2, 1)
    assert world.partition("t", 1).last_stable_offset == 0
    release()
    assert world.briefs()[-1] == (4, 1)
    assert world.partition("t", 1).last_stable_offset == 2


def test_a_deleted_topic_counts_as_marked(world):
    world.create("gone")
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("gone", 0), ("t", 0))
    world.cluster.topics.pop("gone")
    world.node.replicas._partitions.pop(("gone", 0), None)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert world.briefs()[-1] == (4, 1)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.kafka_storage_error,
    ],
)
def test_a_marker_that_could_not_be_written_is_sent_again(world, error):
    producer_id, epoch = begin(world)
    partition = world.partition("t")
    partition.append_marker = lambda *arguments: AppendResult(error)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    world.clock.advance(1_000)
    assert world.briefs()[-1] == (2, 1)
    del partition.append_marker
    world.clock.advance(1_000)
    assert world.briefs()[-1] == (4, 1)
    assert world.markers("t") == [(1, True)]


@pytest.mark.parametrize(
    "error", [ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced]
)
def test_a_fenced_marker_ends_the_completion_until_the_log_is_read_again(world, error):
    producer_id, epoch = begin(world)
    partition = world.partition("t")
    partition.append_marker = lambda *arguments: AppendResult(error)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    del partition.append_marker
    world.clock.advance(60_000)
    assert world.briefs()[-1] == (2, 1)
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    world.crash()
    world.start()
    assert world.briefs()[-1] == (4, 1)


def test_after_a_fenced_marker_the_other_partitions_get_none_from_here(world):
    producer_id, epoch = world.init()
    send(world, producer_id, epoch, index=0)
    send(world, producer_id, epoch, index=1)
    world.partition("t", 0).append_marker = lambda *arguments: AppendResult(ErrorCode.invalid_producer_epoch)
    world.end("tx", producer_id, epoch, committed=True)
    world.clock.advance(60_000)
    assert world.markers("t", 1) == []


def test_a_partition_of_another_leader_is_waited_for(world):
    producer_id, epoch = begin(world)
    world.cluster.move("t", 0, OTHER_NODE_ID)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    world.clock.advance(5_000)
    assert world.briefs()[-1] == (2, 1)
    world.cluster.move("t", 0, NODE_ID)
    world.clock.advance(5_000)
    assert world.briefs()[-1] == (4, 1)


def test_a_transaction_over_many_partitions_gets_all_its_markers(world):
    world.create("wide", 200)
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, *(("wide", index) for index in range(200)))
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    world.clock.advance(1)
    assert world.briefs()[-1] == (4, 1)
    assert all(world.markers("wide", index) == [(1, True)] for index in range(200))


# -- restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "prepared"), [(True, 2), (False, 3)])
def test_a_decided_transaction_is_finished_with_all_its_markers_again(kafka, committed, prepared):
    producer_id, epoch = kafka.init()
    send(kafka, producer_id, epoch)
    kafka.end("tx", producer_id, epoch, committed=committed)
    kafka.crash()
    assert kafka.partition("t").last_stable_offset == 0
    kafka.start()
    assert kafka.briefs()[-1] == (prepared + 2, 1)
    assert kafka.markers("t") == [(1, committed)]
    entry = kafka.partition("t").log.producers.entries[producer_id]
    assert entry.coordinator_epoch == 1, "the leader epoch of the new coordinator"


@pytest.mark.parametrize("committed", [True, False])
async def test_a_new_coordinator_reads_what_is_not_committed_yet(world, monkeypatch, committed):
    """A new coordinator loads its log to the end, and completes a transaction whose decision is above the high
    watermark."""
    monkeypatch.setattr("broker.coordinator_runtime.loader.LOAD_TURN_RECORDS", 1)
    producer_id, epoch = begin(world)
    release = hold_home(world)
    request = EndTxnRequest(
        transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=committed
    )
    unanswered = asyncio.ensure_future(handled(end_txn, request, world.context(5)))
    world.drop_coordinator()
    world.node.transactions.start()
    txn = world.memory()
    assert txn is not None
    assert txn.state is (TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT)
    assert world.markers("t") == [(1, committed)]
    release()
    assert world.briefs()[-1] == (4 if committed else 5, 1)
    assert world.init(producer_id=producer_id, epoch=1) == (producer_id, 2)
    unanswered.cancel()


async def test_ids_that_are_taken_over_are_finished_side_by_side(world):
    """A new coordinator completes transactions concurrently: a marker that waits for its commit delays only its own
    transaction."""
    released = [hold_high_watermark(world, "t", index) for index in (0, 1)]
    home = world.node.transactions.partition_for
    ids = [each for each in map(str, range(1000)) if home(each) == home("0")][:2]
    for index, transactional_id in enumerate(ids):
        producer_id, epoch = world.init(transactional_id)
        world.add(transactional_id, producer_id, epoch, ("t", index))
        assert world.end(transactional_id, producer_id, epoch, committed=True, version=4)[0] == OK
    world.drop_coordinator()
    world.start()
    await asyncio.sleep(0)
    world.clock.advance(0)
    released[1]()
    assert [world.memory(each).state for each in ids] == [
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]
    released[0]()
    assert world.memory(ids[0]).state is TransactionState.COMPLETE_COMMIT


def test_an_open_transaction_goes_on_after_a_restart(world):
    producer_id, epoch = begin(world)
    world.crash()
    world.start()
    assert send(world, producer_id, epoch, 1) == OK
    assert world.end("tx", producer_id, epoch, committed=True) == (OK, producer_id, 1)
    assert world.committed_values("t") == [b"v0", b"v1"]


def test_records_that_are_not_understood_are_skipped(world):
    producer_id, _ = world.init()
    shard = world.node.transactions.partition_for("tx")
    partition = world.partition(TRANSACTION_STATE, shard or 0)
    key = b"\0\0\0\x02tx"
    for foreign in ((b"\0\x09later", b"?"), (key, b"\0\x09later"), (key, b"")):
        partition.append_internal(build_batch([(1, *foreign)]))
    world.drop_coordinator()
    assert world.init() == (producer_id, 1)


def test_the_last_epoch_is_not_stored(world):
    producer_id, _ = world.init()
    assert world.init(producer_id=producer_id, epoch=0) == (producer_id, 1)
    assert world.init(producer_id=producer_id, epoch=0) == (producer_id, 1), "a retry"
    world.drop_coordinator()
    answer = world.ask_init(producer_id=producer_id, epoch=0)
    assert answer.error_code == ErrorCode.producer_fenced


# -- time ---------------------------------------------------------------------------------------------------


def test_a_transaction_times_out_by_its_first_partition_and_not_by_its_last(world):
    world.start()
    producer_id, epoch = world.init(timeout_ms=25_000)
    send(world, producer_id, epoch)
    world.clock.advance(20_000)
    send(world, producer_id, epoch, index=1)
    assert world.briefs()[-1] == (1, 0)
    world.clock.advance(10_000)
    assert world.briefs()[2:] == [(1, 0), (3, 1), (5, 1)]
    assert world.markers("t", 0) == world.markers("t", 1) == [(1, False)]


def test_a_producer_of_version_2_that_timed_out_goes_on_with_a_new_epoch(world):
    world.start()
    producer_id, epoch = begin(world)
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert send(world, producer_id, epoch, 1) == ErrorCode.invalid_producer_epoch
    assert world.end("tx", producer_id, epoch, committed=True)[0] == ErrorCode.invalid_txn_state
    assert world.end("tx", producer_id, epoch, committed=False) == (OK, producer_id, 1)
    assert world.init(producer_id=producer_id, epoch=epoch) == (producer_id, 1)
    assert send(world, producer_id, 1) == OK


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_a_producer_of_version_1_that_timed_out_is_fenced(tmp_path, level, committed):
    world = World(tmp_path, transaction_version=level)
    world.create("t")
    world.start()
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    send(world, producer_id, epoch, version=11)
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert world.markers("t") == [(1, False)]
    assert world.layout("t")[0][3] == 0, "the data batch has the old epoch"
    fenced = ErrorCode.producer_fenced
    assert world.end("tx", producer_id, epoch, committed=committed, version=4)[0] == fenced
    assert world.add("tx", producer_id, epoch, ("t", 0))["t", 0] == fenced
    world.abandon()


def test_a_timeout_is_noticed_after_a_restart_too(world):
    begin(world)
    world.crash()
    world.start()
    world.clock.advance(TIMED_OUT_AFTER_MS)
    assert world.briefs()[-1] == (5, 1)
    assert world.markers("t") == [(1, False)]


@pytest.mark.parametrize("ending", ["empty", "commit", "abort"])
def test_an_unused_id_is_forgotten_with_a_tombstone(world, ending):
    world.start()
    producer_id, epoch = world.init()
    if ending != "empty":
        send(world, producer_id, epoch)
        world.end("tx", producer_id, epoch, committed=ending == "commit")
    world.clock.advance(6 * DAY_MS)
    assert world.memory() is not None
    world.clock.advance(DAY_MS + 3_600_000)
    assert world.briefs()[-1] is None
    assert world.memory() is None
    no_mapping = ErrorCode.invalid_producer_id_mapping
    assert world.add("tx", producer_id, epoch, ("t", 0))["t", 0] == no_mapping
    assert world.end("tx", producer_id, epoch, committed=True)[0] == no_mapping
    world.drop_coordinator()
    assert world.end("tx", producer_id, epoch, committed=True)[0] == no_mapping
    assert world.init() == (producer_id + 1, 0)


def test_a_tombstone_that_is_not_committed_keeps_the_id_busy(world):
    world.start()
    world.init()
    release = hold_home(world)
    world.clock.advance(8 * DAY_MS)
    assert world.ask_init().error_code == ErrorCode.concurrent_transactions
    release()
    assert world.memory() is None


def test_an_open_transaction_keeps_its_id(tmp_path):
    world = World(tmp_path, settings={"transaction.max.timeout.ms": str(2**31 - 1)})
    world.create("t")
    world.start()
    producer_id, epoch = world.init(timeout_ms=2**31 - 1)
    send(world, producer_id, epoch)
    world.clock.advance(30 * DAY_MS)
    assert world.briefs()[-1] == (1, 0)
    world.abandon()


# -- which coordinator owns an id ---------------------------------------------------------------------------


def test_without_its_topic_there_is_no_coordinator(world):
    del world.cluster.topics[TRANSACTION_STATE]
    assert world.ask_init().error_code == ErrorCode.not_coordinator
    assert world.add("tx", 0, 0, ("t", 0))["t", 0] == ErrorCode.not_coordinator
    assert world.end("tx", 0, 0, committed=True)[0] == ErrorCode.not_coordinator
    assert world.add_offsets("tx", 0, 0) == ErrorCode.not_coordinator


def test_an_id_whose_partition_is_led_elsewhere_is_not_ours(world):
    world.init()
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard or 0, OTHER_NODE_ID)
    assert world.ask_init().error_code == ErrorCode.not_coordinator
    assert world.end("tx", 0, 0, committed=True)[0] == ErrorCode.not_coordinator


@pytest.mark.parametrize(
    ("transactional_id", "index"),
    [("tx-a", 18), ("v1", 7), ("v2", 8), ("ash-2", 41), ("polygenelubricants", 0)],
)
def test_the_partition_of_an_id_is_that_of_java_s_hash(tmp_path, transactional_id, index):
    world = World(tmp_path, state_partitions=50)
    assert world.node.transactions.partition_for(transactional_id) == index
    world.abandon()


def test_after_more_partitions_ids_stay_and_no_partition_is_loaded(world):
    """When ``__transaction_state`` gets more partitions, each id keeps its partition, and no new partition is loaded before
    a restart, as in Kafka (``validateTransactionTopicPartitionCountIsStable``). Otherwise half of the ids would change
    partitions."""
    coordinator = world.node.transactions
    before = world.init("tx")
    home, count = coordinator.partition_for("tx"), len(world.cluster.topics[TRANSACTION_STATE].partitions)
    other = next(name for name in map(str, range(99)) if coordinator.partition_for(name) != home)
    topic = world.cluster.topics[TRANSACTION_STATE]
    topic.partitions.append(PartitionState(count, (NODE_ID,), (NODE_ID,), NODE_ID, 0, 0))
    assert coordinator.partition_for("tx") == home
    assert world.init("tx") == (before[0], before[1] + 1)
    assert world.ask_init(other).error_code == ErrorCode.coordinator_load_in_progress
    world.crash()
    world.start()
    assert world.ask_init(other).error_code == ErrorCode.none


def test_an_id_whose_partition_is_gone_has_no_coordinator(world):
    """A transactional id has no coordinator if ``__transaction_state`` was created again with fewer partitions, so
    that the partition of the id does not exist any more."""
    coordinator = world.node.transactions
    last = len(world.cluster.topics[TRANSACTION_STATE].partitions) - 1
    name = next(name for name in map(str, range(99)) if coordinator.partition_for(name) == last)
    world.cluster.delete(TRANSACTION_STATE)
    world.create(TRANSACTION_STATE, last)
    assert coordinator.node_for(name) is None
    assert world.ask_init(name).error_code == ErrorCode.not_coordinator


def test_offsets_are_part_of_the_transaction(world):
    producer_id, epoch = world.init()
    assert world.add_offsets("tx", producer_id, epoch, "g") == OK
    index = world.node.groups.partition_for("g")
    txn = world.memory()
    assert txn is not None
    assert txn.partitions == {(CONSUMER_OFFSETS, index)}
    assert txn.client_version == 0
