"""Records of other versions, truncated records and garbage are read, skipped or rejected, without any other exception."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records import (
    cluster_metadata,
    consumer_protocol,
    group_log,
    kraft,
    producer_snapshot,
    share_group_log,
    streams_group_log,
    transaction_log,
)
from protocol.records.cluster_metadata import (
    NoOpRecord,
    RegisterBrokerRecord,
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.records.consumer_protocol import Assignment, Subscription, TopicPartitions
from protocol.records.producer_snapshot import MalformedSnapshot, ProducerSnapshotEntry
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions
from protocol.schema import Key, MalformedRecord, UnsupportedRecordVersion, VersionedRecord
from protocol.wire_types import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING_BYTES_MAX,
    UINT16,
    Array,
    Bytes,
    Uuid,
)

MODULES = (
    transaction_log,
    group_log,
    cluster_metadata,
    kraft,
    consumer_protocol,
    share_group_log,
    streams_group_log,
)


def versions() -> Iterator[tuple[type[VersionedRecord], int]]:
    for module in MODULES:
        for cls in vars(module).values():
            if isinstance(cls, type) and is_dataclass(cls) and issubclass(cls, VersionedRecord):
                yield from ((cls, version) for version in cls.VERSIONS)


ALL_VERSIONS = tuple(versions())

# A random record of a schema, with the fields of one version

SIGNED = {INT8: 7, INT16: 15, INT32: 31, INT64: 63}
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    FLOAT64: st.floats(allow_nan=False),
    UINT16: st.integers(0, 2**16 - 1),
    **{wire: st.integers(-(2**bits), 2**bits - 1) for wire, bits in SIGNED.items()},
}


def values_of(wire: Any, version: int) -> st.SearchStrategy[Any]:
    if wire in PLAIN:
        return PLAIN[wire]
    if isinstance(wire, Uuid):
        return st.none() | st.uuids()
    if isinstance(wire, Bytes):
        values: st.SearchStrategy[Any] = st.text(max_size=20) if wire.text else st.binary(max_size=20)
    elif isinstance(wire, Array):
        values = st.lists(values_of(wire.item, version), max_size=3).map(tuple)
    else:
        values = records_of(wire.structure, version)
    return st.none() | values if wire.nullable else values


STRATEGIES: dict[tuple[Any, int], st.SearchStrategy[Any]] = {}


def records_of(cls: Any, version: int) -> st.SearchStrategy[Any]:
    if (cls, version) not in STRATEGIES:
        present = {
            f.name: values_of(f.metadata["wire"].type, version)
            for f in fields(cls)
            if f.metadata["wire"].is_in(version)
        }
        STRATEGIES[cls, version] = st.builds(cls, **present)
    return STRATEGIES[cls, version]


def encoded(record: Any, version: int) -> bytes:
    if isinstance(record, cluster_metadata.MetadataRecord):
        return encode_metadata_record(record, version)
    result = record.encode() if isinstance(record, Key) else record.encode(version)
    assert isinstance(result, bytes)
    return result


def decoder(cls: Any) -> Callable[[bytes], object]:
    if issubclass(cls, cluster_metadata.MetadataRecord):
        return decode_metadata_record
    decode: Callable[[bytes], object] = cls.decode
    return decode


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_written_is_read(cls: type[VersionedRecord], version: int, data: st.DataObject) -> None:
    record = data.draw(records_of(cls, version))
    written = encoded(record, version)
    assert decoder(cls)(written) == record


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_cut_or_changed_record_is_refused_or_read(
    cls: type[VersionedRecord], version: int, data: st.DataObject
) -> None:
    written = bytearray(encoded(data.draw(records_of(cls, version)), version))
    cut = bytes(written[: data.draw(st.integers(0, len(written) - 1))])
    written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (cut, bytes(written)):
        with suppress(MalformedRecord):
            decoder(cls)(damaged)


@given(st.binary(max_size=200))
def test_garbage_is_a_malformed_record_or_none_at_all(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        group_log.decode_key,
        decode_metadata_record,
        *(decoder(cls) for cls, version in ALL_VERSIONS if version == 0),
        *(lambda raw, k=kind: kraft.decode_control_record(bytes((0, 0, 0, k)), raw) for kind in range(8)),
        lambda raw: kraft.decode_control_record(raw, raw),
    ]
    for read in readers:
        with suppress(MalformedRecord):
            read(data)


def test_a_cut_record_of_every_length_is_refused() -> None:
    value = TransactionLogValue(7, 6, -1, 1, transaction_partitions=(TransactionPartitions("topic", (0, 1)),))
    for version in value.VERSIONS:
        written = value.encode(version)
        for length in range(len(written)):
            with pytest.raises(MalformedRecord):
                TransactionLogValue.decode(written[:length])


# Unknown versions, tags and types


def test_a_newer_value_is_refused_by_name_and_version() -> None:
    with pytest.raises(UnsupportedRecordVersion, match=r"TransactionLogValue version 2 is not one of 0-1"):
        TransactionLogValue.decode(b"\0\2" + bytes(100))
    with pytest.raises(UnsupportedRecordVersion):
        decode_metadata_record(bytes((1, RegisterBrokerRecord.TYPE, 9)))


def test_a_version_that_does_not_exist_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="TransactionLogValue has no version 2"):
        TransactionLogValue().encode(2)


def test_a_number_that_does_not_fit_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="cannot be written as version 1"):
        TransactionLogValue(producer_epoch=2**15).encode(1)


def test_no_string_is_longer_than_32767_bytes() -> None:
    longest = "x" * STRING_BYTES_MAX
    data = RegisterBrokerRecord(rack=longest).encode_body(1)
    longer = data.replace(b"\x80\x80\x02x", b"\x81\x80\x02xx")
    assert RegisterBrokerRecord.decode_body(data, 1)[0].rack == longest
    with pytest.raises(MalformedRecord, match="a string of 32768 bytes"):
        RegisterBrokerRecord.decode_body(longer, 1)
    with pytest.raises(ValueError, match="a string of 32768 bytes"):
        RegisterBrokerRecord(rack=longest + "x").encode_body(1)


def test_unknown_tagged_fields_are_skipped() -> None:
    value = TransactionLogValue(producer_id=7, client_transaction_version=2)
    written = value.encode(1)
    assert written.endswith(bytes((1, 2, 2, 0, 2)))  # one tagged field: tag 2, two bytes, the number 2
    with_another = written[:-5] + bytes((2, 2, 2, 0, 2, 99, 3)) + b"new"
    assert TransactionLogValue.decode(with_another) == value


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    written = TransactionLogValue(client_transaction_version=2).encode(1)
    with pytest.raises(MalformedRecord, match="tagged field 2"):
        TransactionLogValue.decode(written[:-3] + bytes((3, 0, 2, 0)))


def test_partitions_may_be_null_or_empty() -> None:
    for version in TransactionLogValue.VERSIONS:
        for partitions in (None, ()):
            value = TransactionLogValue(transaction_partitions=partitions)
            assert TransactionLogValue.decode(value.encode(version)).transaction_partitions == partitions


def test_lists_are_written_as_tuples_are() -> None:
    listed = RegisterBrokerRecord(log_dirs=[], features=[])
    assert encode_metadata_record(listed) == encode_metadata_record(RegisterBrokerRecord())


def test_a_key_of_another_type_is_not_taken_for_ours() -> None:
    with pytest.raises(MalformedRecord, match="type 9"):
        TransactionLogKey.decode(b"\0\x09" + TransactionLogKey("tx").encode()[2:])


def test_group_records_of_unknown_types_can_be_passed_over() -> None:
    assert group_log.decode_key(b"\0\x11\0\1g") == group_log.UnknownKey(17)


def test_a_group_value_goes_with_its_key() -> None:
    key = group_log.decode_key(group_log.OffsetCommitKey("g", "t", 3).encode())
    value = group_log.OffsetCommitValue(5, 1, "", 10)
    assert isinstance(key, group_log.OffsetCommitKey)
    assert group_log.decode_value(key, value.encode(4)) == value
    assert group_log.decode_value(key, None) is None


def test_metadata_records_of_unknown_types_can_be_passed_over() -> None:
    assert decode_metadata_record(b"\1\x63\2rest") == UnknownMetadataRecord(99, 2, b"rest")


def test_a_metadata_record_ends_where_its_bytes_end() -> None:
    with pytest.raises(MalformedRecord, match="1 bytes follow a NoOpRecord"):
        decode_metadata_record(encode_metadata_record(NoOpRecord()) + b"\0")


@pytest.mark.parametrize("frame_version", [0, 2])
def test_metadata_records_have_one_frame_version(frame_version: int) -> None:
    with pytest.raises(MalformedRecord, match="frame version"):
        decode_metadata_record(bytes((frame_version, 20, 0, 0)))


def test_control_records_have_a_type_in_their_key() -> None:
    key, value = kraft.encode_control_record(kraft.LeaderChangeMessage(3, (kraft.QuorumVoter(3),)), 1)
    assert key == b"\0\0\0\2"
    assert kraft.decode_control_record(key, value) == kraft.LeaderChangeMessage(3, (kraft.QuorumVoter(3),))
    assert kraft.decode_control_record(b"\0\0\0\1", b"x") == kraft.UnknownControlRecord(1, b"x")


# The embedded consumer protocol


def test_a_newer_subscription_is_read_as_the_newest_known() -> None:
    owned = (TopicPartitions("orders", (0, 2)),)
    subscription = Subscription(("orders",), b"data", owned, 5, "rack")
    newer = b"\0\x09" + subscription.encode(3)[2:] + b"what comes next"
    assert Subscription.decode(newer) == subscription


def test_an_old_subscription_has_no_owned_partitions() -> None:
    subscription = Subscription(("orders",), None, (TopicPartitions("orders", (0,)),), 5, "rack")
    assert Subscription.decode(subscription.encode(0)) == Subscription(("orders",))


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(MalformedRecord):
        Assignment.decode(b"\xff\xff" + bytes(20))


# Producer snapshots

ENTRY = ProducerSnapshotEntry(5, 0, 978, 978, 0, 1_700_000_000_000)


def test_a_snapshot_of_one_producer_is_56_bytes() -> None:
    assert len(producer_snapshot.encode([ENTRY])) == 56
    assert producer_snapshot.decode(producer_snapshot.encode([])) == []


@given(st.data())
def test_a_changed_snapshot_is_refused(data: st.DataObject) -> None:
    written = bytearray(producer_snapshot.encode([ENTRY, ENTRY]))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedSnapshot):
        producer_snapshot.decode(bytes(written))


@given(st.binary(max_size=120))
def test_no_garbage_is_a_snapshot(data: bytes) -> None:
    with pytest.raises(MalformedSnapshot):
        producer_snapshot.decode(data)


def test_a_cut_snapshot_is_refused() -> None:
    written = producer_snapshot.encode([ENTRY])
    for length in range(len(written)):
        with pytest.raises(MalformedSnapshot):
            producer_snapshot.decode(written[:length])


def test_only_version_1_is_read() -> None:
    with pytest.raises(MalformedSnapshot, match="version 2"):
        producer_snapshot.decode(b"\0\2" + producer_snapshot.encode([ENTRY])[2:])
