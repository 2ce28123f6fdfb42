"""Reading a partition of ``__consumer_offsets``: every kind of record, in every version, and unreadable records."""

from typing import Any

import pytest

from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.group import ClassicGroupConfig, ClassicGroupState
from protocol.batch import CorruptBatch, RecordBatch, build_batch, end_txn_marker
from protocol.records.group_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.broker.groups.lab import subscription

OFFSET = OffsetCommitKey("g", "t", 0).encode()
GROUP = GroupMetadataKey("g").encode()


class Log:
    def __init__(self) -> None:
        self.state = GroupCoordinatorState(ClassicGroupConfig())
        self.next = 0

    def add(
        self, *records: tuple[bytes | None, bytes | None], producer: int = -1, compression: int = 0
    ) -> None:
        batch = build_batch(
            [(1_000, key, value) for key, value in records],
            base_offset=self.next,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0,
            transactional=producer >= 0,
            compression=compression,
        )
        self.next += len(records)
        self.state.replay(RecordBatch.parse(batch))

    def marker(self, producer: int, committed: bool) -> None:
        data = end_txn_marker(producer, 0, committed=committed, coordinator_epoch=0, timestamp_ms=1_000)
        batch = RecordBatch.parse(data)
        batch.base_offset = self.next
        self.next += 1
        self.state.replay(batch)

    def offset(self, stable: bool = True) -> int | str | None:
        found = self.state.offsets.find("g", "t", 0, require_stable=stable)
        if found.error:
            return found.error.name
        return None if found.committed is None else found.committed.offset


@pytest.fixture
def log() -> Log:
    return Log()


def value(offset: int = 5, version: int = 4, **more) -> bytes:
    return OffsetCommitValue(offset=offset, **more).encode(version)


def member(**changes) -> MemberMetadata:
    fields: dict[str, Any] = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": 60_000,
        "session_timeout_ms": 10_000,
        "subscription": subscription("t"),
        "assignment": b"a",
    }
    return MemberMetadata(**fields | changes)


def group(*members: MemberMetadata, version: int = 3, **changes) -> bytes:
    fields: dict[str, Any] = {
        "protocol_type": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m",
        "members": members,
    }
    return GroupMetadataValue(**fields | changes).encode(version)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version(log: Log, version: int):
    log.add((OFFSET, value(version=version)))
    assert log.offset() == 5


def test_the_oldest_kind_of_key_is_read_like_the_newer_one(log: Log):
    log.add((LegacyOffsetCommitKey("g", "t", 0).encode(), value(version=0)))
    assert log.offset() == 5


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches(log: Log, codec: int):
    log.add((OFFSET, value(4)), (OFFSET, value(5)), compression=codec)
    assert log.offset() == 5
    assert log.state.records == 2


def test_commits_make_a_group_that_only_commits(log: Log):
    log.add((OFFSET, value()))
    made = log.state.groups["g"]
    assert (made.state, made.protocol_type, made.is_simple) == (ClassicGroupState.EMPTY, None, True)


def test_an_open_transaction_is_still_open(log: Log):
    log.add((OFFSET, value(3)))
    log.add((OFFSET, value(7)), producer=1)
    assert log.offset() == "unstable_offset_commit"
    assert log.offset(stable=False) == 3


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 3)])
def test_markers_are_read_in_their_place(log: Log, committed: bool, offset: int):
    log.add((OFFSET, value(3)))
    log.add((OFFSET, value(7)), producer=1)
    log.marker(1, committed)
    assert log.offset() == offset


def test_tombstones(log: Log):
    log.add((OFFSET, value()), (GROUP, group(member())))
    log.add((OFFSET, None), (GROUP, None))
    assert log.offset() is None
    assert log.state.groups == {}


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version(log: Log, version: int):
    log.add((GROUP, group(member(), version=version)))
    loaded = log.state.groups["g"]
    assert (loaded.state, loaded.generation, loaded.protocol_name, loaded.leader) == (
        ClassicGroupState.STABLE,
        3,
        "range",
        "m",
    )
    assert loaded.members["m"].assignment == b"a"
    assert loaded.subscribed_topics() == frozenset({"t"})
    # Version 0 has no rebalance timeout.
    assert loaded.members["m"].rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


def test_the_last_record_of_a_group_counts(log: Log):
    log.add((GROUP, group(member())), (GROUP, group(generation=4, protocol=None, leader=None)))
    assert (log.state.groups["g"].state, log.state.groups["g"].generation) == (ClassicGroupState.EMPTY, 4)


def test_a_member_s_bytes_keep_no_group_from_being_loaded(log: Log):
    """A group is loaded although a member's subscription cannot be decoded, as in Kafka 4.4.0."""
    log.add((GROUP, group(member(subscription=b"changed"))), (OFFSET, value()))
    assert log.state.groups["g"].subscribed_topics() is None
    assert log.offset() == 5
    assert log.state.skipped == 0


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        (None, b"x"),
        (b"", b"x"),
        (b"\0", b"x"),
        (b"\0\x63rest", b"x"),  # type 99
        (b"\0\x0b\0\x01g", b"x"),  # type 11: share groups
        (b"\xff\xff", b"x"),
        (OFFSET[:-2], b"x"),
        (OFFSET, b""),
        (OFFSET, b"\0\x09\0\0\0\0"),  # an unknown, later version
        (OFFSET, value()[:5]),
        (GROUP, b"\0\x03changed"),
        (GROUP, group(member())[:20]),
    ],
)
def test_a_record_of_no_use_is_skipped_and_the_next_one_read(log: Log, key: bytes | None, raw: bytes | None):
    log.add((key, raw), (OFFSET, value()))
    assert log.offset() == 5
    assert log.state.skipped == 1


def test_a_batch_that_is_broken_inside_is_skipped_and_the_next_one_read(log: Log):
    data = bytearray(build_batch([(0, OFFSET, value(9))]))
    data[-20:] = b"\xff" * 20
    with pytest.raises(CorruptBatch):
        log.state.replay(RecordBatch.parse(bytes(data)))
    log.add((OFFSET, value()))
    assert log.offset() == 5
    assert log.state.skipped == 1


def test_a_record_that_contradicts_itself_is_taken_as_far_as_it_goes(log: Log):
    log.add(
        (
            GROUP,
            group(
                member(),
                member(client_id="later"),
                member(member_id="n", group_instance_id="i"),
                member(member_id="o", group_instance_id="i"),
                leader="unknown",
                protocol=None,
            ),
        )
    )
    loaded = log.state.groups["g"]
    assert [each.member_id for each in loaded.members] == ["m", "o"]
    assert loaded.members["m"].client_id == "later"
    assert loaded.leader == "m"


def test_offsets_without_their_group_have_one_when_all_is_read(log: Log):
    log.add((OFFSET, value()), (GROUP, None))
    assert log.state.groups == {}
    log.state.settle()
    assert log.state.groups["g"].is_simple


def test_a_group_in_a_rebalance_is_compared_by_its_last_record(log: Log):
    log.add((GROUP, group(member())))
    loaded = log.state.groups["g"]
    before = log.state.image()
    loaded.move_to(ClassicGroupState.PREPARING_REBALANCE, 5_000)
    loaded.remove("m")
    assert log.state.image() == before
    loaded.written = None
    image: Any = log.state.image()
    assert image["groups"]["g"]["generation"] == 0
