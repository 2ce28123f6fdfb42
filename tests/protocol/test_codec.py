"""The codec in cases that kio does not cover: unusual but valid bytes, hostile bytes, chunks, wrong messages."""

import struct
import tracemalloc
import uuid
from types import GeneratorType
from typing import Any

import pytest

from protocol.codec import (
    ELEMENTS_MAX,
    MalformedRequest,
    UnknownVersion,
    client_codec,
    read_response,
    request_codec,
    request_frame,
)
from protocol.errors import ErrorCode
from protocol.frame import SIZE, parse_request_header, request_header, response_header
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.consumer_protocol import Assignment
from protocol.records.group_log import ConsumerGroupMetadataValue
from protocol.schema import MalformedRecord
from protocol.source import ELEMENTS_AT_ONCE
from protocol.varint import unsigned_varint
from protocol.wire_types import TAGS_MAX

PRODUCE, FETCH, METADATA, API_VERSIONS, LIST_TRANSACTIONS = 0, 1, 3, 18, 66
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF)


def request_bytes(key, version, message):
    return b"".join(client_codec(key, version).encode(message))


def fetch_response(records):
    partition = PartitionData(partition_index=1, high_watermark=9, records=records)
    topic = FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


def test_codecs_are_made_once():
    assert request_codec(PRODUCE, 9) is request_codec(PRODUCE, 9)
    assert request_codec(PRODUCE, 9) is not client_codec(PRODUCE, 9)


@pytest.mark.parametrize(("key", "version"), [(PRODUCE, 2), (PRODUCE, 14), (999, 0), (PRODUCE, -1)])
def test_a_version_that_does_not_exist_has_no_codec(key, version):
    with pytest.raises(UnknownVersion):
        request_codec(key, version)


def test_one_response_object_serves_every_version():
    partition = PartitionProduceResponse(index=3, error_code=ErrorCode.none, base_offset=70)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=[partition])]
    )
    for version in range(3, 14):
        (chunk,) = request_codec(PRODUCE, version).encode(response)
        read = client_codec(PRODUCE, version).decode(bytes(chunk))
        assert read.responses[0].name == ("orders" if version < 13 else "")
        assert read.responses[0].topic_id == (None if version < 13 else TOPIC_ID)
        assert read.responses[0].partition_responses[0] == partition


def test_a_message_that_was_read_equals_the_one_that_was_written():
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        replica_state=ReplicaState(replica_id=4, replica_epoch=2),
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=1, fetch_offset=7)])],
    )
    read = request_codec(FETCH, 17).decode(request_bytes(FETCH, 17, request))
    assert read == request
    assert request == read
    request.topics[0].partitions[0].fetch_offset = 8
    assert read != request


def test_null_and_nothing_are_different():
    codec = request_codec(METADATA, 12)
    assert codec.decode(request_bytes(METADATA, 12, MetadataRequest(topics=None))).topics is None
    assert codec.decode(request_bytes(METADATA, 12, MetadataRequest(topics=[]))).topics == ()
    topic = CreatePartitionsTopic(name="orders", count=2, assignments=None)
    data = request_bytes(37, 3, CreatePartitionsRequest(topics=[topic]))
    assert request_codec(37, 3).decode(data).topics == (topic,)


# Tags.


def test_an_unknown_tag_is_skipped():
    request = ApiVersionsRequest(client_software_name="tool", client_software_version="1")
    data = request_bytes(API_VERSIONS, 3, request)
    assert data.endswith(b"\0")
    # Tag 5 with three bytes, tag 1000 with none.
    tagged = data[:-1] + b"\x02" + b"\x05\x03abc" + b"\xe8\x07\x00"
    assert request_codec(API_VERSIONS, 3).decode(tagged) == request


def test_an_unknown_tag_among_known_ones_is_skipped_at_any_depth():
    partition = FetchPartition(partition=1, replica_directory_id=TOPIC_ID)
    request = FetchRequest(
        cluster_id="here", topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])], rack_id="r"
    )
    data = request_bytes(FETCH, 17, request)
    known = b"\x01\x00\x10" + TOPIC_ID.bytes  # one tagged field: tag 0, sixteen bytes
    assert data.count(known) == 1
    data = data.replace(known, b"\x03\x00\x10" + TOPIC_ID.bytes + b"\x07\x01x\x09\x00")
    assert request_codec(FETCH, 17).decode(data) == request


