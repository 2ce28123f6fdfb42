"""Produce: the order of its checks, the fields of each error, verification (KIP-890), acks, and waiting."""

from __future__ import annotations

import asyncio
from struct import pack_into

import pytest

from broker.requests.api import NO_RESPONSE, CloseConnection
from protocol import compression as codecs
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from tests.support.clock import NOW_MS
from tests.support.world import CONSUMER_OFFSETS, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
VERSIONS = range(3, 14)
VERIFYING = range(3, 12)
ADDING = (12, 13)
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t", 2)
    yield world
    world.abandon()


def batch(*, txn: bool = False, **more) -> bytes:
    return build_batch([(NOW_MS, b"k", b"v")], transactional=txn, **more)


def of(producer_id: int, epoch: int, sequence: int = 0, *, txn: bool = True, **more) -> bytes:
    return batch(txn=txn, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def outcome(answer) -> dict[tuple[str, int], int]:
    """The error of each partition, by (topic name, index) or (topic id, index)."""
    return {
        (topic.name, one.index): one.error_code
        for topic in answer.responses
        for one in topic.partition_responses
    }


def only(answer):
    [topic] = answer.responses
    [one] = topic.partition_responses
    return one


def ask(world: World, batches, *, version: int = 12, **more):
    return world.ask_produce(batches, version=version, **more)


# -- the order of the checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transactional_batch_without_a_transactional_id_fails_the_request(world, version):
    answer = ask(world, {T0: of(7, 0), T1: batch(), ("t", 9): batch()}, version=version)
    assert set(outcome(answer).values()) == {ErrorCode.transactional_id_authorization_failed}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_transactional_id_is_checked_before_the_topics(world, version):
    answer = ask(world, {("missing", 0): of(7, 0), T1: batch()}, version=version)
    assert set(outcome(answer).values()) == {ErrorCode.transactional_id_authorization_failed}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_not_created(world, version):
    answer = only(ask(world, {("missing", 0): batch()}, version=version))
    expected = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (expected, -1, -1)
    assert world.cluster.topic("missing") is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("index", [2, -1])
def test_an_unknown_partition_is_unknown(world, version, index):
    answer = only(ask(world, {("t", index): batch()}, version=version))
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def old_format() -> bytes:
    data = bytearray(batch())
    data[16] = 1
    return bytes(data)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(None, id="null"),
        pytest.param(b"", id="empty"),
        pytest.param(batch()[:-1], id="torn"),
        pytest.param(batch()[:30], id="torn in the header"),
        pytest.param(old_format(), id="of an old format"),
        pytest.param(batch() + batch(), id="two batches"),
    ],
)
def test_each_partition_must_have_exactly_one_complete_batch(world, records):
    answer = only(ask(world, {T0: records}))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (
        ErrorCode.invalid_record,
        -1,
        -1,
    )
    assert answer.error_message is None


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_came_with_version_7(world, version):
    answer = only(ask(world, {T0: batch(compression=codecs.ZSTD)}, version=version))
    assert answer.error_code == (OK if version >= 7 else ErrorCode.unsupported_compression_type)


def test_two_producers_in_one_request_refuse_all_of_it(world):
    producer_id, epoch = world.init()
    batches = {T0: of(producer_id, epoch), T1: of(producer_id + 1, epoch)}
    answer = ask(world, batches, transactional_id="tx")
    assert set(outcome(answer).values()) == {ErrorCode.invalid_producer_id_mapping}
    assert world.briefs() == [(0, 0)]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_must_be_known(world, acks):
    answer = ask(world, {T0: batch(), T1: batch()}, acks=acks)
    assert set(outcome(answer).values()) == {ErrorCode.invalid_required_acks}
    assert world.batches("t") == []


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_internal_topics_are_for_coordinators_and_the_admin_tool(world, name):
    key = (name, 0)
    refused = only(ask(world, {key: batch()}))
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.invalid_topic_exception, -1)
    assert only(ask(world, {key: batch()}, client_id="__admin_client")).error_code == OK


def test_acks_come_before_internal_topics(world):
    answer = only(ask(world, {(TRANSACTION_STATE, 0): batch()}, acks=7))
    assert answer.error_code == ErrorCode.invalid_required_acks


