"""Fetch requests with an immediate response: size, values, errors. test_fetch_waiting.py has the long poll."""

from __future__ import annotations

import uuid

import pytest

from broker.apis.fetch import fetch as fetch_handler
from broker.metadata.values import PartitionState, Topic
from broker.resources.unsent import UNSENT
from protocol.batch import batches
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from tests.broker.apis.reading_world import (
    NODE_ID,
    OTHER_NODE_ID,
    World,
    asked,
    bytes_of,
    partitions_of,
    request,
    size_of,
)
from tests.support.coroutines import served

fetch = served(fetch_handler)

READ_COMMITTED = {"isolation_level": 1}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def read(world: World, *topics, version: int = 12, **more) -> FetchResponse:
    response = fetch(request(*topics, version=version, **more), world.context(version))
    assert isinstance(response, FetchResponse), "no Fetch in these tests waits"
    return response


def read_one(world: World, version: int = 12, isolation: dict | None = None, **partition) -> PartitionData:
    response = read(world, (world.topics["t"], [asked(**partition)]), version=version, **(isolation or {}))
    return partitions_of(response)["t", 0]


# -- sizes (KIP-74) -------------------------------------------------------------------------------------------------


def test_the_first_batch_comes_whole_however_small_the_limits(world):
    topic = world.add_topic("t", 2)
    batch = world.produce(size=1000)
    world.produce(index=1, size=1000)
    response = read(world, (topic, [asked(0, max_bytes=10), asked(1, max_bytes=10)]), max_bytes=1)
    first, second = partitions_of(response).values()
    assert first.records == batch
    assert second.records == b"", "empty, not null. Only the first partition with data may exceed the limit"


def test_a_later_partition_whose_first_batch_does_not_fit_is_empty(world):
    topic = world.add_topic("t", 3)
    sizes = [len(world.produce(index=index, size=1000)) for index in range(3)]
    response = read(world, (topic, [asked(0), asked(1), asked(2)]), max_bytes=sizes[0] + sizes[1] + 5)
    assert [size_of(each) for each in partitions_of(response).values()] == [sizes[0], sizes[1], 0]


def test_an_empty_partition_does_not_use_up_the_whole_first_batch(world):
    topic = world.add_topic("t", 2)
    batch = world.produce(index=1, size=1000)
    response = read(world, (topic, [asked(0), asked(1, max_bytes=1)]))
    assert partitions_of(response)["t", 1].records == batch


def test_fetch_max_bytes_limits_the_client_s_max_bytes(world):
    topic = world.add_topic("t", 2)
    world.node.config.fetch_max_bytes = 100
    for index in (0, 1):
        world.produce(index=index, size=1000)
    response = read(world, (topic, [asked(0), asked(1)]), max_bytes=1 << 30)
    assert [bool(each.records) for each in partitions_of(response).values()] == [True, False]


def test_unsent_bytes_of_slow_clients_limit_other_responses(world, monkeypatch):
    topic = world.add_topic("t", 3)
    sizes = [len(world.produce(index=index, size=1000)) for index in range(3)]
    monkeypatch.setattr(UNSENT, "limit_bytes", 10_000)
    monkeypatch.setattr(UNSENT, "bytes", 10_000 - sizes[0] - sizes[1])
    response = read(world, (topic, [asked(0), asked(1), asked(2)]))
    assert [size_of(each) for each in partitions_of(response).values()] == [sizes[0], sizes[1], 0]
    monkeypatch.setattr(UNSENT, "bytes", 1_000_000)
    response = read(world, (topic, [asked(0), asked(1), asked(2)]))
    assert [size_of(each) for each in partitions_of(response).values()] == [sizes[0], 0, 0]


