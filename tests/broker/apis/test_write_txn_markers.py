"""WriteTxnMarkers: which checks the broker makes for each marker, and in which order."""

from __future__ import annotations

import pytest

from broker.apis.write_txn_markers import write_txn_markers
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.coroutines import handled
from tests.support.world import CONSUMER_OFFSETS, OTHER_NODE_ID, World

OK = ErrorCode.none
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t", 2)
    yield world
    world.abandon()


def begin(world: World, sequence: int = 0) -> tuple[int, int]:
    """Begin a transaction and write one batch to the first partition. Returns the producer id and epoch."""
    producer_id, epoch = world.init()
    answer = world.produce(
        *T0, b"v", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=sequence
    )
    assert answer.error_code == OK
    return producer_id, epoch


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction_in_its_partition(world, version, committed):
    producer_id, epoch = begin(world)
    answer = world.write_markers(producer_id, epoch, T0, committed=committed, version=version)
    assert answer == {T0: OK}
    assert world.markers("t") == [(epoch, committed)]
    assert world.partition("t").last_stable_offset == 2
    assert world.committed_values("t") == ([b"v"] if committed else [])


def test_a_tool_may_abort_with_the_open_epoch_without_the_coordinator(world):
    producer_id, epoch = begin(world)
    assert world.write_markers(producer_id, epoch, T0) == {T0: OK}
    assert world.briefs()[-1] == (1, 0)
    again = world.produce(*T0, b"w", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=1)
    assert again.error_code == OK
    assert world.end("tx", producer_id, epoch, committed=True) == (OK, producer_id, 1)


@pytest.mark.parametrize(
    ("epoch", "transaction_version", "error"),
    [
        (0, 2, ErrorCode.invalid_producer_epoch),
        (0, 1, OK),
        (1, 2, OK),
        (-1, 0, ErrorCode.invalid_producer_epoch),
    ],
)
def test_the_transaction_version_decides_how_strict_the_epoch_is(world, epoch, transaction_version, error):
    producer_id, _ = begin(world)
    answer = world.write_markers(producer_id, epoch, T0, transaction_version=transaction_version)
    assert answer == {T0: error}


def test_version_1_has_no_transaction_version():
    codec, client = request_codec(27, 1), client_codec(27, 1)
    marker = WritableTxnMarker(producer_id=7, producer_epoch=3, transaction_version=2)
    back = codec.decode(b"".join(client.encode(WriteTxnMarkersRequest(markers=[marker]))), 0)
    assert back.markers[0].transaction_version == 0


def test_an_equal_epoch_without_an_open_transaction_writes_a_second_marker(world):
    producer_id, _ = begin(world)
    for _ in range(2):
        assert world.write_markers(producer_id, 1, T0, transaction_version=2) == {T0: OK}
    assert world.markers("t") == [(1, False), (1, False)]


def test_an_older_coordinator_is_fenced_and_an_equal_one_is_not(world):
    producer_id, epoch = begin(world)
    assert world.write_markers(producer_id, epoch, T0, coordinator_epoch=5) == {T0: OK}
    assert world.write_markers(producer_id, epoch, T0, coordinator_epoch=5) == {T0: OK}
    fenced = ErrorCode.transaction_coordinator_fenced
    assert world.write_markers(producer_id, epoch, T0, coordinator_epoch=4) == {T0: fenced}


def test_a_producer_that_never_wrote_there_gets_its_marker(world):
    assert world.write_markers(77, 4, T1, coordinator_epoch=3) == {T1: OK}
    entry = world.partition(*T1).log.producers.entries[77]
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (4, 3, -1)
    assert world.aborted(*T1) == []
    assert world.partition(*T1).last_stable_offset == 1


@pytest.mark.parametrize("key", [("t", 9), ("missing", 0)])
def test_partitions_without_a_local_replica_are_unknown(world, key):
    assert world.write_markers(77, 4, key, T0) == {key: ErrorCode.unknown_topic_or_partition, T0: OK}


def test_offline_partitions_are_unknown_too(world):
    world.partition("t").offline = "the disk is gone"
    assert world.write_markers(77, 4, T0) == {T0: ErrorCode.unknown_topic_or_partition}


def test_partitions_of_another_leader_are_an_error(world):
    world.partition("t")
    world.cluster.move("t", 0, OTHER_NODE_ID)
    assert world.write_markers(77, 4, T0) == {T0: ErrorCode.not_leader_or_follower}


def test_the_isr_is_checked_before_the_epoch(world):
    producer_id, epoch = begin(world)
    partition = world.partition("t")
    partition.replicas, partition.isr = (1, 2), ()
    assert world.write_markers(producer_id, epoch - 1, T0) == {T0: ErrorCode.not_enough_replicas}


def test_a_request_without_markers_has_no_results(world):
    answer = handled(write_txn_markers, WriteTxnMarkersRequest(markers=[]), world.context(1))
    assert list(answer.markers) == []


def test_results_are_grouped_by_producer(world):
    def marker(producer_id: int, index: int, topic: str = "t") -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=1,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        )

    request = WriteTxnMarkersRequest(markers=[marker(7, 0), marker(8, 0), marker(7, 1), marker(7, 0, "no")])
    answer = handled(write_txn_markers, request, world.context(2))
    found = {
        one.producer_id: {
            (topic.name, result.partition_index): result.error_code
            for topic in one.topics
            for result in topic.partitions
        }
        for one in answer.markers
    }
    assert len(answer.markers) == 2
    assert found == {
        7: {T0: OK, T1: OK, ("no", 0): ErrorCode.unknown_topic_or_partition},
        8: {T0: OK},
    }


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_in_the_offsets_topic_settles_the_offsets(world, committed):
    producer_id, epoch = world.init()
    world.commit_offsets("tx", producer_id, epoch, {T0: 42})
    key = (CONSUMER_OFFSETS, world.node.groups.partition_for("g"))
    assert world.write_markers(producer_id, epoch, key, committed=committed) == {key: OK}
    offsets = world.node.groups.memory()[key[1]]
    assert offsets["pending"] == {}
    assert bool(offsets["committed"]) is committed


async def test_a_marker_that_is_not_committed_in_time_is_a_request_timeout(world):
    partition = world.partition("t", 0)
    advance = partition.advance_high_watermark
    partition.advance_high_watermark = lambda: None
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=1, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 1])]
            )
        ]
    )
    waiting = handled(write_txn_markers, request, world.context(2))
    world.clock.advance(world.config.request_timeout_ms - 1)
    assert not waiting.done()
    world.clock.advance(1)
    [marker] = waiting.result().markers
    found = {each.partition_index: each.error_code for each in marker.topics[0].partitions}
    assert found == {0: ErrorCode.request_timed_out, 1: ErrorCode.none}
    del partition.advance_high_watermark
    advance()
    assert world.clock.timers == []
