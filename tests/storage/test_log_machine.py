"""A log driven at random beside a model in memory: appended to, rolled, killed, torn, truncated, read.

ODRADEK_LOG_EXAMPLES=5000 runs it for longer.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.batch import (
    EndTxnMarker,
    RecordBatch,
    batches,
    build_batch,
    end_txn_marker,
    parse_end_txn_marker,
)
from storage.config import LogConfig
from storage.index import AbortedTransaction
from storage.log import Log
from storage.recovery import OpenOptions, Recovered, open_log, truncate
from tests.storage.logs import NOW_MS, TOPIC_ID, assert_indexes_match_the_log, options

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
EXAMPLES = int(os.environ.get("ODRADEK_LOG_EXAMPLES", "200"))
# Recovery is not about the speed of a disk; memory is quicker where there is some.
ROOM = next((room for room in ("/dev/shm",) if os.access(room, os.W_OK)), None)


@dataclass(frozen=True)
class Written:
    """One batch of the model."""

    base: int
    times: tuple[int, ...]
    size: int
    producer: tuple[int, int, int] = (-1, -1, -1)
    transactional: bool = False
    committed: bool | None = None
    """Of a marker: which."""

    @property
    def last(self) -> int:
        return self.base + len(self.times) - 1


@dataclass
class Known:
    """What the model knows of one producer."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction: list[Written] = field(default_factory=list)

    def next_sequence(self) -> int:
        return self.last_sequence + 1


def producers_after(written: list[Written]) -> tuple[dict[int, Known], set[int]]:
    """The state of each producer, and the base offsets of aborted data batches."""
    known: dict[int, Known] = {}
    aborted: set[int] = set()
    for batch in written:
        producer_id, epoch, sequence = batch.producer
        if producer_id < 0:
            continue
        entry = known.setdefault(producer_id, Known())
        if epoch != entry.epoch:
            entry.epoch, entry.last_sequence, entry.last_offset, entry.delta = epoch, -1, -1, 0
        entry.timestamp = max(batch.times)
        if batch.committed is not None:
            entry.coordinator_epoch = 0
            if not batch.committed:
                aborted.update(data.base for data in entry.transaction)
            entry.transaction = []
            continue
        entry.last_sequence = sequence + len(batch.times) - 1
        entry.last_offset, entry.delta = batch.last, len(batch.times) - 1
        if batch.transactional:
            entry.transaction.append(batch)
    return known, aborted


def visible(content: bytes, aborted: list[AbortedTransaction]) -> list[int]:
    """What a read_committed consumer shows of these bytes: the client's own algorithm, by batches."""
    coming = sorted(aborted, key=lambda entry: entry.first_offset)
    active: set[int] = set()
    shown = []
    for batch in batches(content):
        while coming and coming[0].first_offset <= batch.last_offset:
            active.add(coming.pop(0).producer_id)
        if batch.is_control:
            marker = parse_end_txn_marker(batch)
            assert marker is not None
            if not marker.committed:
                active.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in active):
            shown.append(batch.base_offset)
    return shown


def opening(*, clean: bool = True, **changes: object) -> OpenOptions:
    """Timestamps of a few milliseconds make every log old: nothing expires here."""
    return options(clean, config=CONFIG, producer_id_expiration_ms=2**62, **changes)