def test_a_negative_limit_fails_the_partition_that_it_is_applied_to(world):
    topic = world.add_topic("t", 2)
    batch = world.produce(index=0)
    world.produce(index=1)
    failed, read_whole = partitions_of(read(world, (topic, [asked(0), asked(1)]), max_bytes=-5)).values()
    assert (failed.error_code, failed.high_watermark) == (ErrorCode.unknown_server_error, -1)
    assert size_of(read_whole) == len(batch)


def test_a_fetch_inside_a_batch_gets_the_batch_from_its_start(world):
    world.add_topic("t")
    world.produce()
    world.produce(records=5)
    found = list(batches(bytes_of(read_one(world, offset=3))))
    assert [batch.base_offset for batch in found] == [1]


def test_bytes_are_handed_on_without_a_copy(world):
    """The response contains the bytes object that the log returned, not a copy of it."""
    topic = world.add_topic("t")
    world.produce(size=100_000)
    response = read(world, (topic, [asked()]))
    records = partitions_of(response)["t", 0].records
    assert any(chunk is records for chunk in request_codec(1, 12).encode(response))


# -- offsets and isolation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 0, 1, 6])
def test_outside_the_log_is_an_error_without_offsets(world, offset):
    world.add_topic("t")
    for _ in range(5):
        world.produce()
    world.partitions["t", 0].delete_records(2)
    answer = read_one(world, offset=offset)
    assert answer.error_code == ErrorCode.offset_out_of_range
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
    assert (answer.records, answer.aborted_transactions) == (b"", None)


def test_at_the_end_of_the_log_there_is_nothing_and_no_error(world):
    world.add_topic("t")
    world.produce()
    answer = read_one(world, offset=1)
    assert (answer.error_code, answer.records, answer.high_watermark) == (ErrorCode.none, b"", 1)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_between_the_last_stable_offset_and_the_end_is_no_error(world, offset):
    world.add_topic("t")
    world.produce_in_transaction(7)
    world.produce()
    answer = read_one(world, isolation=READ_COMMITTED, offset=offset)
    assert (answer.error_code, answer.records, answer.aborted_transactions) == (ErrorCode.none, b"", [])
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 0)


@pytest.mark.parametrize("offset", [1, 2])
def test_between_the_high_watermark_and_the_end_is_no_error(world, offset):
    world.add_topic("t")
    world.produce()
    world.produce()
    world.partitions["t", 0].high_watermark = 1
    answer = read_one(world, offset=offset)
    assert (answer.error_code, answer.records, answer.high_watermark) == (ErrorCode.none, b"", 1)


def test_read_uncommitted_sees_open_transactions_and_both_offsets(world):
    world.add_topic("t")
    world.produce_in_transaction(7)
    answer = read_one(world)
    assert [batch.producer_id for batch in batches(bytes_of(answer))] == [7]
    assert (answer.high_watermark, answer.last_stable_offset) == (1, 0)
    assert answer.aborted_transactions is None, "null for read_uncommitted, even after an abort"


def test_read_committed_ends_at_the_first_open_transaction(world):
    world.add_topic("t")
    world.produce()
    world.produce_in_transaction(7)
    world.produce()
    answer = read_one(world, isolation=READ_COMMITTED)
    assert [batch.base_offset for batch in batches(bytes_of(answer))] == [0]
    assert answer.aborted_transactions == []


def test_aborted_records_are_sent_and_listed_in_the_order_of_their_markers(world):
    world.add_topic("t")
    world.produce_in_transaction(7)
    world.produce_in_transaction(8)
    world.produce()
    world.end(8, committed=False)
    world.end(7, committed=False)
    answer = read_one(world, isolation=READ_COMMITTED)
    assert len(list(batches(bytes_of(answer)))) == 5, (
        "the client filters aborted batches and needs their markers"
    )
    assert answer.aborted_transactions == [
        AbortedTransaction(producer_id=8, first_offset=1),
        AbortedTransaction(producer_id=7, first_offset=0),
    ]
    behind = read_one(world, isolation=READ_COMMITTED, offset=4)
    assert behind.aborted_transactions == [AbortedTransaction(producer_id=7, first_offset=0)]


