"""Decisions of the share coordinator for one share partition, and the records that they write."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from broker.share.coordinator.state import ShareCoordinatorState, ShareRecord
from broker.share.state import Outcome, SharePartitionKey, StateBatch, StoredState
from protocol.errors import ErrorCode
from protocol.messages import initialize_share_group_state as initializing
from protocol.messages import read_share_group_state as reading
from protocol.messages import write_share_group_state as writing
from protocol.records.share_state_log import ShareSnapshotValue, ShareUpdateValue, decode_record

TOPIC_ID = uuid.UUID(int=3)
KEY = SharePartitionKey("g", TOPIC_ID, 0)
NOW_MS = 1_700_000_000_000
INVALID = ErrorCode.invalid_request


class Log:
    """A state, with the records that it has written."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.state = ShareCoordinatorState(updates_per_snapshot)
        self.records: list[ShareRecord] = []
        self.now_ms = NOW_MS

    def add(self, decided: Any) -> Any:
        """Append and replay a record. Returns its value, or the outcome of a decision without a record."""
        if isinstance(decided, Outcome):
            return decided
        self.state.replay(len(self.records), *decided)
        self.records.append(decided)
        return decided.value

    def initialize(self, epoch: int = 2, start: int = -1, key: SharePartitionKey = KEY, exists: bool = True):
        wanted = initializing.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
        return self.add(self.state.initialize(key, wanted, self.now_ms, exists=exists))

    def read(self, epoch: int = 0, key: SharePartitionKey = KEY, exists: bool = True):
        wanted = reading.PartitionData(partition=key.partition, leader_epoch=epoch)
        return self.add(self.state.read(key, wanted, self.now_ms, exists=exists))

    def write(
        self,
        start: int,
        count: int,
        *batches: tuple[int, int, int, int],
        epochs: tuple[int, int] = (2, 0),
        key: SharePartitionKey = KEY,
        exists: bool = True,
    ):
        """``epochs``: (state epoch, leader epoch)."""
        found = [
            writing.StateBatch(first_offset=a, last_offset=b, delivery_state=state, delivery_count=n)
            for a, b, state, n in batches
        ]
        wanted = writing.PartitionData(
            partition=key.partition,
            state_epoch=epochs[0],
            leader_epoch=epochs[1],
            start_offset=start,
            delivery_complete_count=count,
            state_batches=found,
        )
        return self.add(self.state.write(key, wanted, self.now_ms, exists=exists))

    def delete(self, key: SharePartitionKey = KEY, exists: bool = True):
        return self.add(self.state.delete(key, None, 0, exists=exists))

    def summarize(self, key: SharePartitionKey = KEY, exists: bool = True):
        return self.add(self.state.summarize(key, None, 0, exists=exists))

    def replayed(self, first: int = 0) -> ShareCoordinatorState:
        """A state rebuilt from the encoded records from offset ``first`` on."""
        state = ShareCoordinatorState(self.updates_per_snapshot)
        for offset, (key, value) in enumerate(self.records[first:], first):
            found = decode_record(key.encode(), None if value is None else value.encode(0))
            assert found is not None
            state.replay(offset, *found)
        return state


def plain(value: Any) -> tuple[Any, ...]:
    """(snapshot epoch, start offset, delivery complete count, batches) of a value."""
    assert isinstance(value, (ShareSnapshotValue, ShareUpdateValue))
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in value.state_batches
    ]
    return value.snapshot_epoch, value.start_offset, value.delivery_complete_count, batches