def test_verification_comes_before_acks(world):
    world.init()
    answer = only(ask(world, {T0: of(0, 0)}, acks=7, transactional_id="tx", version=11))
    assert answer.error_code == ErrorCode.transaction_abortable


def test_files_that_failed_are_a_storage_error(world):
    world.partition("t").offline = "the disk is gone"
    answer = only(ask(world, {T0: batch()}))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.kafka_storage_error, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_since_version_10_the_response_has_the_new_leader(world, version):
    world.cluster.move("t", 0, OTHER_NODE_ID)
    answer = ask(world, {T0: batch(), T1: batch()}, version=version)
    moved, stayed = answer.responses[0].partition_responses
    assert (moved.error_code, moved.base_offset, moved.log_start_offset) == (
        ErrorCode.not_leader_or_follower,
        -1,
        -1,
    )
    assert stayed.error_code == OK
    if version >= 10:
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (OTHER_NODE_ID, 1)
        endpoints = [(one.node_id, one.host, one.port) for one in answer.node_endpoints]
        assert (OTHER_NODE_ID, "localhost", 9092) in endpoints
    else:
        assert list(answer.node_endpoints) == []


def test_partitions_succeed_and_fail_by_themselves(world):
    bad = bytearray(batch())
    pack_into(">q", bad, 0, 9)
    answer = ask(world, {T0: bytes(bad), T1: batch(), ("missing", 0): batch()})
    assert outcome(answer) == {
        T0: ErrorCode.invalid_record,
        T1: OK,
        ("missing", 0): ErrorCode.unknown_topic_or_partition,
    }


def test_invalid_records_are_listed_with_messages(world):
    world.create("compacted", **{"cleanup.policy": "compact"})
    records = build_batch([(NOW_MS, None, b"v"), (NOW_MS, b"k", b"v"), (NOW_MS, None, b"v")])
    answer = only(ask(world, {("compacted", 0): records}))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.invalid_record, 0)
    assert [error.batch_index for error in answer.record_errors] == [0, 2]
    assert all(error.batch_index_error_message for error in answer.record_errors)
    assert answer.error_message


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((">q", 0, 9), ErrorCode.invalid_record),
        ((">b", 65, 9), ErrorCode.corrupt_message),
    ],
)
def test_other_errors_have_no_message(world, change, error):
    bad = bytearray(batch())
    pack_into(change[0], bad, *change[1:])
    answer = only(ask(world, {T0: bytes(bad)}))
    assert (answer.error_code, answer.error_message, list(answer.record_errors)) == (error, None, [])


# -- the response ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_an_append_is_answered_with_its_offset(world, version, acks):
    for offset in range(2):
        answer = only(ask(world, {T0: batch()}, acks=acks, version=version))
        assert (answer.error_code, answer.base_offset) == (OK, offset)
        assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0)


def test_a_duplicate_gets_its_old_offset_and_its_own_timestamp(world):
    for _ in range(2):
        answer = only(ask(world, {T0: of(7, 0, txn=False)}))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (OK, 0, NOW_MS)
    assert len(world.batches("t")) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_0_gets_no_response(world, version):
    assert ask(world, {T0: batch(), T1: batch()}, acks=0, version=version) is NO_RESPONSE
    assert len(world.batches("t", 0)) == len(world.batches("t", 1)) == 1


@pytest.mark.parametrize("bad", [{("missing", 0): batch()}, {T0: b""}, {T0: of(7, 0, 1), T1: of(7, 0, -2)}])
def test_an_error_with_acks_0_closes_the_connection(world, bad):
    with pytest.raises(CloseConnection):
        ask(world, {**bad, ("t", 1): b""}, acks=0)


# -- waiting for the high watermark ---------------------------------------------------------------------------


def hold(world: World, index: int = 0):
    partition = world.partition("t", index)
    advance = partition.advance_high_watermark
    partition.advance_high_watermark = lambda: None

    def release() -> None:
        del partition.advance_high_watermark
        advance()

    return release