def test_a_tag_with_its_default_is_not_written():
    with_default = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
    told = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=3))
    sizes = [
        sum(map(len, request_codec(FETCH, 13).encode(FetchResponse(responses=[topic]))))
        for topic in (
            FetchableTopicResponse(partitions=[partition])
            for partition in (PartitionData(), with_default, told)
        )
    ]
    assert sizes[0] == sizes[1]
    assert sizes[2] == sizes[0] + 11  # tag, size, two int32 and their empty tag section


# Values that kio's types reject.


def test_a_negative_timestamp_is_a_number():
    state = TransactionState(transactional_id="t", transaction_start_time_ms=-1, transaction_timeout_ms=-5)
    response = DescribeTransactionsResponse(transaction_states=[state])
    data = b"".join(request_codec(65, 0).encode(response))
    assert client_codec(65, 0).decode(data) == response


def test_an_error_code_of_a_later_release_is_a_number():
    data = b"".join(request_codec(10, 3).encode(FindCoordinatorResponse(error_code=12345)))
    assert client_codec(10, 3).decode(data).error_code == 12345


def test_text_that_is_not_utf_8_is_replaced_as_java_does():
    data = request_bytes(METADATA, 1, MetadataRequest(topics=[MetadataRequestTopic(name="ab")]))
    topics = request_codec(METADATA, 1).decode(data.replace(b"ab", b"a\xff")).topics
    assert topics[0].name == "a�"


# Hostile bytes.


@pytest.mark.parametrize(
    ("version", "count"),
    [
        (1, struct.pack(">i", 2**31 - 1)),
        (1, struct.pack(">i", 1_000)),
        (9, b"\xff\xff\xff\xff\x07"),
        (9, b"\xff\xff\xff\x7f"),
        (9, b"\xff\xff\xff\xff\x0f"),
        (9, b"\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_a_count_that_cannot_be_true_allocates_nothing(version, count):
    codec = request_codec(METADATA, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match=r"topics claims|a varint of|the varint"):
            codec.decode(count + bytes(20))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\x07", b"\x7f", b"\xff\x7f"])
def test_a_string_longer_than_the_message_is_malformed(length):
    with pytest.raises(MalformedRequest):
        request_codec(API_VERSIONS, 3).decode(length + b"name")


def test_a_null_where_none_may_be_is_malformed():
    with pytest.raises(MalformedRequest, match="topics is null"):
        request_codec(METADATA, 0).decode(struct.pack(">i", -1))
    with pytest.raises(MalformedRequest, match="client_software_name is null"):
        request_codec(API_VERSIONS, 3).decode(b"\0\0\0")


def test_a_negative_length_is_null_where_null_may_be():
    assert request_codec(METADATA, 1).decode(struct.pack(">i", -7)).topics is None


def test_nothing_at_all_is_malformed():
    for key, version in ((PRODUCE, 3), (PRODUCE, 9), (FETCH, 4), (METADATA, 12)):
        with pytest.raises(MalformedRequest):
            request_codec(key, version).decode(b"")


# Chunks.


def test_records_are_their_own_chunk_and_not_copied():
    records = b"r" * 10
    for version in (4, 12, 17):
        chunks = request_codec(FETCH, version).encode(fetch_response(records))
        assert chunks[1] is records
        assert len(chunks) in (2, 3)
        assert (
            client_codec(FETCH, version).decode(b"".join(chunks)).responses[0].partitions[0].records
            == records
        )


def test_records_in_pieces_are_written_one_after_another():
    pieces = [b"one", memoryview(b"two"), bytearray(b"three")]
    chunks = request_codec(FETCH, 12).encode(fetch_response(pieces))
    assert [id(chunk) for chunk in chunks[1:4]] == [id(piece) for piece in pieces]
    assert (
        client_codec(FETCH, 12).decode(b"".join(chunks)).responses[0].partitions[0].records == b"onetwothree"
    )


@pytest.mark.parametrize(("records", "read"), [(None, None), (b"", b""), ([], b"")])
def test_no_records_make_no_chunk(records, read):
    chunks = request_codec(FETCH, 12).encode(fetch_response(records))
    assert len(chunks) == 1
    assert client_codec(FETCH, 12).decode(bytes(chunks[0])).responses[0].partitions[0].records == read


def test_records_of_a_request_in_a_view_stay_a_view():
    partition = PartitionProduceData(index=0, records=b"batch")
    request = ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=[partition])])
    frame = memoryview(request_bytes(PRODUCE, 9, request))
    read = request_codec(PRODUCE, 9).decode(frame).topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is frame.obj
    assert read.tobytes() == b"batch"