def test_a_life_as_recorded_on_kafka() -> None:
    """The writes of a leader, with a snapshot after four updates, as on Kafka 4.4.0."""
    log = Log(updates_per_snapshot=4)
    born = log.initialize(epoch=2, start=-1)
    assert plain(born) == (0, -1, -1, [])
    assert (born.state_epoch, born.leader_epoch, born.create_timestamp_ms) == (2, 0, NOW_MS)
    assert log.read(epoch=0).error == 0, "the epoch is the stored one"
    assert plain(log.write(0, 2, (0, 1, 2, 1))) == (0, 0, 2, [(0, 1, 2, 1)])
    assert plain(log.write(2, 1, (5, 5, 0, 1), (6, 6, 4, 1))) == (0, 2, 1, [(5, 5, 0, 1), (6, 6, 4, 1)])
    assert plain(log.write(2, 2, (5, 5, 2, 2))) == (0, 2, 2, [(5, 5, 2, 2)])
    assert plain(log.write(2, 4, (2, 3, 2, 1))) == (0, 2, 4, [(2, 3, 2, 1)])
    snapshot = log.write(4, 3, (4, 4, 2, 1))
    assert plain(snapshot) == (1, 4, 3, [(4, 4, 2, 1), (5, 5, 2, 2), (6, 6, 4, 1)])
    assert isinstance(snapshot, ShareSnapshotValue)
    assert plain(log.write(7, 3, (7, 9, 2, 1))) == (1, 7, 3, [(7, 9, 2, 1)])
    assert vars(log.replayed()) == vars(log.state)


def test_every_write_is_a_snapshot_with_a_limit_of_zero() -> None:
    log = Log(updates_per_snapshot=0)
    log.initialize()
    assert [log.write(0, n, (n, n, 2, 1)).snapshot_epoch for n in range(3)] == [1, 2, 3]


def test_an_initialization_does_not_reset_the_number_of_updates() -> None:
    log = Log(updates_per_snapshot=2)
    log.initialize()
    log.write(0, 1, (0, 0, 2, 1))
    log.initialize(start=0)
    log.write(0, 1, (0, 0, 2, 1))
    assert isinstance(log.write(0, 2, (1, 1, 2, 1)), ShareSnapshotValue)


def test_a_start_offset_does_not_go_back() -> None:
    log = Log()
    log.initialize(start=10)
    assert plain(log.write(5, 7, (5, 12, 2, 1))) == (0, 10, 0, [(10, 12, 2, 1)])
    assert plain(log.write(10, -1)) == (0, 10, 0, []), "the higher count of equal start offsets"
    assert plain(log.write(12, 1)) == (0, 12, 1, [])


def test_a_read_with_a_new_leader_epoch_fences_earlier_leaders() -> None:
    log = Log()
    log.initialize()
    log.write(0, 1, (1, 1, 2, 1), epochs=(2, 9))
    assert log.state.offsets[KEY].stored.leader_epoch == 0, "a write does not raise the epoch"
    raised = log.read(epoch=3)
    assert (raised.leader_epoch, plain(raised)) == (3, (0, 0, 1, []))
    assert log.write(0, 1, epochs=(2, 2)).error == ErrorCode.fenced_leader_epoch
    assert log.read(epoch=2).error == ErrorCode.fenced_leader_epoch
    assert log.state.offsets[KEY].stored == StoredState(2, 3, 0, 1, (StateBatch(1, 1, 2, 1),))
    log.initialize(epoch=3)
    assert log.state.offsets[KEY].stored.leader_epoch == 0
    assert log.read(epoch=2).error == ErrorCode.fenced_leader_epoch, "the highest epoch is not forgotten"


def test_an_older_state_epoch_is_fenced() -> None:
    log = Log()
    log.initialize(epoch=5)
    assert log.initialize(epoch=4).error == ErrorCode.fenced_state_epoch
    assert log.write(0, 0, epochs=(4, 0)).error == ErrorCode.fenced_state_epoch
    assert plain(log.initialize(epoch=5, start=7)) == (1, 7, 0, [])


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda log: log.initialize(key=KEY._replace(partition=-1)), INVALID, "The partition id cannot be"),
        (lambda log: log.initialize(epoch=-1), INVALID, "The state epoch cannot be a negative number."),
        (lambda log: log.initialize(exists=False), 3, "This server does not host"),
        (lambda log: log.read(epoch=-1), INVALID, "The leader epoch cannot be a negative number."),
        (lambda log: log.read(), INVALID, "Read operation on uninitialized share partition not allowed."),
        (lambda log: log.write(0, 0, epochs=(0, -1)), INVALID, "The leader epoch cannot be"),
        (lambda log: log.write(0, 0, epochs=(-1, 0)), INVALID, "The state epoch cannot be"),
        (lambda log: log.write(0, 0), INVALID, "Write operation on uninitialized share partition"),
        (lambda log: log.write(0, 0, exists=False), INVALID, "Write operation on uninitialized"),
        (lambda log: log.delete(exists=False), 3, "This server does not host this topic-partition."),
        (lambda log: log.summarize(key=KEY._replace(partition=-1)), INVALID, "The partition id cannot be"),
    ],
)
def test_refusals(ask, error, message) -> None:
    log = Log()
    outcome = ask(log)
    assert outcome.error == error
    assert outcome.message.startswith(message)
    assert not log.records