async def test_acks_all_waits_for_every_partition(world):
    releases = [hold(world, 0), hold(world, 1)]
    waiting = ask(world, {T0: batch(), T1: batch(), ("missing", 0): batch()})
    assert asyncio.isfuture(waiting)
    releases[1]()
    assert not waiting.done()
    releases[0]()
    assert outcome(await waiting) == {T0: OK, T1: OK, ("missing", 0): ErrorCode.unknown_topic_or_partition}
    assert world.clock.timers == []


def test_acks_1_waits_for_nothing(world):
    hold(world)
    assert only(ask(world, {T0: batch()}, acks=1)).base_offset == 0


async def test_a_timed_out_request_gets_an_error_and_its_data_stays(world):
    release = hold(world)
    waiting = ask(world, {T0: batch(), T1: batch()}, timeout_ms=500)
    world.clock.advance(499)
    assert not waiting.done()
    world.clock.advance(1)
    assert outcome(await waiting) == {T0: ErrorCode.request_timed_out, T1: OK}
    release()
    assert len(world.batches("t")) == 1


async def test_a_waiting_request_fails_when_the_leader_changes(world):
    hold(world)
    waiting = ask(world, {T0: batch()})
    world.cluster.move("t", 0, OTHER_NODE_ID)
    assert outcome(await waiting) == {T0: ErrorCode.not_leader_or_follower}


async def test_a_duplicate_waits_for_the_original(world):
    release = hold(world)
    first = ask(world, {T0: of(7, 0, txn=False)})
    second = ask(world, {T0: of(7, 0, txn=False)})
    assert not first.done()
    assert not second.done()
    release()
    assert only(await first).base_offset == only(await second).base_offset == 0


# -- verification -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERIFYING)
def test_old_versions_must_have_added_the_partition(world, version):
    producer_id, epoch = world.init()
    answer = only(ask(world, {T0: of(producer_id, epoch)}, transactional_id="tx", version=version))
    if version >= 11:
        assert (answer.error_code, answer.error_message) == (ErrorCode.transaction_abortable, None)
    else:
        assert answer.error_code == ErrorCode.invalid_txn_state
        assert answer.error_message, "the message explains the error that replaces the original one"
    assert answer.log_start_offset == -1
    world.add("tx", producer_id, epoch, T0)
    answer = only(ask(world, {T0: of(producer_id, epoch)}, transactional_id="tx", version=version))
    assert answer.error_code == OK


@pytest.mark.parametrize("version", ADDING)
def test_new_versions_add_the_partition_by_themselves(world, version):
    producer_id, epoch = world.init()
    batches = {T0: of(producer_id, epoch), T1: of(producer_id, epoch)}
    answer = ask(world, batches, transactional_id="tx", version=version)
    assert set(outcome(answer).values()) == {OK}
    txn = world.memory()
    assert txn is not None
    assert (txn.partitions, txn.client_version) == (frozenset({T0, T1}), 2)
    assert world.briefs() == [(0, 0), (1, 0)]


def test_within_the_open_transaction_there_is_no_second_verification(world):
    producer_id, epoch = world.init()
    for sequence in range(3):
        answer = ask(world, {T0: of(producer_id, epoch, sequence)}, transactional_id="tx")
        assert outcome(answer) == {T0: OK}
    assert world.briefs() == [(0, 0), (1, 0)]


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize(
    ("identity", "error"),
    [((9, 0), ErrorCode.invalid_producer_id_mapping), ((0, 5), ErrorCode.invalid_producer_epoch)],
)
def test_the_coordinator_s_error_for_an_unknown_producer_is_returned(world, version, identity, error):
    world.init()
    answer = only(ask(world, {T0: of(*identity)}, transactional_id="tx", version=version))
    assert answer.error_code == error


@pytest.mark.parametrize("version", [9, 11, 12])
def test_an_old_epoch_is_refused_without_asking_the_coordinator(world, version):
    world.write_markers(7, 4, T0)
    answer = only(ask(world, {T0: of(7, 3)}, transactional_id="unknown", version=version))
    assert answer.error_code == ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("version", [9, 11, 12])
def test_an_unavailable_coordinator_is_a_retriable_error(world, version):
    del world.cluster.topics[TRANSACTION_STATE]
    answer = only(ask(world, {T0: of(7, 0)}, transactional_id="tx", version=version))
    assert answer.error_code == ErrorCode.not_enough_replicas
    assert answer.error_message