def test_long_bytes_are_their_own_chunk_and_short_ones_are_not():
    for size, chunk_count in ((10, 1), (4096, 1), (4097, 3)):
        member = JoinGroupResponseMember(member_id="m", metadata=bytes(size))
        response = JoinGroupResponse(leader="m", member_id="m", members=[member])
        assert len(request_codec(11, 9).encode(response)) == chunk_count


# Programming errors.


@pytest.mark.parametrize("version", [4, 9])
def test_none_in_a_field_that_cannot_be_null_is_refused(version):
    for request in (
        OffsetCommitRequest(group_id=None),  # type: ignore[arg-type]
        OffsetCommitRequest(topics=None),  # type: ignore[arg-type]
        OffsetCommitRequest(member_id=None),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, AttributeError)):
            client_codec(8, version).encode(request)


def test_a_number_out_of_range_is_refused():
    with pytest.raises(struct.error):
        client_codec(PRODUCE, 9).encode(ProduceRequest(acks=40_000))


# Messages with many elements


def stops_of(steps):
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def metadata_of(count):
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(count)])


@pytest.mark.parametrize("version", [1, 12])
def test_many_elements_are_read_in_slices(version):
    data = request_bytes(METADATA, version, metadata_of(5_500))
    codec = request_codec(METADATA, version)
    steps = codec.decode_steps(data)
    assert isinstance(steps, GeneratorType)
    message, stops = stops_of(steps)
    assert stops >= 5_500 // ELEMENTS_AT_ONCE
    assert message == codec.decode(data)
    assert [topic.name for topic in message.topics] == [f"t{number}" for number in range(5_500)]
    assert not isinstance(
        codec.decode_steps(request_bytes(METADATA, version, metadata_of(1_000))), GeneratorType
    )


def test_many_elements_are_written_in_slices():
    codec = client_codec(METADATA, 12)
    assert isinstance(codec.encode_steps(metadata_of(10)), list)
    steps = codec.encode_steps(metadata_of(5_500))
    assert isinstance(steps, GeneratorType)
    chunks, stops = stops_of(steps)
    assert stops >= 5_500 // ELEMENTS_AT_ONCE
    assert b"".join(chunks) == request_bytes(METADATA, 12, metadata_of(5_500))


def test_elements_of_inner_arrays_count():
    """Elements of inner arrays count too: a hundred topics with a hundred partitions each are ten thousand elements."""
    partitions = [PartitionProduceData(index=index) for index in range(100)]
    topics = [TopicProduceData(name=f"t{number}", partition_data=partitions) for number in range(100)]
    steps = request_codec(PRODUCE, 9).decode_steps(
        request_bytes(PRODUCE, 9, ProduceRequest(topic_data=topics))
    )
    assert isinstance(steps, GeneratorType)
    assert stops_of(steps)[1] >= 10


def test_the_elements_of_a_request_have_a_bound():
    assert len(stops_of(list_transactions(ELEMENTS_MAX))[0].producer_id_filters) == ELEMENTS_MAX
    codec = request_codec(METADATA, 12)
    steps = codec.decode_steps(request_bytes(METADATA, 12, metadata_of(1_001)), elements_max=1_000)
    with pytest.raises(MalformedRequest, match="more elements than a message may have"):
        stops_of(steps)


def list_transactions(count):
    """Decode a ListTransactions request with ``count`` producer ids, of which all are 0."""
    data = b"\1" + unsigned_varint(count + 1) + bytes(8 * count) + b"\0"
    return request_codec(LIST_TRANSACTIONS, 0).decode_steps(data)


