"""Random histories with repeated compactions and kills in between keep the records and the producer state that clients rely
on.

ODRADEK_LOG_EXAMPLES=5000 runs more examples.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.batch import EndTxnMarker, Record, RecordBatch, build_batch, end_txn_marker
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import OpenOptions, open_log
from tests.storage.compacting import compact, consumed, latest, part_of
from tests.storage.dying import survived
from tests.storage.logs import NOW_MS, TOPIC_ID, options
from tests.storage.test_log_machine import SCRATCH

CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, index_interval_bytes=150, delete_retention_ms=100
)
EXAMPLES = int(os.environ.get("ODRADEK_LOG_EXAMPLES", "100"))
KEYS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4)
PRODUCERS = st.integers(1, 3)


@dataclass(frozen=True)
class Written:
    """One record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int
    transaction: int
    """Number of the record's transaction; 0 if the record is in none."""


class CompactionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="compaction-machine-", dir=SCRATCH))
        self.log = Log(self.home / "topic-0", TOPIC_ID, CONFIG)
        self.log.create(NOW_MS)
        self.now_ms = NOW_MS
        self.checkpoint: int | None = None
        self.written: list[Written] = []
        self.open: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.transactions = 0
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.last: dict[int, RecordBatch] = {}
        """The last batch of each producer, as it was sent."""
        self.end = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
            shutil.rmtree(self.home)

    # -- writing ------------------------------------------------------------------------------------------------

    def _append(
        self, keys: list[tuple[int, bool]], producer_id: int = -1, *, transactional: bool = False
    ) -> None:
        transaction = 0
        if transactional:
            if producer_id not in self.open:
                self.transactions += 1
                self.open[producer_id] = self.transactions
            transaction = self.open[producer_id]
        records: list[tuple[int, bytes | None, bytes | None]] = []
        for key, has_value in keys:
            value = b"%d" % len(self.written) if has_value else None
            self.written.append(
                Written(self.end + len(records), b"k%d" % key, value, producer_id, transaction)
            )
            records.append((self.now_ms, b"k%d" % key, value))
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        raw = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
            compression=len(keys) % 2,
        )
        batch = RecordBatch.parse(raw)
        assert self.log.append_data(batch, 0, self.now_ms, batch.max_timestamp) == self.end
        self.end += len(records)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
            self.last[producer_id] = batch

    @rule(keys=KEYS)
    def append(self, keys: list[tuple[int, bool]]) -> None:
        self._append(keys)

    @rule(keys=KEYS, producer_id=st.integers(11, 12))
    def append_idempotent(self, keys: list[tuple[int, bool]], producer_id: int) -> None:
        self._append(keys, producer_id)

    @rule(keys=KEYS, producer_id=PRODUCERS)
    def append_transactional(self, keys: list[tuple[int, bool]], producer_id: int) -> None:
        self._append(keys, producer_id, transactional=True)

    @rule(producer_id=PRODUCERS, committed=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool, bump: bool) -> None:
        epoch = self.epochs.get(producer_id, 0) + bump
        raw = end_txn_marker(
            producer_id, epoch, committed=committed, coordinator_epoch=0, timestamp_ms=self.now_ms
        )
        marker = EndTxnMarker(committed, 0)
        self.log.append_marker(RecordBatch.parse(raw), marker, 0, self.now_ms)
        self.end += 1
        if bump:
            self.epochs[producer_id], self.sequences[producer_id] = epoch, 0
            self.last.pop(producer_id, None)
        transaction = self.open.pop(producer_id, 0)
        if transaction and not committed:
            self.aborted.add(transaction)

    @precondition(lambda self: self.log.active.size)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(delay_ms=st.sampled_from([1, 60, 101]))
    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms

    # -- compaction ---------------------------------------------------------------------------------------------

    @rule(keys_in_map=st.sampled_from([1, 3, 1000]), forgotten=st.booleans())
    def compact(self, keys_in_map: int, forgotten: bool) -> None:
        self._compact(keys_in_map, forgotten)

    def _compact(self, keys_in_map: int, forgotten: bool) -> None:
        if forgotten:
            self.checkpoint = None
        part = part_of(self.log, self.checkpoint, self.now_ms)
        if part.dirty_bytes:
            before = self.log.size
            end = compact(self.log, self.checkpoint, now_ms=self.now_ms, map_capacity=keys_in_map)
            assert end is not None
            assert part.first_dirty_offset < end <= part.upper_bound
            # A delete horizon takes up to eight more bytes in the timestamp deltas of records and markers.
            assert self.log.size <= before + 8 * self.end
            self.checkpoint = end

    @rule(calls=st.integers(0, 60), keys_in_map=st.sampled_from([3, 1000]), again=st.integers(0, 20))
    def die_while_compacting(self, calls: int, keys_in_map: int, again: int) -> None:
        checkpoint = self.checkpoint
        survived(lambda: self._compact(keys_in_map, forgotten=False), calls)
        self.checkpoint = checkpoint
        survived(lambda: self._open(clean=False), again)
        self._open(clean=False)

    @rule(clean=st.booleans(), snapshots=st.booleans())
    def restart(self, clean: bool, snapshots: bool) -> None:
        self.log.close(clean=clean)
        if not snapshots and not clean:
            # Then the producer state is rebuilt from the remaining batches.
            for path in self.log.directory.glob("*.snapshot"):
                path.unlink()
        self._open(clean=clean)

    def _open(self, *, clean: bool) -> None:
        self.log = open_log(self.log.directory, self._opening(clean=clean)).log

    def _opening(self, *, clean: bool) -> OpenOptions:
        return options(clean, config=CONFIG, now_ms=self.now_ms, producer_id_expiration_ms=2**62)

    # -- invariants ---------------------------------------------------------------------------------------------

    def _committed(self) -> list[Written]:
        """Records whose transaction was not aborted, including those of open transactions."""
        return [record for record in self.written if record.transaction not in self.aborted]

    @invariant()
    def offsets_stay(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (0, self.end)
        last = -1
        for batch in self.log.batches():
            assert batch.base_offset > last
            assert batch.has_valid_crc()
            last = batch.last_offset

    @invariant()
    def the_last_of_each_key_stays(self) -> None:
        if not hasattr(self, "log"):
            return
        written = {record.offset: record for record in self.written}
        seen = consumed(self.log, read_committed=False)
        for record in seen:
            assert (record.key, record.value) == (written[record.offset].key, written[record.offset].value)
        left = [record for record in seen if written[record.offset].transaction not in self.aborted]
        assert latest(left) == latest(_records(self._committed()))
        stable = self.log.producers.first_unstable_offset(self.end)
        assert stable == min(
            (record.offset for record in self.written if record.transaction in self.open.values()),
            default=None,
        )
        stable = self.end if stable is None else stable
        visible = [record for record in self._committed() if record.offset < stable]
        assert latest(consumed(self.log, read_committed=True)) == latest(_records(visible))

    @invariant()
    def repeats_are_recognised(self) -> None:
        if not hasattr(self, "log"):
            return
        for producer_id, batch in self.last.items():
            known = self.log.producers.duplicate_of(batch)
            assert known is not None, producer_id
            assert self.log.producers.entries[producer_id].last_sequence == batch.last_sequence


def _records(written: list[Written]) -> list[Record]:
    return [Record(record.offset, 0, record.key, record.value) for record in written]


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
