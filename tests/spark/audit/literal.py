"""Logs and coordinators written by hand, as rows of the tables of ``odradek.segments``.

    world = World()
    log = world.log("orders", 0)
    log.data(7, epoch=0, sequence=0, records=3)
    log.marker(7, epoch=1, outcome="commit")

Times are milliseconds after ``EPOCH``. Each batch is a second later than the one before it, unless a time is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from odradek.spark.segments import schemas
from odradek.spark.segments.reading import ZERO_TAIL

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
DIRECTORY = "/data"
COPIED = "/copied"
"""A directory that contains only partition directories, without checkpoint files."""
STOPPED = "/stopped"
"""The log directory of a broker that was stopped cleanly; the brokers of all other log directories were killed."""
SIZE = 100
SEQUENCES = 1 << 31

Row = tuple[Any, ...]


def at(ms: int | None) -> datetime | None:
    return None if ms is None else EPOCH + timedelta(milliseconds=ms)


def row(schema: Any, **values: Any) -> Row:
    unknown = set(values) - set(schema.fieldNames())
    assert not unknown, unknown
    return tuple(values.get(name) for name in schema.fieldNames())


class Log:
    """One replica, written batch by batch."""

    def __init__(self, world: World, topic: str, partition: int, log_dir: str, start: int) -> None:
        self.world, self.topic, self.partition, self.log_dir = world, topic, partition, log_dir
        self.offset, self.position, self.segment = start, 0, start
        self.leader_epoch = 0

    def _put(self, length: int, time_ms: int | None, **values: Any) -> int:
        base = self.offset
        time = self.world.tick() if time_ms is None else time_ms
        self._row(
            base_offset=base,
            last_offset=base + length - 1,
            leader_epoch=self.leader_epoch,
            records=values.pop("records", length),
            timestamp=at(time),
            max_timestamp=at(time),
            size_bytes=SIZE,
            **values,
        )
        self.offset += length
        return base

    def _row(self, **values: Any) -> None:
        self.world.batches.append(
            row(
                schemas.BATCHES,
                log_dir=self.log_dir,
                topic=self.topic,
                partition=self.partition,
                file=f"{self.segment:020d}.log",
                position=self.position,
                codec="none",
                timestamp_type="CreateTime",
                **values,
            )
        )
        self.position += SIZE

    def data(
        self,
        producer: int,
        epoch: int = 0,
        sequence: int = 0,
        length: int = 1,
        *,
        transactional: bool = True,
        time_ms: int | None = None,
        records: int | None = None,
    ) -> int:
        """Write a batch of a producer; return its base offset.

        ``records``: the number of records that compaction has left in the batch; None for one per offset.
        """
        last = (sequence + length - 1) % SEQUENCES
        return self._put(
            length,
            time_ms,
            records=length if records is None else records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            last_sequence=last,
            transactional=transactional,
            control=False,
        )

    def plain(self, length: int = 1) -> int:
        """Write a batch without a producer id."""
        no_producer = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "last_sequence": -1}
        return self._put(length, None, transactional=False, control=False, **no_producer)

    def marker(
        self, producer: int, epoch: int, outcome: str = "commit", *, time_ms: int | None = None
    ) -> int:
        return self._put(
            1,
            time_ms,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=-1,
            last_sequence=-1,
            transactional=True,
            control=True,
            marker=outcome,
            coordinator_epoch=0,
        )

    def damage(self, error: str = "the checksum of the batch is wrong", length: int = 1) -> int:
        """Write unreadable bytes in place of this number of offsets."""
        position = self.position
        self._row(error=error)
        self.offset += length
        return position

    def zeros(self, length: int = 0) -> int:
        """Write zero bytes behind the last batch, in place of this number of offsets."""
        return self.damage(f"1048576 {ZERO_TAIL}: preallocated, or never written", length)

    def skip(self, offsets: int) -> None:
        self.offset += offsets

    def roll(self) -> None:
        self.segment, self.position = self.offset, 0


@dataclass
class World:
    """Rows of the tables ``batches``, ``transaction_state`` and ``offsets``, and the contents of checkpoint files."""

    batches: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    cleaned: dict[tuple[str, int], int] = field(default_factory=dict)
    cleaned_elsewhere: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    """Cleaner checkpoints by log directory, except the first directory's, which is ``cleaned``."""
    created: dict[tuple[str, int], int] = field(default_factory=dict)
    """The partitions in the cluster metadata, with the time of their creation."""
    high_watermarks: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    recovery_points: dict[tuple[str, int], int] = field(default_factory=dict)
    _ms: itertools.count[int] = field(default_factory=lambda: itertools.count(1000, 1000))
    _producers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _coordinator: Log | None = None

    def tick(self) -> int:
        return next(self._ms)

    def producer(self) -> int:
        """A new producer id."""
        return next(self._producers)

    def log(self, topic: str, partition: int = 0, *, log_dir: str = DIRECTORY, start: int = 0) -> Log:
        return Log(self, topic, partition, log_dir, start)

    def remove(self, log: Log) -> None:
        """Remove the partition of ``log`` with all of its replicas."""
        self.batches[:] = [each for each in self.batches if each[1:3] != (log.topic, log.partition)]

    @property
    def coordinator(self) -> Log:
        if self._coordinator is None:
            self._coordinator = self.log("__transaction_state")
        return self._coordinator

    def state(
        self,
        transactional_id: str,
        producer: int,
        epoch: int,
        state: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        version: int = 2,
    ) -> int:
        """Write a record of the coordinator to ``__transaction_state``; return its offset."""
        time = self.tick()
        log = self.coordinator
        position = log.position
        offset = log._put(
            1,
            time,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            last_sequence=-1,
            transactional=False,
            control=False,
        )
        self.states.append(
            row(
                schemas.TRANSACTION_STATE,
                log_dir=DIRECTORY,
                partition=0,
                offset=offset,
                timestamp=at(time),
                transactional_id=transactional_id,
                producer_id=producer,
                producer_epoch=epoch,
                previous_producer_id=-1,
                next_producer_id=-1,
                transaction_timeout_ms=60_000,
                state=state,
                partitions=None
                if partitions is None
                else [{"topic": topic, "partition": index} for topic, index in partitions],
                last_update=at(time),
                start=at(None if state == "Empty" else time),
                client_transaction_version=version,
                tombstone=False,
                file=f"{0:020d}.log",
                position=position,
            )
        )
        return offset

    def transaction(
        self,
        name: str,
        producer: int,
        epoch: int,
        logs: Sequence[Log],
        outcome: str = "commit",
        *,
        version: int = 2,
        sequence: int = 0,
        stop_after: str = "Complete",
        unmarked: Sequence[Log] = (),
        marked_otherwise: Sequence[Log] = (),
    ) -> dict[Log, tuple[int, int | None]]:
        """Write one transaction as a broker does; return the offsets of its data and its marker (or None) per log.

        ``stop_after``: the coordinator's last state, "Ongoing", "Prepare" or "Complete". ``unmarked`` logs lack
        their marker; ``marked_otherwise`` logs have a marker of the other outcome.
        """
        partitions = [(log.topic, log.partition) for log in logs]
        end_epoch = epoch + 1 if version >= 2 else epoch
        self.state(name, producer, epoch, "Ongoing", partitions, version)
        data = {log: log.data(producer, epoch, sequence, 2) for log in logs}
        for log in logs:
            if log.topic == "__consumer_offsets":
                self.commits(log, data[log], producer, epoch)
        if stop_after == "Ongoing":
            return {log: (offset, None) for log, offset in data.items()}
        kind = outcome.capitalize()
        self.state(name, producer, end_epoch, f"Prepare{kind}", partitions, version)
        other = "abort" if outcome == "commit" else "commit"
        markers: dict[Log, int | None] = {}
        for log in logs:
            said = other if log in marked_otherwise else outcome
            markers[log] = None if log in unmarked else log.marker(producer, end_epoch, said)
        if stop_after == "Complete":
            self.state(name, producer, end_epoch, f"Complete{kind}", [], version)
        return {log: (data[log], markers[log]) for log in logs}

    def commits(self, log: Log, offset: int, producer: int, epoch: int) -> None:
        """Add a row of the table ``offsets``: the record at this offset commits a group's offset in a transaction."""
        self.offsets.append(
            row(
                schemas.OFFSETS,
                log_dir=log.log_dir,
                log_partition=log.partition,
                offset=offset,
                kind="offset",
                group="group",
                topic="input",
                partition=0,
                committed_offset=1,
                producer_id=producer,
                producer_epoch=epoch,
                transactional=True,
                control=False,
                tombstone=False,
            )
        )

    def begin(self, name: str, version: int = 2) -> int:
        """Initialise a transactional id; return its producer id."""
        producer = self.producer()
        self.state(name, producer, 0, "Empty", None, version)
        return producer