def test_an_array_has_a_bound():
    wrong = "an array of 1000001 elements; the maximum is 1000000"
    with pytest.raises(MalformedRequest, match=f"producer_id_filters is {wrong}"):
        stops_of(list_transactions(1_000_001))
    response = b"".join(request_codec(FETCH, 16).encode(FetchResponse()))
    assert response.endswith(b"\0")
    for count, text in (
        (1_000_000, "a varint of more than five bytes"),
        (1_000_001, f"node_endpoints is {wrong}"),
    ):
        tag = b"\1\0" + unsigned_varint(1 << 21) + unsigned_varint(count + 1) + b"\xff" * (1 << 20)
        with pytest.raises(MalformedRequest, match=text):
            client_codec(FETCH, 16).decode(response[:-1] + tag)
    with pytest.raises(MalformedRecord, match="an array has 1000001 elements; the maximum is 1000000"):
        Assignment.decode_body(struct.pack(">i", 1_000_001) + bytes(1 << 20), 0)


def test_a_long_array_within_a_tag():
    endpoints = [NodeEndpoint(node_id=number, host="h") for number in range(1_001)]
    data = b"".join(request_codec(FETCH, 16).encode(FetchResponse(node_endpoints=endpoints)))
    assert len(client_codec(FETCH, 16).decode(data).node_endpoints) == 1_001


def test_a_message_cut_in_a_later_slice_is_malformed():
    data = request_bytes(METADATA, 12, metadata_of(5_500))[:-30]
    with pytest.raises(MalformedRequest, match="ends too early"):
        stops_of(request_codec(METADATA, 12).decode_steps(data))


@pytest.mark.parametrize(("count", "sound"), [(TAGS_MAX, True), (TAGS_MAX + 1, False), (2**21, False)])
def test_the_tags_of_one_section_have_a_bound(count, sound):
    tags = unsigned_varint(count) + b"".join(
        bytes((number % 100 + 20, 0)) for number in range(min(count, TAGS_MAX))
    )
    body = request_bytes(METADATA, 12, metadata_of(1))
    header = request_header(METADATA, 12, 1, None)
    fetch = request_bytes(FETCH, 15, FetchRequest())  # it has tagged fields of its own
    record = ConsumerGroupMetadataValue(epoch=1).encode(0)[:-1]
    for read, data in (
        (request_codec(METADATA, 12).decode, body[:-1] + tags),
        (request_codec(FETCH, 15).decode, fetch[:-1] + tags),
        (parse_request_header, header[:-1] + tags),
        (ConsumerGroupMetadataValue.decode, record + tags),
    ):
        if sound:
            read(data)
        else:
            with pytest.raises(ValueError, match="more than 10000 tagged fields"):
                read(data)


def test_a_request_frame_has_its_size_its_header_and_its_message():
    records = b"r" * 5000
    pieces: Any = [records[:2000], records[2000:]]  # which only the encoder of requests takes
    data = PartitionProduceData(index=1, records=pieces)
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="orders", partition_data=[data])])
    frame = request_frame(PRODUCE, 9, 7, "client", request)
    assert SIZE.unpack_from(frame) == (len(frame) - SIZE.size,)
    header = parse_request_header(frame[SIZE.size :])
    assert header[:4] == (PRODUCE, 9, 7, "client")
    read = request_codec(PRODUCE, 9).decode(frame, SIZE.size + header.body_offset)
    assert read.topic_data[0].partition_data[0].records == records


def test_a_response_is_read_behind_its_header():
    frame = response_header(METADATA, 9, 7) + b"".join(
        request_codec(METADATA, 9).encode(MetadataResponse(controller_id=3))
    )
    assert read_response(METADATA, 9, frame) == MetadataResponse(controller_id=3)
    for cut in range(4, len(frame)):
        with pytest.raises(MalformedRequest):
            read_response(METADATA, 9, frame[:cut])


def test_a_broker_that_lacks_the_version_of_api_versions_is_read_in_version_0():
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.unsupported_version,
        api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=2)],
    )
    frame = b"\0\0\0\x07" + b"".join(request_codec(API_VERSIONS, 0).encode(refusal))
    assert read_response(API_VERSIONS, 4, frame) == refusal
