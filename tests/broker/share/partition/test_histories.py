"""Random histories of one share partition, compared with a model that has one entry for each record.

Each history is made by a seed, which is in the message of a failing test. After every step all records have the same state
in the share partition and in the model, and the offsets and counts agree. At the end another leader loads what was written:
it delivers every record that is not finished, and no other one.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from broker.share.partition import (
    Acknowledged,
    Change,
    DeadLetters,
    Fetched,
    InFlight,
    Limits,
    Refused,
    SharePartition,
)
from broker.share.settings import ShareGroupSettings
from broker.share.state import TERMINAL, RecordState, StateBatch, StoredState

HISTORIES = int(os.environ.get("ODRADEK_HISTORIES", "1000"))
CHUNKS = 20
STEPS = 40
MEMBERS = ("m1", "m2", "m3")
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
NEW_STATES = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED)


@dataclass
class Record:
    """The state of one record in the model."""

    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    expires_ms: int | None = None
    transition: int | None = None
    """Identity of the change that is being written."""
    former: tuple[str, int] = ("", 0)
    has_expired: bool = False
    is_final: bool = False

    @property
    def is_done(self) -> bool:
        return self.state in TERMINAL and self.transition is None

    def archive(self) -> None:
        self.state, self.member, self.is_final, self.expires_ms = ARCHIVED, "", True, None


@dataclass
class Model:
    """One share partition, record by record."""

    start: int = 0
    end: int = 0
    records: dict[int, Record] = field(default_factory=dict)

    def move_start(self) -> None:
        done = None
        for offset in sorted(self.records):
            if not self.records[offset].is_done:
                break
            done = offset
        if done is None:
            return
        rest = [offset for offset in self.records if offset > done]
        self.start = max(self.start, min(rest) if rest else done + 1)
        if not rest:
            self.end = self.start
        self.records = {offset: self.records[offset] for offset in rest}

    @property
    def span(self) -> int:
        return self.end - self.start + 1 if self.records else 0

    def available(self) -> list[int]:
        return sorted(o for o, r in self.records.items() if r.state is AVAILABLE and r.transition is None)

    def complete_count(self) -> int:
        return sum(
            offset >= self.start and record.state in TERMINAL for offset, record in self.records.items()
        )

    def leave(self, offset: int, state: RecordState, settings: ShareGroupSettings) -> StateBatch:
        """Change the state of an acquired record."""
        record = self.records[offset]
        if state is AVAILABLE and offset < self.start:
            state = ARCHIVED
        if state is AVAILABLE and record.count >= settings.delivery_count_limit:
            state = ARCHIVING if settings.dead_letter_topic else ARCHIVED
        record.state, record.member = state, ""
        return StateBatch(offset, offset, state, record.count)


class History:
    """The random steps of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.settings = ShareGroupSettings(
            record_lock_duration_ms=rng.choice([5, 20, 1000]),
            delivery_count_limit=rng.choice([2, 3, 5, 10]),
            partition_max_record_locks=rng.choice([10, 40, 1000]),
            dead_letter_topic=rng.choice(["", "dlq"]),
        )
        self.log: list[tuple[int, int]] = []
        self.aborted: set[tuple[int, int]] = set()
        self.partition, self.model = SharePartition(), Model()
        self.partition.load(StoredState(start_offset=0), self.settings)
        self.now_ms, self.log_end, self.log_start = 0, 0, 0
        self.pending: list[Change] = []
        self.sent: list[DeadLetters] = []
        self.stored: dict[int, tuple[int, RecordState]] = {}
        self.stored_start = 0

    def run(self) -> None:
        steps = [
            (self.append, 2),
            (self.fetch, 6),
            (self.acknowledge, 6),
            (self.finish_write, 6),
            (self.pass_time, 3),
            (self.release, 1),
            (self.archive_dead_letters, 2),
            (self.compact, 0.3),
            (self.move_log_start, 0.3),
        ]
        functions, weights = zip(*steps, strict=True)
        for step in self.rng.choices(functions, weights, k=STEPS):
            step()
            self.check()
        while self.pending:
            self.finish_write()
        self.check()
        self.check_next_leader()

    # -- steps --------------------------------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            size = self.rng.choice([1, 2, 3, 5, 9])
            self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size
            if self.rng.random() < 0.1:
                self.aborted.add(self.log[-1])

    def fetch(self) -> None:
        model, rng, locks_max = self.model, self.rng, self.settings.partition_max_record_locks
        if not model.available() and model.span >= locks_max:
            model.move_start()
        if not self.partition.can_acquire(locks_max):
            return
        offset, available, room = (
            self.partition.next_fetch_offset(),
            model.available(),
            locks_max - model.span,
        )
        found = [batch for batch in self.log if batch[1] >= offset][: rng.choice([1, 3, 100])]
        aborted = [batch for batch in found if batch in self.aborted]
        limits = Limits(rng.choice([1, 2, 7, 50]), rng.choice([0, 1, 4, 50]), rng.random() < 0.3)
        member, fetched = rng.choice(MEMBERS), Fetched(offset, found, aborted)
        acquired = self.partition.acquire(member, fetched, limits, self.settings, self.now_ms)
        if found and offset < found[0][0] and (room > 0 or offset <= model.end):
            self.archive_available(range(offset, found[0][0]))
        counts = {each: count for first, last, count in acquired for each in range(first, last + 1)}
        hidden = {each for first, last in aborted for each in range(first, last + 1)}
        beyond = self.take(member, counts, hidden)
        assert not hidden & set(counts)
        assert room > 0 or not beyond
        assert len(counts) <= limits.records_max or not limits.record_limit
        if found and offset in available and found[0][0] <= offset:
            assert offset in counts or offset in hidden
        limit = self.settings.delivery_count_limit
        assert len(counts) == 1 or limit == 2 or limit not in counts.values()

    def take(self, member: str, counts: dict[int, int], hidden: set[int]) -> set[int]:
        """Acquire records in the model, and archive those of aborted transactions. Return those beyond a record limit."""
        model, was_empty = self.model, not self.model.records
        for each, count in counts.items():
            self.acquire(each, member, count)
        for each in hidden:
            self.acquire_aborted(each)
        beyond = {each for each in self.views if each not in model.records and each >= model.start}
        for each in beyond:
            model.records[each] = Record()
        if model.records:
            model.start = min(model.records) if was_empty else model.start
            model.end = max(model.end, *model.records)
        return beyond

    def acquire(self, offset: int, member: str, count: int) -> None:
        record = self.model.records.setdefault(offset, Record())
        assert (record.state, record.transition) == (AVAILABLE, None)
        record.state, record.member, record.count = ACQUIRED, member, record.count + 1
        record.expires_ms = self.now_ms + self.settings.record_lock_duration_ms
        assert record.count == count

    def acquire_aborted(self, offset: int) -> None:
        """The record is archived at once if it was acquired, by this fetch or before."""
        seen, known = self.partition.describe(offset), self.model.records.get(offset)
        if seen is None or seen.state is not ARCHIVED or (known is not None and known.state in TERMINAL):
            return
        record = self.model.records.setdefault(offset, Record())
        assert record.state in (AVAILABLE, ACQUIRED)
        if record.state is AVAILABLE:
            record.count += 1
        record.archive()

    def acknowledge(self) -> None:
        model, rng = self.model, self.rng
        if not model.records:
            return
        member = rng.choice(MEMBERS)
        held = sorted(o for o, r in model.records.items() if r.member == member)
        offsets = held if held and rng.random() < 0.8 else sorted(model.records)
        batches = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            first = rng.choice(offsets)
            last = first + rng.choice([0, 0, 1, 4, 12])
            ends = held if first in held and rng.random() < 0.7 else model.records
            while last not in ends:
                last -= 1
            kinds = rng.choices([0, 1, 2, 3, 4], [1, 8, 5, 3, 2], k=last - first + 1)
            batches.append(Acknowledged(first, last, kinds if rng.random() < 0.3 else kinds[:1]))
        before = {offset: Record(**vars(record)) for offset, record in model.records.items()}
        expected: list[StateBatch] = []
        accepted = all(self.acknowledge_batch(member, batch, expected) for batch in batches)
        try:
            change = self.partition.acknowledge(member, batches, self.settings, self.now_ms)
        except Refused:
            assert not accepted
            for offset, record in before.items():
                record.expires_ms = model.records[offset].expires_ms
            model.records = before
            return
        assert accepted
        self.begin(change, expected)

    def acknowledge_batch(self, member: str, batch: Acknowledged, expected: list[StateBatch]) -> bool:
        model = self.model
        for offset in range(batch.first_offset, batch.last_offset + 1):
            record = model.records.get(offset)
            if offset < model.start or record is None:
                continue
            if record.state is not ACQUIRED or record.member != member:
                return False
            kind = batch.types[(offset - batch.first_offset) % len(batch.types)]
            if kind == 4:
                record.expires_ms = self.now_ms + self.settings.record_lock_duration_ms
                continue
            dead = kind == 3 and self.settings.dead_letter_topic
            record.former = (member, self.settings.delivery_count_limit)
            expected.append(model.leave(offset, ARCHIVING if dead else NEW_STATES[kind], self.settings))
            record.transition = 0
        return True

    def release(self) -> None:
        member = self.rng.choice(MEMBERS)
        expected = []
        for offset, record in sorted(self.model.records.items()):
            if record.state is ACQUIRED and record.member == member:
                record.former = (member, self.settings.delivery_count_limit)
                expected.append(self.model.leave(offset, AVAILABLE, self.settings))
                record.transition = 0
        change = self.partition.release(member, self.settings)
        assert (change is None) == (not expected)
        if change is not None:
            self.begin(change, expected)

    def begin(self, change: Change, expected: list[StateBatch]) -> None:
        """Check the states to write. The write is pending."""
        assert each_offset(change.batches) == sorted(expected)
        self.check_stored(change)
        for offset, *_ in expected:
            self.model.records[offset].transition = id(change)
        if change.batches:
            self.pending.append(change)

    def finish_write(self) -> None:
        """End one of the writes that are pending: it may fail."""
        if not self.pending:
            return
        model, change = self.model, self.pending.pop(self.rng.randrange(len(self.pending)))
        start, fails = model.start, self.rng.random() < 0.25
        if not fails:
            self.store(change)
        if not fails or not change.transitions:
            self.sent += change.dead_letters
        for offset, *_ in each_offset(change.batches):
            record = model.records.get(offset)
            if record is None or record.transition != id(change):
                continue
            record.transition = None
            member, limit = record.former
            if not fails or record.is_final:
                record.expires_ms = None
            elif record.has_expired:
                record.state = ARCHIVED if record.count >= limit or offset < model.start else AVAILABLE
                record.expires_ms, record.has_expired = None, False
            else:
                record.state, record.member = ACQUIRED, member
            record.has_expired = False
        if not fails or not change.transitions:
            model.move_start()
        moved = self.partition.roll_back(change) if fails else self.partition.commit(change)
        assert moved == (model.start > start)

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice([1, 4, 20, 1000])
        expected = []
        for offset, record in sorted(self.model.records.items()):
            if record.expires_ms is None or record.expires_ms > self.now_ms:
                continue
            if record.transition is not None:
                record.has_expired = True
            elif record.state is ACQUIRED:
                expected.append(self.model.leave(offset, AVAILABLE, self.settings))
                record.expires_ms = None
        change = self.partition.expire(self.now_ms, self.settings)
        assert (change is None) == (not expected)
        if change is not None:
            assert each_offset(change.batches) == sorted(expected)
            self.check_stored(change)
            self.pending.append(change)
        expires_ms = self.partition.next_expiry_ms()
        assert expires_ms is None or expires_ms > self.now_ms

    def archive_dead_letters(self) -> None:
        """The attempt to write a record to the dead-letter queue has ended."""
        if not self.sent:
            return
        letter = self.sent.pop(self.rng.randrange(len(self.sent)))
        for offset in range(letter.first_offset, letter.last_offset + 1):
            self.model.records[offset].archive()
        change = self.partition.archive([letter])
        assert change is not None
        self.check_stored(change)
        self.pending.append(change)

    def compact(self) -> None:
        if self.log:
            self.log.pop(self.rng.randrange(len(self.log)))

    def move_log_start(self) -> None:
        model = self.model
        offset = self.rng.randint(model.start, min(self.log_end, model.start + 15))
        self.log = [batch for batch in self.log if batch[1] >= offset]
        self.partition.advance_start(offset)
        if offset > model.start:
            self.archive_available(range(model.start, offset))
            model.start, model.end = offset, max(model.end, offset)

    # -- checks -------------------------------------------------------------------------------------------------

    def archive_available(self, offsets: range) -> None:
        model = self.model
        for offset in offsets:
            record = model.records.get(offset)
            if record is not None and record.state is AVAILABLE:
                record.archive()
        # As in Kafka, a batch of which a part is archived is split, and then the write of its release is not awaited.
        for offset, record in model.records.items():
            seen = self.partition.describe(offset) if record.transition is not None else None
            if seen is not None and not seen.in_transition and (record.state is AVAILABLE or record.is_final):
                record.transition = record.expires_ms = None

    @property
    def views(self) -> dict[int, InFlight]:
        """The states of all records in the share partition."""
        return {
            offset: each
            for each in self.partition.in_flight()
            for offset in range(each.first_offset, each.last_offset + 1)
        }

    def check_stored(self, change: Change) -> None:
        assert change.stored.start_offset == self.model.start
        assert change.stored.delivery_complete_count == self.model.complete_count()

    def store(self, change: Change) -> None:
        """Merge a write as the share coordinator does."""
        self.stored_start = max(self.stored_start, change.stored.start_offset)
        for offset, _, state, count in each_offset(change.batches):
            found = (count, RecordState(state))
            self.stored[offset] = max(self.stored.get(offset, found), found)

    def check(self) -> None:
        model, partition = self.model, self.partition
        assert (partition.start_offset, partition.end_offset) == (model.start, model.end)
        assert partition.delivery_complete_count == model.complete_count()
        seen = self.views
        assert {offset for offset in seen if offset >= model.start} == {
            o for o in model.records if o >= model.start
        }
        for offset, record in model.records.items():
            if offset < model.start:
                continue
            _, _, state, count, member, expires_ms, in_transition, *_ = seen[offset]
            assert (state, count) == (record.state, record.count), offset
            assert in_transition == (record.transition is not None), offset
            if state is ACQUIRED:
                assert (member, expires_ms) == (record.member, record.expires_ms), offset
        available = model.available()
        if not model.records or model.start > max(model.records):
            assert partition.next_fetch_offset() == model.end
        else:
            assert partition.next_fetch_offset() == (available[0] if available else model.end + 1)

    def check_next_leader(self) -> None:
        """Another leader delivers all records that are not finished, and no others."""
        stored = {o: found for o, found in self.stored.items() if o >= self.stored_start}
        batches = [StateBatch(o, o, state, count) for o, (count, state) in sorted(stored.items())]
        partition, settings = SharePartition(), self.settings
        state = StoredState(start_offset=self.stored_start, batches=batches)
        change = partition.load(state, settings)
        if change is not None:
            archived = partition.archive(change.dead_letters)
            assert archived is not None
            partition.commit(archived)
        finished = {o for o, (_, state) in stored.items() if state in (*TERMINAL, ARCHIVING)}
        delivered: set[int] = set()
        for _ in range(2 * self.log_end + 10):
            assert partition.can_acquire(settings.partition_max_record_locks)
            offset = partition.next_fetch_offset()
            found = [batch for batch in self.log if batch[1] >= offset][: self.rng.choice([1, 3])]
            if not found:
                break
            limits = Limits(self.rng.choice([1, 3, 50]), 50, self.rng.random() < 0.3)
            acquired = partition.acquire("m", Fetched(offset, found), limits, settings, self.now_ms)
            new = {each for first, last, _ in acquired for each in range(first, last + 1)}
            assert not new & (delivered | finished)
            delivered |= new
            partition.commit(
                partition.acknowledge(
                    "m", [Acknowledged(a, b, [1]) for a, b, _ in acquired], settings, self.now_ms
                )
            )
        in_log = {o for first, last in self.log for o in range(max(first, self.stored_start), last + 1)}
        assert delivered >= in_log - finished


def each_offset(batches: list[StateBatch]) -> list[StateBatch]:
    """State batches with one offset each."""
    return sorted(
        StateBatch(offset, offset, state, count)
        for first, last, state, count in batches
        for offset in range(first, last + 1)
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_histories(chunk: int) -> None:
    for seed in range(chunk, HISTORIES, CHUNKS):
        try:
            History(seed).run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
