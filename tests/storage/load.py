"""A load for logs, and checks that must hold afterwards, whatever failures came in between.

The load has producers without ids, idempotent producers that retry what was not acknowledged, and transactions over all
logs. The value of each batch contains its producer and its number, so that lost and duplicated batches are noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from protocol.batch import EndTxnMarker, RecordBatch, end_txn_marker, parse_end_txn_marker
from storage.checkpoints import read_offsets, write_offsets
from storage.config import LogConfig
from storage.directory import RECOVERY_POINTS
from storage.log import Log
from storage.producers import ProducerStateManager
from storage.recovery import open_log
from tests.storage.logs import NOW_MS, contents, data, options
from tests.support.batches import stored

PARTITIONS = 3
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=200)
_ACKNOWLEDGED = struct.Struct(">iqqIqq")
ACKNOWLEDGED_BYTES = _ACKNOWLEDGED.size


class Acknowledged(NamedTuple):
    """A batch whose append was acknowledged."""

    partition: int
    base_offset: int
    last_offset: int
    crc: int
    producer_id: int
    number: int
    """Number of the idempotent producer's batch in this partition, -1 for other producers."""

    def encode(self) -> bytes:
        return _ACKNOWLEDGED.pack(*self)

    @classmethod
    def decode(cls, content: bytes) -> list[Acknowledged]:
        """Decode all complete entries. The last entry may be incomplete if its writer was killed."""
        whole = len(content) // _ACKNOWLEDGED.size * _ACKNOWLEDGED.size
        return [cls(*row) for row in _ACKNOWLEDGED.iter_unpack(content[:whole])]


def path_of(root: Path, partition: int) -> Path:
    return root / f"orders-{partition}"


def open_logs(root: Path, *, clean: bool = False, config: LogConfig = CONFIG) -> list[Log]:
    """Open the logs of a directory as a broker does, after a crash or a clean stop."""
    points = read_offsets(root / RECOVERY_POINTS)
    return [
        open_log(
            path_of(root, partition),
            options(clean, config=config, recovery_point=points.get(("orders", partition), 0)),
        ).log
        for partition in range(PARTITIONS)
    ]


class Flush:
    """A sync of everything that is in the logs now, with a checkpoint of what earlier flushes have synced.

    ``run`` may run in another thread. Call ``finish`` after ``run``.
    """

    def __init__(self, root: Path, logs: list[Log], *, sealed_only: bool = False) -> None:
        self._root = root
        self._logs = logs
        self._points = {("orders", index): log.recovery_point for index, log in enumerate(logs)}
        self._ends = [log.log_end_offset for log in logs]
        self._targets = [segment for log in logs if log.exists for segment in log.flush_targets()]
        if sealed_only:
            self._ends = [log.active.base_offset if log.exists else 0 for log in logs]
            active = [log.active for log in logs if log.exists]
            self._targets = [segment for segment in self._targets if segment not in active]

    def run(self) -> None:
        write_offsets(self._root / RECOVERY_POINTS, self._points)
        for segment in self._targets:
            segment.sync()

    def finish(self) -> None:
        for log, end in zip(self._logs, self._ends, strict=True):
            log.flushed_up_to(end)


@dataclass
class Load:
    """The appends of clients, one batch in each ``step``. ``tell`` is called with each acknowledged batch."""

    logs: list[Log]
    rng: Random
    tell: Callable[[Acknowledged], object]
    next_numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """The number of the next batch, by (producer id, partition). A batch is sent again until it is acknowledged."""
    made: int = 0

    def step(self) -> None:
        partition = self.rng.randrange(len(self.logs))
        kind = self.rng.randrange(8)
        if kind < 2:
            self.append(partition)
        elif kind < 5:
            self._append_idempotent(partition, self.rng.choice(IDEMPOTENT))
        elif kind < 7:
            self._append_transactional(partition, self.rng.choice(TRANSACTIONAL))
        else:
            self.end(self.rng.choice(TRANSACTIONAL), committed=self.rng.random() < 0.5)

    def append(self, partition: int) -> None:
        """Append a batch of a producer without an id."""
        self._append(partition, self._data(-1, self.made))

    def _data(self, producer_id: int, number: int) -> RecordBatch:
        self.made += 1
        name = f"{producer_id} {number} {self.rng.getrandbits(64):x} "
        return data(
            self.rng.randint(1, 3),
            producer=(producer_id, 0, number) if producer_id >= 0 else (-1, -1, -1),
            transactional=producer_id >= 0,
            timestamp_ms=NOW_MS + self.rng.randint(-1000, 1000),
            value=name.encode() + bytes(self.rng.choice((0, 50, 300, 2000))),
        )

    def _append(self, partition: int, batch: RecordBatch, number: int = -1) -> None:
        base_offset = self.logs[partition].append_data(batch, 0, NOW_MS, batch.max_timestamp)
        self._tell(partition, base_offset, batch, number)

    def _tell(self, partition: int, base_offset: int, batch: RecordBatch, number: int = -1) -> None:
        last_offset = base_offset + batch.last_offset_delta
        self.tell(Acknowledged(partition, base_offset, last_offset, batch.crc, batch.producer_id, number))

    def _append_idempotent(self, partition: int, producer_id: int) -> None:
        number = self.next_numbers.get((producer_id, partition), 0)
        # A retry must have the same bytes, so its value does not depend on the random generator.
        value = f"{producer_id} {number} {partition} ".encode() + bytes(number * 37 % 700)
        batch = data(1 + number % 3, producer=(producer_id, 0, _sequence(number)), value=value)
        known = self.logs[partition].producers.duplicate_of(batch)
        if known is None:
            entry = self.logs[partition].producers.entries.get(producer_id)
            assert number == 0 or (entry is not None and entry.last_sequence == batch.base_sequence - 1), (
                number
            )
            self._append(partition, batch, number)
        else:
            self._tell(partition, known.first_offset, batch, number)
        self.next_numbers[producer_id, partition] = number + 1

    def _append_transactional(self, partition: int, producer_id: int) -> None:
        entry = self.logs[partition].producers.entries.get(producer_id)
        sequence = entry.last_sequence + 1 if entry is not None else 0
        self._append(partition, self._data(producer_id, sequence))

    def end(self, producer_id: int, *, committed: bool) -> None:
        for partition, log in enumerate(self.logs):
            if log.producers.has_open_transaction(producer_id, 0):
                made = RecordBatch.parse(
                    end_txn_marker(
                        producer_id, 0, committed=committed, coordinator_epoch=0, timestamp_ms=NOW_MS
                    )
                )
                offset = log.append_marker(made, EndTxnMarker(committed, 0), 0, NOW_MS)
                self._tell(partition, offset, made)