TIMES = st.lists(st.integers(0, 40), min_size=1, max_size=3)
PRODUCERS = st.integers(1, 3)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="log-machine-", dir=ROOM))
        self.log = Log(self.home / "topic-0", TOPIC_ID, CONFIG)
        self.written: list[Written] = []
        self.start = self.end = 0
        # Producers whose batches lie below the log start may be forgotten, as in Kafka.
        self.exact = True

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
            shutil.rmtree(self.home)

    # -- writing ------------------------------------------------------------------------------------------------

    def _append(
        self, times: list[int], producer: tuple[int, int, int], *, transactional: bool = False
    ) -> None:
        records = [(time, b"k", bytes(20)) for time in times]
        producer_id, epoch, sequence = producer
        raw = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            compression=len(times) % 2,
        )
        base = self.log.append_data(RecordBatch.parse(raw), 0, NOW_MS, max(times))
        assert base == self.end
        self._wrote(Written(base, tuple(times), len(raw), producer, transactional))

    def _wrote(self, batch: Written) -> None:
        self.written.append(batch)
        self.end = batch.last + 1

    def _known(self, producer_id: int) -> Known:
        return producers_after(self.written)[0].get(producer_id, Known(epoch=0))

    @rule(times=TIMES)
    def append(self, times: list[int]) -> None:
        self._append(times, (-1, -1, -1))

    @rule(times=TIMES)
    def append_idempotent(self, times: list[int]) -> None:
        self._append(times, (9, 0, self._known(9).next_sequence()))

    @rule(times=TIMES, producer_id=PRODUCERS)
    def append_transactional(self, times: list[int], producer_id: int) -> None:
        known = self._known(producer_id)
        self._append(times, (producer_id, known.epoch, known.next_sequence()), transactional=True)

    @rule(producer_id=PRODUCERS, committed=st.booleans(), bump=st.booleans(), time=st.integers(0, 40))
    def end_transaction(self, producer_id: int, committed: bool, bump: bool, time: int) -> None:
        epoch = self._known(producer_id).epoch + bump
        raw = end_txn_marker(producer_id, epoch, committed=committed, coordinator_epoch=0, timestamp_ms=time)
        marker = EndTxnMarker(committed, 0)
        base = self.log.append_marker(RecordBatch.parse(raw), marker, 0, NOW_MS, 2 if bump else 0)
        assert base == self.end
        self._wrote(Written(base, (time,), len(raw), (producer_id, epoch, -1), True, committed))

    @precondition(lambda self: self.log.exists and self.log.active.size)
    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    # -- shortening ---------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share: float) -> None:
        self.start += int((self.end - self.start) * share * share)
        self.log.advance_log_start(self.start)
        self.exact = self.exact and self.start == 0

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, 0)
        truncate(self.log, offset, opening())
        self.written = [batch for batch in self.written if batch.last < offset]
        self.end, self.start = offset, min(self.start, offset)
        self._check_producers()

    # -- stopping and starting ----------------------------------------------------------------------------------

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
        self._check_producers()
        return recovered

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(clean=True)
        assert self._open(clean=True).scanned_bytes == 0

    @precondition(lambda self: self.log.exists)
    @rule(
        torn=st.integers(0, 250),
        garbage=st.binary(max_size=100) | st.integers(1, 200).map(bytes),
        share=st.floats(0, 1),
        lost=st.sets(st.sampled_from(["index", "timeindex", "txnindex"])),
    )
    def kill(self, torn: int, garbage: bytes, share: float, lost: set[str]) -> None:
        """The last segment loses bytes and gains others; index files of what is not flushed are gone."""
        log = self.log
        log.close(clean=False)
        active = log.active
        size = max(active.size - torn, 0)
        content = active.log.path.read_bytes()
        if garbage and size < len(content):
            # Zeros in the place of zeros would make the batch whole again.
            garbage = bytes([content[size] ^ 0xFF]) + garbage[1:]
        active.log.path.write_bytes(content[:size] + garbage)
        recovery_point = int(share * (active.base_offset + 1))
        for segment in log.segments[log.segment_index(recovery_point) :]:
            for path in segment.paths():
                if path.suffix[1:] in lost:
                    path.unlink(missing_ok=True)
        self._cut(active.base_offset, size)
        recovered = self._open(clean=False, recovery_point=recovery_point)
        if recovered.log.segments and self.written:
            self._check_indexes()

    def _cut(self, base: int, size: int) -> None:
        """Forget what the last segment lost."""
        position, kept = 0, []
        for batch in self.written:
            if batch.base >= base:
                position += batch.size
                if position > size:
                    break
            kept.append(batch)
        self.written = kept

    def _check_indexes(self) -> None:
        """A recovery from offset 0 writes every index anew; the folder is copied, to leave this one alone."""
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
                    assert entries[producer_id].epoch == state.epoch
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
        content = span.bytes()
        found = [(batch.base_offset, batch.last_offset) for batch in batches(content)]
        assert found
        assert found == [(batch.base, batch.last) for batch in expected[: len(found)]]
        assert len(content) <= max(max_bytes, expected[0].size)
        if committed:
            _, aborted = producers_after(self.written)
            shown = visible(content, self.log.aborted_transactions(offset, span))
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
                (batch.base + index, written)
                for batch in self.written
                for index, written in enumerate(batch.times)
                if written >= time and batch.base + index >= self.start
            ),
            None,
        )
        found = self.log.find_timestamp(time)
        assert (None if found is None else found[:2]) == expected

    # -- always -------------------------------------------------------------------------------------------------

    @invariant()
    def offsets_and_bytes_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.log_start_offset <= self._last_stable_offset() <= self.end
        assert self.log.size == sum(batch.size for batch in self.written)
        for segment in self.log.segments[:-1]:
            assert segment.size <= CONFIG.segment_bytes

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