def test_a_batch_that_does_not_fit_takes_the_list_of_aborts_with_it(world):
    topic = world.add_topic("t", 2)
    world.produce(index=0)
    world.produce(index=1, size=1000)
    response = read(world, (topic, [asked(0), asked(1, max_bytes=5)]), **READ_COMMITTED)
    found = partitions_of(response)
    assert found["t", 0].aborted_transactions == []
    assert found["t", 1].aborted_transactions is None


# -- errors -----------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_3_and_an_unknown_id_is_100(world):
    unknown = Topic("none", uuid.uuid4())
    by_name = partitions_of(read(world, (unknown, [asked(4)]), version=12))["none", 4]
    by_id = partitions_of(read(world, (unknown, [asked(4)]), version=13))["", 4]
    assert by_name.error_code == ErrorCode.unknown_topic_or_partition
    assert by_id.error_code == ErrorCode.unknown_topic_id
    for answer in (by_name, by_id):
        assert (answer.high_watermark, answer.log_start_offset, answer.records) == (-1, -1, b"")


def test_an_unknown_id_is_no_error_of_the_whole_answer(world):
    response = read(world, (Topic("none", uuid.uuid4()), [asked()]), version=13)
    assert response.error_code == ErrorCode.none


@pytest.mark.parametrize("version", [12, 13])
def test_an_unknown_partition_is_3(world, version):
    topic = world.add_topic("t")
    response = read(world, (topic, [asked(9)]), version=version)
    (answer,) = response.responses[0].partitions
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_a_client_without_read_permission_gets_error_29(world):
    topic = world.add_topic("t")
    world.unauthorized.add("t")
    answer = partitions_of(read(world, (topic, [asked()])))["t", 0]
    assert answer.error_code == ErrorCode.topic_authorization_failed


@pytest.mark.parametrize(
    ("version", "error", "answered"),
    [
        (5, ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower),
        (6, ErrorCode.kafka_storage_error, ErrorCode.kafka_storage_error),
        (5, ErrorCode.not_leader_or_follower, ErrorCode.not_leader_or_follower),
    ],
)
def test_old_versions_get_another_error_for_a_storage_error(world, version, error, answered):
    world.add_topic("t")
    world.errors["t", 0] = error
    assert read_one(world, version=version).error_code == answered


def test_a_recreated_topic_is_not_the_one_in_the_session(world):
    topic = world.add_topic("t")
    session_id = read(world, (topic, [asked()]), version=13, session_epoch=0).session_id
    world.add_topic("t")
    response = read(world, version=13, session_id=session_id, session_epoch=1)
    assert [each.error_code for each in response.responses[0].partitions] == [ErrorCode.inconsistent_topic_id]


def test_a_session_resolves_an_id_once_the_topic_exists(world):
    topic = Topic("t", uuid.uuid4())
    first = read(world, (topic, [asked()]), version=13, session_epoch=0)
    assert first.responses[0].partitions[0].error_code == ErrorCode.unknown_topic_id
    made = world.add_topic("t")
    made.topic_id = world.partitions["t", 0].topic_id = topic.topic_id
    world.produce()
    second = read(world, version=13, session_id=first.session_id, session_epoch=1)
    assert partitions_of(second)["t", 0].records


def test_partitions_with_errors_come_last_in_the_response(world):
    topic = world.add_topic("t", 1)
    response = read(world, (Topic("none", uuid.uuid4()), [asked()]), (topic, [asked()]))
    assert [each.topic for each in response.responses] == ["t", "none"]


# -- leader epochs (KIP-320) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.none),
        (4, ErrorCode.fenced_leader_epoch),
        (5, ErrorCode.none),
        (6, ErrorCode.unknown_leader_epoch),
    ],
)
def test_the_client_s_leader_epoch_must_be_the_current_one(world, epoch, error):
    world.add_topic("t", epoch=5)
    assert read_one(world, current_leader_epoch=epoch).error_code == error