def _sequence(number: int) -> int:
    """The base sequence of the batch with this number, if batches have one, two, three, one, two, ... records."""
    return number // 3 * 6 + (0, 1, 3)[number % 3]


def next_numbers(acknowledged: Iterable[Acknowledged]) -> dict[tuple[int, int], int]:
    """The number of each idempotent producer's first unacknowledged batch, by (producer id, partition).

    A producer without an acknowledged batch in a partition has no entry for the partition.
    """
    following: dict[tuple[int, int], int] = {}
    for one in acknowledged:
        if one.number >= 0:
            key = (one.producer_id, one.partition)
            following[key] = max(following.get(key, 0), one.number + 1)
    return following


# -- checks -------------------------------------------------------------------------------------------------------


def check(logs: list[Log], acknowledged: Iterable[Acknowledged]) -> None:
    """Check that each acknowledged batch is there once, in order, with its CRC, and that all other files of a log agree with
    its batches."""
    found = [check_log(log) for log in logs]
    for one in acknowledged:
        assert found[one.partition].get(one.base_offset) == (one.last_offset, one.crc), one


def check_log(log: Log) -> dict[int, tuple[int, int]]:
    """Check that a log is consistent. Returns (last offset, CRC) of its batches by base offset."""
    batches: dict[int, tuple[int, int]] = {}
    makers = set()
    end_offset = log.log_start_offset
    for batch in log.batches():
        assert batch.has_valid_crc()
        assert batch.base_offset == end_offset
        end_offset = batch.last_offset + 1
        batches[batch.base_offset] = (batch.last_offset, batch.crc)
        if not batch.is_control:
            maker = b" ".join((next(iter(batch.records())).value or b"").split(b" ")[:3])
            assert maker not in makers, maker
            makers.add(maker)
    assert log.log_end_offset == end_offset
    check_producers(log)
    return batches


def check_producers(log: Log) -> None:
    """Check that the producer state and the aborted transactions equal those of a replay of all batches."""
    producers, aborted = ProducerStateManager(), []
    for batch in log.batches():
        marker = parse_end_txn_marker(batch) if batch.is_control else None
        if marker is not None:
            ended = producers.complete(
                batch.producer_id, batch.producer_epoch, marker, batch.base_offset, batch.max_timestamp
            )
            if ended is not None:
                aborted.append(ended)
        elif batch.producer_id >= 0:
            producers.update(batch, batch.base_offset, batch.max_timestamp)
    assert sorted(log.producers.snapshot(), key=lambda entry: entry.producer_id) == sorted(
        producers.snapshot(), key=lambda entry: entry.producer_id
    )
    assert list(log.producers.open_transactions()) == list(producers.open_transactions())
    listed = [entry for segment in log.segments for entry in segment.transaction_index.entries()]
    assert listed == aborted


def check_files(log: Log) -> None:
    """Close the log cleanly, and check each entry of its index files against the batches."""
    log.close(clean=True)
    logs, offsets, times = (contents(log.directory, suffix) for suffix in ("log", "index", "timeindex"))
    for base, content in logs.items():
        batches = list(stored(content))
        places = {(batch.last_offset - base, batch.position) for batch in batches}
        assert places.issuperset(struct.iter_unpack(">ii", offsets[base]))
        stamps = {(batch.max_timestamp_ms, batch.last_offset - base) for batch in batches}
        entries = list(struct.iter_unpack(">qi", times[base]))
        assert stamps.issuperset(entries)
        assert entries == sorted(set(entries))
        if batches:
            assert entries[-1][0] == max(stamps)[0]