def slow(tmp_path, delay_ms: int) -> tuple[World, int]:
    """A world with a committed transaction whose markers are written ``delay_ms`` later, and the producer id of the
    transaction."""
    settings = {"odradek.commit.order": "kafka", "odradek.commit.marker.delay.ms": str(delay_ms)}
    world = World(tmp_path, settings=settings)
    world.create("t", 2)
    producer_id, epoch = world.init()
    ask(world, {T0: of(producer_id, epoch)}, transactional_id="tx")
    assert world.end("tx", producer_id, epoch, committed=True) == (OK, producer_id, 1)
    return world, producer_id


@pytest.mark.parametrize("delay_ms", [1, 20, 79])
async def test_the_leader_waits_for_the_transaction_before(tmp_path, delay_ms):
    world, producer_id = slow(tmp_path, delay_ms)
    waiting = ask(world, {T0: of(producer_id, 1)}, transactional_id="tx")
    assert asyncio.isfuture(waiting)
    world.clock.advance(100)
    assert outcome(await waiting) == {T0: OK}
    assert [layout[2:] for layout in world.layout("t")] == [(0x10, 0, 0), (0x30, 1, -1), (0x10, 1, 0)]
    world.abandon()


async def test_a_request_that_waits_keeps_its_batches(tmp_path):
    """A waiting Produce copies its batches: the next frame overwrites the connection's buffer."""
    world, producer_id = slow(tmp_path, 20)
    sent = of(producer_id, 1)
    buffer = bytearray(sent)
    waiting = ask(world, {T0: memoryview(buffer)}, transactional_id="tx")
    buffer[:] = bytes(len(buffer))
    world.clock.advance(100)
    assert outcome(await waiting) == {T0: OK}
    *_, stored = world.batches("t")
    assert bytes(stored.data)[21:] == sent[21:]
    world.abandon()


async def test_the_leader_waits_only_for_a_limited_time(tmp_path):
    world, producer_id = slow(tmp_path, 5_000)
    waiting = ask(world, {T0: of(producer_id, 1)}, transactional_id="tx")
    world.clock.advance(99)
    assert not waiting.done()
    world.clock.advance(1)
    answer = only(await waiting)
    assert (answer.error_code, answer.error_message) == (ErrorCode.concurrent_transactions, None)
    world.abandon()


@pytest.mark.parametrize("version", [9, 11])
def test_old_versions_get_a_retriable_error_during_completion(tmp_path, version):
    world, producer_id = slow(tmp_path, 5_000)
    answer = only(ask(world, {T1: of(producer_id, 1)}, transactional_id="tx", version=version))
    assert answer.error_code == ErrorCode.not_enough_replicas
    assert answer.error_message
    world.abandon()


def test_a_partition_that_was_added_and_not_written_stays_in_the_transaction(world):
    producer_id, epoch = world.init()
    answer = ask(world, {T0: of(producer_id, epoch, 5)}, transactional_id="tx")
    assert outcome(answer) == {T0: ErrorCode.out_of_order_sequence_number}
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK
    assert world.markers("t") == [(1, True)]


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_batch_after_the_end_of_its_transaction_is_rejected(world, version):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, T0)
    ask(world, {T0: of(producer_id, epoch)}, transactional_id="tx", version=version)
    world.end("tx", producer_id, epoch, committed=True, version=5 if version >= 12 else 4)
    retry = only(ask(world, {T0: of(producer_id, epoch)}, transactional_id="tx", version=version))
    assert (
        retry.error_code
        == {
            9: ErrorCode.invalid_txn_state,
            11: ErrorCode.transaction_abortable,
            12: ErrorCode.invalid_producer_epoch,
        }[version]
    )


@pytest.mark.parametrize(("version", "expected"), [(11, OK), (12, ErrorCode.invalid_producer_id_mapping)])
def test_verification_can_be_switched_off_and_adding_cannot(tmp_path, version, expected):
    world = World(tmp_path, settings={"transaction.partition.verification.enable": "false"})
    world.create("t")
    answer = ask(world, {T0: of(7, 0)}, transactional_id="unknown", version=version)
    assert outcome(answer) == {T0: expected}
    world.abandon()