def world_of_three_epochs(world: World) -> None:
    """Create a topic with offsets 0-1 of leader epoch 1, 2-3 of epoch 3 and 4-5 of epoch 5."""
    world.add_topic("t", epoch=1)
    partition = world.partitions["t", 0]
    for epoch in (1, 3, 5):
        partition.leader_epoch = epoch
        partition.log.assign_epoch(epoch)
        world.produce()
        world.produce()


@pytest.mark.parametrize(
    ("last_fetched_epoch", "offset", "error", "diverging"),
    [
        pytest.param(5, 6, 0, None, id="the newest epoch, the end of the log"),
        pytest.param(1, 2, 0, None, id="the end of an older epoch"),
        pytest.param(1, 3, 0, (1, 2), id="beyond the end of its epoch"),
        pytest.param(2, 3, 0, (1, 2), id="an epoch that never was here"),
        pytest.param(6, 6, 1, None, id="an epoch newer than any"),
        pytest.param(-1, 6, 0, None, id="none"),
    ],
)
def test_a_diverged_follower_gets_the_diverging_epoch(world, last_fetched_epoch, offset, error, diverging):
    world_of_three_epochs(world)
    answer = read_one(world, offset=offset, last_fetched_epoch=last_fetched_epoch)
    assert answer.error_code == error
    if diverging:
        assert answer.diverging_epoch == EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        assert (answer.records, answer.high_watermark, answer.log_start_offset) == (b"", 6, 0)
    else:
        assert answer.diverging_epoch == EpochEndOffset()


def test_below_the_log_start_divergence_is_not_checked(world):
    world_of_three_epochs(world)
    world.partitions["t", 0].delete_records(3)
    assert read_one(world, offset=2, last_fetched_epoch=1).error_code == ErrorCode.offset_out_of_range


# -- leaders on other nodes (KIP-951) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [15, 16])
@pytest.mark.parametrize("error", [ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch])
def test_since_v16_the_error_comes_with_the_new_leader(world, version, error):
    topic = world.add_topic("t")
    topic.partitions[0] = PartitionState(0, (NODE_ID, OTHER_NODE_ID), (OTHER_NODE_ID,), OTHER_NODE_ID, 8, 0)
    world.errors["t", 0] = error
    response = read(world, (topic, [asked()]), version=version)
    answer = partitions_of(response)["t", 0]
    assert answer.error_code == error
    if version < 16:
        assert (answer.current_leader, response.node_endpoints) == (LeaderIdAndEpoch(), [])
    else:
        assert answer.current_leader == LeaderIdAndEpoch(leader_id=OTHER_NODE_ID, leader_epoch=8)
        assert response.node_endpoints == [NodeEndpoint(node_id=2, host="node-2", port=9092, rack="r2")]


def test_other_errors_come_without_a_leader(world):
    world.add_topic("t", epoch=5)
    assert read_one(world, version=16, current_leader_epoch=6).current_leader == LeaderIdAndEpoch()


# -- followers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "error"), [(-1, 6), (0, 75)])
@pytest.mark.parametrize(
    "follower",
    [
        pytest.param({"replica_id": 9}, id="up to v14"),
        pytest.param({"replica_state": ReplicaState(replica_id=9, replica_epoch=1)}, id="from v15"),
    ],
)
def test_an_unknown_replica_is_refused(world, follower, epoch, error):
    topic = world.add_topic("t")
    response = read(world, (topic, [asked(current_leader_epoch=epoch)]), **follower)
    assert partitions_of(response)["t", 0].error_code == error


@pytest.mark.parametrize("replica_id", [-1, -2])
def test_consumers_and_debuggers_are_no_replicas(world, replica_id):
    topic = world.add_topic("t")
    world.produce()
    assert partitions_of(read(world, (topic, [asked()]), replica_id=replica_id))["t", 0].records


