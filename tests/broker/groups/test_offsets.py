"""Committed and pending offsets: which offset a group has, when the offset is stable, and when it expires."""

import uuid

import pytest

from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.offsets import GroupOffsets
from protocol.errors import ErrorCode as E
from protocol.records.group_log import OffsetCommitKey, OffsetCommitValue
from tests.broker.groups.lab import Lab, subscription

TOPIC_ID = uuid.UUID(int=1)
OTHER_ID = uuid.UUID(int=2)
RETENTION_MS = 1_000
NONE = -1


def at(now_ms):
    return lambda written_ms: now_ms


class Log:
    """Committed offsets as loaded from a log, and the offset of the log's next record."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()
        self.next = 100

    def commit(
        self, offset: int | None, producer: int = NONE, group: str = "g", topic: str = "t", **value
    ) -> int:
        key = OffsetCommitKey(group, topic, value.pop("partition", 0))
        record = None if offset is None else OffsetCommitValue(offset=offset, **value)
        self.offsets.apply_commit(self.next, producer, key, record)
        self.next += 1
        return self.next - 1

    def marker(self, producer: int, committed: bool) -> None:
        self.offsets.end_transaction(producer, committed, self.next)
        self.next += 1

    def delete(self, **where) -> None:
        self.commit(None, **where)

    def get(
        self, *, stable: bool = False, group: str = "g", topic_id: uuid.UUID | None = None
    ) -> int | E | None:
        """The committed offset, None if no offset was committed, or the error for which OffsetFetch returns no
        offset."""
        found = self.offsets.find(group, "t", 0, require_stable=stable, topic_id=topic_id)
        if found.error is not E.none:
            return found.error
        return None if found.committed is None else found.committed.offset


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_last_commit_counts(log: Log):
    assert log.get() is None
    log.commit(5)
    log.commit(-7)
    assert log.get() == -7


def test_a_commit_keeps_its_metadata_and_leader_epoch(log: Log):
    where = log.commit(5, leader_epoch=3, metadata="m", commit_timestamp_ms=9, topic_id=TOPIC_ID)
    committed = log.offsets.find("g", "t", 0, require_stable=True).committed
    assert committed is not None
    assert (committed.leader_epoch, committed.metadata, committed.commit_timestamp_ms) == (3, "m", 9)
    assert (committed.record_offset, committed.topic_id) == (where, TOPIC_ID)


@pytest.mark.parametrize(
    ("stored", "asked", "found"),
    [
        (None, None, True),
        (TOPIC_ID, None, True),
        (None, TOPIC_ID, True),
        (TOPIC_ID, TOPIC_ID, True),
        (OTHER_ID, TOPIC_ID, False),
    ],
)
def test_a_topic_of_the_same_name_is_another_topic(log: Log, stored, asked, found: bool):
    log.commit(5, topic_id=stored)
    assert log.get(topic_id=asked) == (5 if found else None)


def test_what_is_above_the_high_watermark_is_not_found_yet(log: Log):
    def found() -> int | None:
        committed = log.offsets.find_committed("g", "t", 0).committed
        return None if committed is None else committed.offset

    log.commit(5)
    assert (found(), log.get()) == (None, 5)
    log.offsets.note_high_watermark(log.next)
    assert found() == 5
    log.commit(6)
    log.commit(7)
    assert (found(), log.get()) == (5, 7)
    log.offsets.note_high_watermark(log.next - 1)
    assert found() == 6
    log.delete()
    assert (found(), log.get()) == (6, None)
    assert log.offsets.spots_once_committed("g") == [("t", 0)]
    log.offsets.note_high_watermark(log.next)
    assert (found(), log.offsets.spots_once_committed("g")) == (None, [])
    log.commit(8, producer=1)
    log.offsets.note_high_watermark(log.next)
    log.marker(1, committed=True)
    assert (found(), log.get()) == (None, 8), "the marker is appended but not committed"
    log.offsets.note_high_watermark(log.next)
    assert found() == 8


# -- transactions ---------------------------------------------------------------------------------------------------


def test_a_pending_offset_is_invisible_and_makes_the_partition_unstable(log: Log):
    log.commit(5)
    log.commit(7, producer=1)
    assert log.get() == 5
    assert log.get(stable=True) == E.unstable_offset_commit


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 5)])
def test_a_marker_commits_or_drops_a_pending_offset(log: Log, committed: bool, offset: int):
    log.commit(5)
    log.commit(7, producer=1)
    log.marker(1, committed)
    assert log.get() == log.get(stable=True) == offset


def test_of_one_transaction_the_last_offset_counts(log: Log):
    log.commit(7, producer=1)
    log.commit(8, producer=1)
    log.marker(1, True)
    assert log.get() == 8


def test_a_later_plain_commit_beats_the_marker(log: Log):
    log.commit(7, producer=1)
    log.commit(3)
    log.marker(1, True)
    assert log.get() == 3


def test_an_earlier_plain_commit_does_not_beat_the_marker(log: Log):
    log.commit(3)
    log.commit(7, producer=1)
    log.marker(1, True)
    assert log.get() == 7


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_of_two_transactions_the_later_record_counts_in_whatever_order_they_end(
    log: Log, first: int, second: int
):
    log.commit(7, producer=1)
    log.commit(8, producer=2)
    log.marker(first, True)
    assert log.get(stable=True) == E.unstable_offset_commit
    log.marker(second, True)
    assert log.get(stable=True) == 8


def test_a_marker_of_another_producer_decides_nothing(log: Log):
    log.commit(7, producer=1)
    log.marker(2, True)
    assert log.get(stable=True) == E.unstable_offset_commit


def test_a_marker_reaches_every_group_of_the_partition(log: Log):
    log.commit(7, producer=1, group="g")
    log.commit(9, producer=1, group="h")
    log.marker(1, True)
    assert (log.get(group="g"), log.get(group="h")) == (7, 9)


def test_a_late_marker_does_not_affect_the_next_transaction(log: Log):
    log.commit(7, producer=1)
    marker = log.next
    log.next += 1
    log.commit(8, producer=1, partition=1)
    log.offsets.end_transaction(1, True, marker)
    assert log.get() == 7
    assert log.offsets.is_unstable("g", ("t", 1))


def test_a_marker_may_come_twice(log: Log):
    log.commit(7, producer=1)
    log.marker(1, True)
    log.marker(1, False)
    assert log.get(stable=True) == 7


# -- tombstones -----------------------------------------------------------------------------------------------------


def test_a_tombstone_takes_the_pending_offset_too_and_no_marker_brings_it_back(log: Log):
    log.commit(5)
    log.commit(7, producer=1)
    log.delete()
    assert log.get(stable=True) is None
    log.marker(1, True)
    assert log.get() is None
    assert log.offsets.image() == GroupOffsets().image()


def test_a_tombstone_leaves_the_rest_of_the_transaction(log: Log):
    log.commit(7, producer=1)
    log.commit(8, producer=1, partition=1)
    log.delete()
    log.marker(1, True)
    assert log.offsets.committed_spots("g") == [("t", 1)]


def test_a_tombstone_without_an_offset_has_no_effect(log: Log):
    log.delete()
    log.delete(group="other")
    assert log.offsets.image() == GroupOffsets().image()


def test_a_pending_offset_gets_a_tombstone_but_is_not_listed(log: Log):
    log.commit(5, partition=1)
    log.commit(7, producer=1)
    assert log.offsets.committed_spots("g") == [("t", 1)]
    assert log.offsets.all_spots("g") == [("t", 1), ("t", 0)]
    assert log.offsets.exists("g", ("t", 0))
    assert not log.offsets.exists("g", ("t", 2))
    assert list(log.offsets.groups()) == ["g"]


@pytest.mark.parametrize(
    ("stored", "gone", "found"), [(None, TOPIC_ID, 2), (TOPIC_ID, TOPIC_ID, 2), (OTHER_ID, TOPIC_ID, 0)]
)
def test_what_a_deleted_topic_leaves_behind(log: Log, stored, gone, found: int):
    log.commit(5, topic_id=stored)
    log.commit(5, topic="other", topic_id=stored)
    log.commit(7, producer=1, partition=1, topic_id=stored)
    assert len(log.offsets.of_topic("t", gone)) == found
    assert ("t", stored) in log.offsets.topics()


# -- expiry (KIP-211) -----------------------------------------------------------------------------------------------


def stable_group(*, kind: str = "consumer", metadata: bytes = subscription("subscribed")) -> ClassicGroup:
    lab = Lab()
    lab.stable(1, protocol_type=kind, protocols=(("range", metadata),))
    return lab.group


def preparing_group() -> ClassicGroup:
    lab = Lab()
    lab.preparing(1, protocols=(("range", subscription("subscribed")),))
    return lab.group


def empty_group(since_ms: int, kind: str | None) -> ClassicGroup:
    return ClassicGroup(
        "g",
        ClassicGroupConfig(),
        state=ClassicGroupState.EMPTY,
        state_since_ms=since_ms,
        protocol_type=kind,
        subscriptions=(),
    )


@pytest.mark.parametrize(
    ("group", "committed_ms", "expires_ms"),
    [
        # An empty group with a protocol type: counted from when it became empty.
        (empty_group(5_000, "consumer"), 0, 6_000),
        (empty_group(5_000, "connect"), 0, 6_000),
        (empty_group(5_000, "consumer"), 9_000, 6_000),
        # … or from the commit, if the group's record is too old to have that time.
        (empty_group(-1, "consumer"), 3_000, 4_000),
        # A group with offsets only: counted from the commit.
        (empty_group(5_000, None), 3_000, 4_000),
        (empty_group(-1, None), 3_000, 4_000),
        # A Stable group of consumers: topics without a subscription, counted from the commit.
        (stable_group(), 3_000, 4_000),
        (stable_group(metadata=subscription("t")), 3_000, None),
        (stable_group(metadata=b"garbage"), 3_000, None),
        # Any other group with members: never.
        (stable_group(kind="connect"), 3_000, None),
        (preparing_group(), 3_000, None),
    ],
)
def test_when_an_offset_expires(log: Log, group: ClassicGroup, committed_ms: int, expires_ms: int | None):
    log.commit(5, commit_timestamp_ms=committed_ms)
    wait_ms = None if expires_ms is None else expires_ms - 500
    assert log.offsets.expires_in_ms(group, at(500), RETENTION_MS) == wait_ms
    if expires_ms is None:
        assert log.offsets.expired(group, at(10**12), RETENTION_MS) == ([], False)
    else:
        assert log.offsets.expired(group, at(expires_ms - 1), RETENTION_MS) == ([], False)
        assert log.offsets.expired(group, at(expires_ms), RETENTION_MS) == ([("t", 0)], True)


@pytest.mark.parametrize("group", [empty_group(5_000, "consumer"), empty_group(-1, None), stable_group()])
def test_an_old_commit_says_itself_when_it_expires(log: Log, group: ClassicGroup):
    log.commit(5, commit_timestamp_ms=0, expire_timestamp_ms=70_000)
    assert log.offsets.expired(group, at(69_999), RETENTION_MS)[0] == []
    assert log.offsets.expired(group, at(70_000), RETENTION_MS)[0] == [("t", 0)]


def test_an_unstable_offset_does_not_expire(log: Log):
    log.commit(5)
    log.commit(6, partition=1)
    log.commit(7, producer=1)
    assert log.offsets.expired(empty_group(0, None), at(10**12), RETENTION_MS) == ([("t", 1)], False)


def test_nothing_is_left_of_a_group_without_offsets_unless_a_transaction_is_open(log: Log):
    group = empty_group(0, "consumer")
    assert log.offsets.expired(group, at(0), RETENTION_MS) == ([], True)
    log.commit(7, producer=1)
    assert log.offsets.expired(group, at(0), RETENTION_MS) == ([], False)


@pytest.mark.parametrize("committed", [True, False])
def test_all_offsets_of_a_transaction_have_its_verdict(log: Log, committed: bool):
    """The marker of a transaction decides all of its offsets, whatever their number and their groups."""
    for group in ("g", "h", "i"):
        log.commit(1, group=group)
        for partition in range(4):
            log.commit(5, producer=7, group=group, partition=partition)
    log.marker(7, committed=committed)
    for group in ("g", "h", "i"):
        found = [
            log.offsets.find(group, "t", partition, require_stable=True).committed for partition in range(4)
        ]
        offsets = [each.offset if each else None for each in found]
        assert offsets == ([5, 5, 5, 5] if committed else [1, None, None, None])
    assert log.offsets.pending_producers() == []