def test_a_batch_that_ends_before_it_begins() -> None:
    log = Log()
    log.initialize()
    assert log.write(0, 1, (0, 1, 2, 1), (5, 1, 2, 1)).error == ErrorCode.unknown_server_error
    assert log.state.offsets[KEY].stored.batches == ()


def test_an_initialized_share_partition_of_a_deleted_topic() -> None:
    log = Log()
    log.initialize()
    assert {ask(exists=False).error for ask in (log.initialize, log.read, log.delete, log.summarize)} == {3}
    assert log.write(0, 0, exists=False).error == 3


def test_a_tombstone_removes_everything() -> None:
    log = Log()
    assert log.delete().error == 0, "nothing to delete"
    log.initialize(epoch=7)
    log.read(epoch=4)
    assert log.delete() is None
    log.state.replay(9, *log.records[0])
    fresh = Log()
    fresh.state.replay(9, *log.records[0])
    assert vars(log.state) == vars(fresh.state)


def test_cold_share_partitions_get_a_new_snapshot() -> None:
    log = Log()
    log.initialize()
    log.write(0, 1, (0, 0, 2, 1))
    log.now_ms += 1000
    other = KEY._replace(partition=1)
    log.initialize(key=other)
    [cold] = log.state.cold_snapshots(lambda written_ms: written_ms <= NOW_MS, log.now_ms)
    value = log.add(cold)
    assert plain(value) == (1, 0, 1, [(0, 0, 2, 1)])
    assert (value.create_timestamp_ms, value.write_timestamp_ms) == (NOW_MS, NOW_MS + 1000)
    assert log.state.deletable_offset() == 2, "the snapshot of the other share partition"
    [colder] = log.state.cold_snapshots(lambda written_ms: True, log.now_ms + 1)[1:]
    log.add(colder)
    assert log.state.deletable_offset() == 3
    assert log.state.cold_snapshots(lambda written_ms: True, log.now_ms + 2) == []


def test_random_histories_are_rebuilt_from_their_records() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        log = Log(updates_per_snapshot=rng.choice((0, 1, 3, 500)))
        keys = [KEY._replace(partition=index) for index in range(3)]
        for _ in range(60):
            key = rng.choice(keys)
            log.now_ms += rng.randrange(1000)
            log_start = rng.randrange(20)
            batches = [
                (first, first + rng.randrange(4), rng.choice((0, 2, 3, 4)), rng.randrange(1, 4))
                for first in rng.sample(range(30), 2)
            ]
            act = rng.randrange(10)
            if act == 0:
                log.initialize(epoch=rng.randrange(4), start=rng.choice((-1, -5, log_start)), key=key)
            elif act == 1:
                log.read(epoch=rng.randrange(4), key=key)
            elif act == 2:
                log.delete(key=key)
            elif act == 3:
                for record in log.state.cold_snapshots(lambda written_ms: written_ms % 2 == 0, log.now_ms):
                    log.add(record)
            else:
                log.write(
                    log_start,
                    rng.randrange(-1, 5),
                    *batches,
                    epochs=(rng.randrange(4), rng.randrange(4)),
                    key=key,
                )
        assert vars(log.replayed()) == vars(log.state), seed
        # After pruning, a new coordinator has the same states.
        assert log.replayed(log.state.deletable_offset()).offsets == log.state.offsets, seed
