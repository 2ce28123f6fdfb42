"""Random operations on a log, compared with a model in memory. ODRADEK_LOG_EXAMPLES=5000 runs more examples."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.batch import EndTxnMarker, RecordBatch, batches, build_batch, end_txn_marker
from storage.config import LogConfig
from storage.files import remove_all
from storage.flush import Flush
from storage.log import Log
from storage.recovery import OpenOptions, Recovered, open_log, truncate
from tests.storage.compacting import compact
from tests.storage.dying import survived
from tests.storage.log_model import (
    PRODUCERS,
    RECORDS,
    Records,
    Written,
    content,
    is_left_of,
    latest,
    producers_after,
    survived_as,
    visible,
)
from tests.storage.logs import NOW_MS, TOPIC_ID, assert_indexes_match_the_log, options

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    delete_retention_ms=1000,
    cleanup_policy=("compact", "delete"),
)
EXAMPLES = int(os.environ.get("ODRADEK_LOG_EXAMPLES", "100"))
# The files are in memory if possible, as the disk does not matter here.
SCRATCH = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)


def opening(*, clean: bool = True, **changes: Any) -> OpenOptions:
    """Options with which no producer expires, as timestamps of a few milliseconds make every log look old."""
    return options(clean, config=CONFIG, producer_id_expiration_ms=2**62, **changes)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="log-machine-", dir=SCRATCH))
        self.log = Log(self.home / "topic-0", TOPIC_ID, CONFIG)
        self.written: list[Written] = []
        self.start = self.end = 0
        self.coordinator_epoch = 0
        self.now_ms = NOW_MS
        # False: producers whose batches are below the log start or compacted away may be missing, as in Kafka.
        self.exact = True
        self.recovery_point = 0
        # The base offset of the segment with the recovery point, and how many of its bytes are synced.
        self.synced = (0, 0)
        self.clean_up_to: int | None = None
        # Only committed batches are compacted, and no truncation goes below them.
        self.compacted_below = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
            shutil.rmtree(self.home)

    # -- writing ------------------------------------------------------------------------------------------------

    def _batch(
        self, records: Records, producer: tuple[int, int, int], *, transactional: bool = False
    ) -> RecordBatch:
        producer_id, epoch, sequence = producer
        return RecordBatch.parse(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
                compression=len(records) % 2,
            )
        )

    def _append(
        self, records: Records, producer: tuple[int, int, int], *, transactional: bool = False
    ) -> None:
        batch = self._batch(records, producer, transactional=transactional)
        base = self.log.append_data(batch, 0, self.now_ms, batch.max_timestamp)
        assert base == self.end
        self._wrote()

    def _wrote(self) -> None:
        """Add the last batch of the log to the model."""
        place = self.log.locate(self.log.log_end_offset - 1)
        assert place is not None
        data = place.segment.log.read(place.position, place.size)
        self.written.append(Written.of(RecordBatch.parse(data)))
        assert self.written[-1].base == self.end
        self.end = self.written[-1].last + 1

    def _next(self, producer_id: int) -> tuple[int, int]:
        """The epoch and sequence of the producer's next batch."""
        entry = self.log.producers.entries.get(producer_id)
        return (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)

    @rule(records=RECORDS)
    def append(self, records: Records) -> None:
        self._append(records, (-1, -1, -1))

    @rule(several=st.lists(RECORDS, min_size=4, max_size=10), producer_id=st.sampled_from([-1, -1, 1, 9]))
    def append_several(self, several: list[Records], producer_id: int) -> None:
        for records in several:
            if producer_id < 0:
                self.append(records)
            else:
                producer = (producer_id, *self._next(producer_id))
                self._append(records, producer, transactional=producer_id == 1)

    @rule(records=RECORDS)
    def append_idempotent(self, records: Records) -> None:
        self._append(records, (9, *self._next(9)))

    @rule(records=RECORDS, producer_id=PRODUCERS)
    def append_transactional(self, records: Records, producer_id: int) -> None:
        self._append(records, (producer_id, *self._next(producer_id)), transactional=True)

    @rule(records=RECORDS, producer_id=PRODUCERS)
    def append_in_the_next_epoch(self, records: Records, producer_id: int) -> None:
        """Append in the producer's next epoch, as after another InitProducerId, if its last transaction has ended."""
        known = producers_after(self.written)[0].get(producer_id)
        if known is not None and not known.transaction:
            self._append(records, (producer_id, known.epoch + 1, 0), transactional=True)

    @rule(producer_id=st.sampled_from([1, 2, 3, 9]))
    def repeat(self, producer_id: int) -> None:
        """Send a producer's last batch again: the log recognizes it as a duplicate after any other operations."""
        known = producers_after(self.written)[0].get(producer_id)
        entry = self.log.producers.entries.get(producer_id)
        if known is None or entry is None or known.epoch != entry.epoch or known.last_offset < self.start:
            return
        if known.last_sequence < 0:
            return
        first = known.last_sequence - known.delta
        again = self._batch([(0, b"a", None)] * (known.delta + 1), (producer_id, known.epoch, first))
        found = self.log.producers.duplicate_of(again)
        assert found is not None
        assert (found.first_offset, found.last_offset) == (known.last_offset - known.delta, known.last_offset)

    @rule(
        producer_id=PRODUCERS,
        committed=st.booleans(),
        bump=st.booleans(),
        moved=st.booleans(),
        time=st.integers(0, 40),
    )
    def end_transaction(self, producer_id: int, committed: bool, bump: bool, moved: bool, time: int) -> None:
        epoch = self._next(producer_id)[0] + bump
        self.coordinator_epoch += moved
        marker = EndTxnMarker(committed, self.coordinator_epoch)
        raw = end_txn_marker(
            producer_id,
            epoch,
            committed=committed,
            coordinator_epoch=self.coordinator_epoch,
            timestamp_ms=time,
        )
        base = self.log.append_marker(RecordBatch.parse(raw), marker, 0, self.now_ms)
        assert base == self.end
        self._wrote()

    @precondition(lambda self: self.log.exists and self.log.active.size)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @precondition(lambda self: self.log.exists)
    @rule()
    def flush(self) -> None:
        flush = Flush(self.log, whole=True)
        assert flush.run() is None
        flush.finish()
        self._note_synced()

    def _note_synced(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.synced = (self.log.active.base_offset, self.log.active.size)

    # -- truncation and retention -------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.start += int((self.end - self.start) * share * share)
        self.log.advance_log_start(self.start)
        self.exact = self.exact and self.start == 0

    @precondition(lambda self: self.log.exists)
    @rule(share=st.floats(0, 1))
    def drop_oldest(self, share: float) -> None:
        """Delete the oldest segments, as retention does."""
        count = int(len(self.log.segments) * share * share)
        if count == len(self.log.segments) and not self.log.active.size:
            count -= 1
        if count > 0:
            remove_all(self.log.drop_oldest(count, self.now_ms))
            first = self.log.segments[0].base_offset
            self.written = [batch for batch in self.written if batch.base >= first]
            self.start = max(self.start, first)
            self.exact = self.exact and self.start == 0

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self._truncate(self._back(back))
        self._check_producers()

    def _back(self, back: int) -> int:
        return min(max(self.end - back, self.compacted_below), self.end)

    def _truncate(self, offset: int) -> None:
        truncate(self.log, offset, opening())
        self.written = [batch for batch in self.written if batch.last < offset]
        self.end, self.start = offset, min(self.start, offset)
        self._forget_above(offset)

    def _forget_above(self, offset: int) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        if self.clean_up_to is not None:
            self.clean_up_to = min(self.clean_up_to, offset)
        if self.log.exists:
            active = self.log.active
            base, size = self.synced
            self.synced = (base, min(size, active.size)) if base == active.base_offset else (base, 0)

    # -- compacting ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.log.exists)
    @rule(later_ms=st.sampled_from([0, 0, 600, 2000]), capacity=st.sampled_from([2, 100]))
    def compact(self, later_ms: int, capacity: int) -> None:
        self.now_ms += later_ms
        before, stable, sequences = list(self.written), self._last_stable_offset(), self._sequences()
        if self._compact(capacity):
            self.written = content(self.log)
            self._check_compacted(before, stable, sequences)

    def _sequences(self) -> dict[int, tuple[int, int]]:
        """(sequence, offset) of the last record of each producer whose last record is in the log.

        Compaction keeps a producer's last batch. If that batch is truncated, the earlier one may be gone, as in
        Kafka.
        """
        known, _ = producers_after(self.written)
        return {
            producer_id: (entry.last_sequence, entry.last_offset)
            for producer_id, entry in self.log.producers.entries.items()
            if producer_id in known and self.start <= entry.last_offset == known[producer_id].last_offset
        }

    def _compact(self, capacity: int = 100) -> bool:
        self.compacted_below = self._last_stable_offset()
        end = compact(self.log, self.clean_up_to, now_ms=self.now_ms, map_capacity=capacity)
        if end is not None:
            self.clean_up_to = end
        return end is not None

    def _check_compacted(
        self, before: list[Written], stable: int, sequences: dict[int, tuple[int, int]]
    ) -> None:
        """Check the log after a compaction: each key has the same last committed value as in ``before``, no batch
        is new, and none has another offset or sequence."""
        assert list(is_left_of(before, self.written)) == []
        assert latest(self.written, stable) == latest(before, stable)
        untouched = [batch for batch in before if batch.base >= stable]
        assert [batch for batch in self.written if batch.base >= stable] == untouched
        known, _ = producers_after(self.written)
        for producer_id, sequence in sequences.items():
            assert (known[producer_id].last_sequence, known[producer_id].last_offset) == sequence
        self.exact = self.exact and self.written == before

    # -- stops, kills and starts --------------------------------------------------------------------------------

    def _open(self, *, clean: bool, recovery_point: int = 0) -> Recovered:
        segment_base = self.log.active.base_offset if self.log.exists else self.start
        if self.log.exists:
            self.end = max([segment_base, *(batch.last + 1 for batch in self.written)])
        if self.end < self.start:
            self.written, self.end = [], self.start
        recovered = open_log(
            self.log.directory,
            opening(clean=clean, recovery_point=recovery_point, log_start_offset=self.start),
        )
        self.log = recovered.log
        self._forget_above(self.end)
        self._check_producers()
        return recovered

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(clean=True)
        assert self._open(clean=True).scanned_bytes == 0
        if self.log.exists:
            self._note_synced()

    @precondition(lambda self: self.log.exists)
    @rule(
        torn=st.integers(0, 250),
        garbage=st.binary(max_size=100) | st.integers(1, 200).map(bytes),
        share=st.floats(0, 1),
        lost=st.sets(st.sampled_from(["index", "timeindex", "txnindex"])),
    )
    def kill(self, torn: int, garbage: bytes, share: float, lost: set[str]) -> None:
        """Kill the process: the last segment loses unsynced bytes and has garbage instead, and some index files are lost."""
        log = self.log
        log.close(clean=False)
        active = log.active
        synced = self.synced[1] if self.synced[0] == active.base_offset else 0
        size = max(active.size - torn, synced)
        data = active.log.path.read_bytes()
        if garbage and size < len(data):
            # A garbage byte that equals the lost byte could make the batch valid again.
            garbage = bytes([data[size] ^ 0xFF]) + garbage[1:]
        active.log.path.write_bytes(data[:size] + garbage)
        recovery_point = int(share * self.recovery_point)
        for segment in log.segments[log.segment_index(recovery_point) :]:
            for path in segment.paths():
                if path.suffix[1:] in lost:
                    path.unlink(missing_ok=True)
        self._cut(active.base_offset, size)
        recovered = self._open(clean=False, recovery_point=recovery_point)
        if recovered.log.segments and self.written:
            self._check_indexes()

    def _cut(self, base: int, size: int) -> None:
        """Remove from the model the batches that the last segment has lost."""
        position, kept = 0, []
        for batch in self.written:
            if batch.base >= base:
                position += batch.size
                if position > size:
                    break
            kept.append(batch)
        self.written = kept

    @precondition(lambda self: self.log.exists)
    @rule(
        what=st.sampled_from(["append", "end", "roll", "flush", "truncate", "drop", "compact", "stop"]),
        calls=st.integers(0, 3) | st.integers(0, 30),
        torn=st.integers(0, 200),
        records=RECORDS,
        producer_id=PRODUCERS,
        share=st.floats(0, 1),
    )
    def killed_in(
        self, what: str, calls: int, torn: int, records: Records, producer_id: int, share: float
    ) -> None:
        """Kill the process at one of the system calls of the operation ``what``. Its last write may be incomplete."""
        work: dict[str, Callable[[], object]] = {
            "append": lambda: self.append_transactional(records, producer_id),
            "end": lambda: self.end_transaction(producer_id, share < 0.5, False, share < 0.25, 7),
            "roll": self._roll,
            "flush": self.flush,
            "truncate": lambda: self._truncate(self._back(int(12 * share))),
            "drop": lambda: self.drop_oldest(share),
            "compact": self._compact,
            "stop": lambda: self.log.close(clean=True),
        }
        before, start, stable = list(self.written), self.start, self._last_stable_offset()
        sequences = self._sequences()
        done = survived(work[what], calls, torn)
        self.log.close(clean=False)
        recovered = open_log(
            self.log.directory,
            opening(clean=False, recovery_point=self.recovery_point, log_start_offset=start),
        )
        self.log = recovered.log
        self.written, self.end = content(self.log), self.log.log_end_offset
        self.start = self.log.log_start_offset
        if before and before[-1].last + 1 < start and not self.written:
            before = []  # a log whose end is below its start restarts empty at its start, like with Kafka's LogLoader
        if what == "compact":
            self._check_compacted(before, stable, sequences)
        else:
            assert survived_as(what, done, before, self.written)
        assert self.start >= start
        self._forget_above(self.end)
        self.exact = self.exact and self.start == 0
        self._check_producers()

    @rule(
        several=st.lists(RECORDS, min_size=8, max_size=12),
        producer_id=st.sampled_from([-1, 9]),
        calls=st.integers(0, 60),
    )
    def killed_compacting(self, several: list[Records], producer_id: int, calls: int) -> None:
        """Kill the process at a system call of a compaction. As a separate rule of Hypothesis, the case is frequent
        enough."""
        self.append_several(several, producer_id)
        self.killed_in("compact", calls, 0, several[0], 1, 0.0)

    def _roll(self) -> None:
        if self.log.active.size:
            self.log.roll(self.now_ms)

    def _check_indexes(self) -> None:
        """Check that a recovery from offset 0 rebuilds every index. The recovery runs on a copy of the directory, to keep
        this one unchanged."""
        copy = self.home / "copy-0"
        shutil.copytree(self.log.directory, copy)
        whole = replace(opening(clean=False), log_start_offset=self.start)
        recovered = open_log(copy, whole)
        assert recovered.cut_bytes == 0
        assert_indexes_match_the_log(recovered.log)
        recovered.log.close(clean=False)
        shutil.rmtree(copy)

    def _check_producers(self) -> None:
        known, _ = producers_after(self.written)
        entries = self.log.producers.entries
        if not self.exact:
            for producer_id, state in known.items():
                if state.last_offset >= self.start:
                    # The marker that has raised the epoch may have been compacted away.
                    assert entries[producer_id].epoch >= state.epoch
                    if entries[producer_id].epoch == state.epoch:
                        assert entries[producer_id].last_sequence == state.last_sequence
            return
        seen = {entry.producer_id: entry[1:] for entry in self.log.producers.snapshot()}
        assert seen == {
            producer_id: (
                state.epoch,
                state.last_sequence,
                state.last_offset,
                state.delta,
                state.timestamp,
                state.coordinator_epoch,
                state.transaction[0].base if state.transaction else -1,
            )
            for producer_id, state in known.items()
        }

    # -- reading ------------------------------------------------------------------------------------------------

    def _last_stable_offset(self) -> int:
        unstable = self.log.producers.first_unstable_offset(self.end)
        return self.end if unstable is None else max(min(unstable, self.end), self.start)

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 400), committed=st.booleans())
    def read(self, share: float, max_bytes: int, committed: bool) -> None:
        offset = self.start + int((self.end - self.start) * share)
        bound = self._last_stable_offset() if committed else self.end
        expected = [batch for batch in self.written if batch.last >= offset and batch.last < bound]
        span = self.log.read(offset, bound, max_bytes, whole_first_batch=True)
        if span is None:
            assert expected == []
            return
        data = span.bytes()
        found = [(batch.base_offset, batch.last_offset) for batch in batches(data)]
        assert found
        assert found == [(batch.base, batch.last) for batch in expected[: len(found)]]
        assert len(data) <= max(max_bytes, expected[0].size)
        if committed:
            _, aborted = producers_after(self.written)
            shown = visible(data, self.log.aborted_transactions(offset, span))
            wanted = [batch.base for batch in expected[: len(found)] if batch.committed is None]
            assert shown == [base for base in wanted if base not in aborted]

    @rule(share=st.floats(0, 1), bound_share=st.floats(0, 1))
    def count_bytes(self, share: float, bound_share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        bound = self.start + int((self.end - self.start) * bound_share)
        expected = [batch for batch in self.written if batch.last >= offset and batch.last < bound]
        assert self.log.bytes_between(offset, bound) == sum(batch.size for batch in expected)

    @rule(time=st.integers(0, 41))
    def find_timestamp(self, time: int) -> None:
        expected = next(
            (
                (record.offset, record.time)
                for batch in self.written
                for record in batch.records
                if record.time >= time and record.offset >= self.start
            ),
            None,
        )
        found = self.log.find_timestamp(time)
        assert (None if found is None else found[:2]) == expected

    # -- invariants ---------------------------------------------------------------------------------------------

    @invariant()
    def offsets_and_bytes_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.log_start_offset <= self._last_stable_offset() <= self.end
        assert self.log.size == sum(batch.size for batch in self.written)
        if not self.compacted_below:  # a delete horizon may make a batch longer than it was
            assert all(segment.size <= CONFIG.segment_bytes for segment in self.log.segments[:-1])

    @invariant()
    def an_open_transaction_holds_readers_back(self) -> None:
        if not hasattr(self, "log"):
            return
        known, _ = producers_after(self.written)
        still_there = [
            batch.base for state in known.values() for batch in state.transaction if batch.last >= self.start
        ]
        assert self._last_stable_offset() <= max(min(still_there, default=self.end), self.start)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