# -- sessions on the wire ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "error"),
    [(5, 1, ErrorCode.fetch_session_id_not_found), (0, 1, ErrorCode.fetch_session_id_not_found)],
)
def test_a_session_error_has_no_partitions(world, session_id, session_epoch, error):
    topic = world.add_topic("t")
    response = read(world, (topic, [asked()]), session_id=session_id, session_epoch=session_epoch)
    assert response == FetchResponse(error_code=error)


def test_a_wrong_session_epoch_is_an_error_but_keeps_the_session(world):
    topic = world.add_topic("t")
    session_id = read(world, (topic, [asked()]), session_epoch=0).session_id
    assert session_id > 0
    wrong = read(world, session_id=session_id, session_epoch=7)
    assert wrong == FetchResponse(error_code=ErrorCode.invalid_fetch_session_epoch)
    assert read(world, session_id=session_id, session_epoch=1).session_id == session_id


def test_ids_and_names_do_not_mix(world):
    topic = world.add_topic("t")
    session_id = read(world, (topic, [asked()]), version=13, session_epoch=0).session_id
    mixed = read(world, version=12, session_id=session_id, session_epoch=1)
    assert mixed == FetchResponse(error_code=ErrorCode.fetch_session_topic_id_error)


def test_below_v7_there_are_no_sessions(world):
    topic = world.add_topic("t")
    assert read(world, (topic, [asked()]), version=6).session_id == 0


def test_a_session_reads_all_its_partitions_and_returns_changed_ones(world):
    topic = world.add_topic("t", 2)
    session_id = read(world, (topic, [asked(0), asked(1)]), session_epoch=0).session_id
    world.produce(index=1)
    response = read(world, session_id=session_id, session_epoch=1)
    assert list(partitions_of(response)) == [("t", 1)]
    assert response.session_id == session_id


@pytest.mark.parametrize("version", [12, 13])
def test_forgotten_partitions_are_no_longer_read(world, version):
    topic = world.add_topic("t", 2)
    session_id = read(world, (topic, [asked(0), asked(1)]), version=version, session_epoch=0).session_id
    world.produce(index=0)
    world.produce(index=1)
    # Each version has either the topic's name or its id on the wire.
    forgotten = ForgottenTopic(topic="t", topic_id=topic.topic_id if version >= 13 else None, partitions=[1])
    response = read(
        world, version=version, session_id=session_id, session_epoch=1, forgotten_topics_data=[forgotten]
    )
    assert list(partitions_of(response)) == [("t", 0)]


def test_partitions_of_a_topic_share_an_entry_only_side_by_side(world):
    first, second = world.add_topic("a", 2), world.add_topic("b")
    response = read(world, (first, [asked(0)]), (second, [asked(0)]), (first, [asked(1)]))
    layout = [(each.topic, [one.partition_index for one in each.partitions]) for each in response.responses]
    assert layout == [("a", [0]), ("b", [0]), ("a", [1])]


def test_a_request_without_partitions_has_no_responses(world):
    assert read(world, max_wait_ms=1000, min_bytes=1) == FetchResponse(responses=[], node_endpoints=[])


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_goes_over_the_wire(world, version):
    """Request and response are encoded and decoded: fields that the version lacks are omitted, all others arrive."""
    topic = world.add_topic("t")
    batch = world.produce()
    wire = client_codec(1, version)
    sent = b"".join(wire.encode(request((topic, [asked()]), version=version, session_epoch=0)))
    response = fetch(request_codec(1, version).decode(sent), world.context(version))
    heard = wire.decode(b"".join(request_codec(1, version).encode(response)))
    (entry,) = heard.responses
    assert isinstance(entry, FetchableTopicResponse)
    assert (entry.topic, entry.topic_id) == (("t", None) if version < 13 else ("", topic.topic_id))
    (partition,) = entry.partitions
    assert bytes_of(partition) == batch
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert bool(heard.session_id) is (version >= 7)
