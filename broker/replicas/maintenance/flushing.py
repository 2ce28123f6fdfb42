"""fsync in the background, and the checkpoints that say what is on the disk: what a crash leaves to recover is bounded.

Four reasons to sync a partition: a segment was sealed (as in Kafka), ``flush.messages``, ``flush.ms``, and every
``odradek.background.flush.interval.ms`` whatever was written since. Kafka leaves the last to the operating system, and
looks at ``flush.ms`` only every ``log.flush.scheduler.interval.ms``, which by default is never: there a topic's
``flush.ms`` has no effect unless the broker's setting allows it. A user who sets ``flush.ms`` wants it, so here a
timer runs from the first record that is not on the disk.

One sync of a partition runs at a time: the operating system tells of lost pages once, and a second sync beside the one
that is told would take them for written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain, Periodic, Timer
from broker.injection.points import FaultInjection, InjectionPoint
from broker.logging import get_logger
from broker.replicas.partition.listeners import PartitionListener
from protocol.errors import ErrorCode
from storage.checkpoints import OffsetCheckpoint, write_rows
from storage.config import NEVER
from storage.directory import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, LogDirectory, PartitionKey
from storage.files import StorageError, remove
from storage.flush import Flush
from storage.log import Log
from storage.segment import Segment, file_name

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition

log_events = get_logger()

PARTITIONS_AT_ONCE: Final = 32
"""How many partitions are handed to the thread in one go: what the loop does for them takes about a millisecond."""
SNAPSHOT_BYTES: Final = 32 * 1024 * 1024
"""How much of a log a recovery may have to read again for its producers."""
SNAPSHOTS_KEPT: Final = 2
"""Inside of a segment, for the recovery point that is checkpointed and for the one that is not yet."""

InBackground = Callable[[Callable[[], None]], "asyncio.Future[None]"]


@dataclass(slots=True, eq=False)
class _Sync:
    """One partition's flush on its way through a thread."""

    partition: Partition
    flush: Flush
    began_ms: int
    error: StorageError | None = None

    def run(self) -> None:
        self.error = self.flush.run()


class Flushing(PartitionListener["Partition"]):
    """What is on the disk for good: of each partition the recovery point, and the files that tell it."""

    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        clock: Clock,
        in_background: InBackground,
        *,
        injection: FaultInjection | None = None,
        node_id: int = -1,
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._in_background = in_background
        self._injection = injection or FaultInjection()
        self._node_id = node_id
        self._checkpoints = {
            name: OffsetCheckpoint(_read_checkpoint(directory, name))
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
        }
        self._dirty: dict[Partition, None] = {}
        """What the next round looks at."""
        self._round: dict[Partition, None] = {}
        """What is left of this one."""
        self._running: dict[Partition, _Sync] = {}
        self._again: dict[Partition, bool] = {}
        """Asked for while a sync was running; whether the active segment is wanted too."""
        self._deadlines: dict[Partition, Timer] = {}
        self._snapshots: dict[Partition, deque[int]] = {}
        self._snapshot_at: dict[Partition, tuple[Segment, int]] = {}
        self._unchecked: dict[Partition, None] = {}
        """Whose high watermark has moved since it was last noted."""
        self._timers: list[Timer] = []
        self._round_goes_on = False
        self._closed = False
        self._writing = False
        """Some of the checkpoint files are being written, in a thread."""
        self._to_write: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        """What is to be written after that; asked for twice it is written once."""

    # -- what was on the disk at the start ----------------------------------------------------------------------

    def recovery_point(self, key: PartitionKey) -> int:
        return self._checkpoints[RECOVERY_POINTS].get(key)

    def log_start(self, key: PartitionKey) -> int:
        return self._checkpoints[LOG_STARTS].get(key)

    def high_watermark(self, key: PartitionKey) -> int:
        return self._checkpoints[HIGH_WATERMARKS].get(key)

    # -- what happens to partitions -----------------------------------------------------------------------------

    def appended(self, partition: Partition) -> None:
        self._dirty[partition] = None
        self._arm(partition, self._clock.now_ms(Domain.RETENTION))

    def rolled(self, partition: Partition) -> None:
        """A segment was sealed. All before it that is not on the disk goes with it: the recovery point vouches for all."""
        self._sync(partition, whole=False)

    def log_start_moved(self, partition: Partition) -> None:
        self._note_log_start(partition)
        self._dirty[partition] = None  # the leader epochs have changed with it

    def truncated(self, partition: Partition) -> None:
        """What was on the disk is not the log any more: say so before a crash believes the old recovery point."""
        self._snapshots.pop(partition, None)
        self._snapshot_at.pop(partition, None)
        self._note(partition)
        self._write((RECOVERY_POINTS, LOG_STARTS), _nothing)
        partition.tell_unflushed()

    def high_watermark_updated(self, partition: Partition) -> None:
        self._unchecked[partition] = None

    def configured(self, partition: Partition) -> None:
        timer = self._deadlines.pop(partition, None)
        if timer is not None:
            timer.cancel()
        if partition.unflushed:
            self._arm(partition, self._clock.now_ms(Domain.RETENTION))

    def removed(self, partition: Partition) -> None:
        self._dirty.pop(partition, None)
        self._unchecked.pop(partition, None)
        self._round.pop(partition, None)
        self._again.pop(partition, None)
        self._snapshots.pop(partition, None)
        self._snapshot_at.pop(partition, None)
        timer = self._deadlines.pop(partition, None)
        if timer is not None:
            timer.cancel()
        running = self._running.get(partition)
        if running is not None:
            running.flush.abandoned = True

    def forget(self, key: PartitionKey) -> None:
        """A partition was deleted: no file speaks of it any more."""
        for checkpoint in self._checkpoints.values():
            checkpoint.drop(key)

    # -- one partition ------------------------------------------------------------------------------------------

    def flush(self, partition: Partition) -> None:
        """fsync all that a partition has; its high watermark moves when that is done (``flush.messages``)."""
        self._sync(partition, whole=True)

    def _arm(self, partition: Partition, since_ms: int) -> None:
        """``flush.ms`` after the first record that is not on the disk the log is synced."""
        flush_ms = partition.log.config.flush_ms
        if flush_ms == NEVER or partition in self._deadlines or self._closed:
            return
        delay_ms = max(since_ms + flush_ms - self._clock.now_ms(Domain.RETENTION), 0)
        due = partial(self._deadline, partition)
        self._deadlines[partition] = self._clock.call_later_ms(delay_ms, due, Domain.RETENTION)

    def _deadline(self, partition: Partition) -> None:
        del self._deadlines[partition]
        if partition.unflushed:
            self._sync(partition, whole=True)

    def _sync(self, partition: Partition, *, whole: bool) -> None:
        if self._closed:
            return
        if partition in self._running:
            self._again[partition] = whole or self._again.get(partition, False)
            return
        sync = self._prepare(partition, whole=whole)
        if sync is not None:
            self._sync_all([sync], _nothing)

    def _prepare(self, partition: Partition, *, whole: bool) -> _Sync | None:
        """What a thread must sync so that the recovery point may move to the end, or to the active segment's base."""
        log = partition.log
        if partition.offline is not None or not log.exists:
            return None
        try:
            if whole:
                self._take_snapshot(partition, log)
            return _Sync(partition, Flush(log, whole=whole), self._clock.now_ms(Domain.RETENTION))
        except StorageError as error:
            partition.go_offline(error)
            return None

    def _take_snapshot(self, partition: Partition, log: Log) -> None:
        """Of the producers, where the recovery point is about to be, if the last one is far behind."""
        active = log.active
        segment, size = self._snapshot_at.get(partition, (active, 0))
        if active.size - (size if segment is active else 0) < SNAPSHOT_BYTES:
            return
        self._snapshot_at[partition] = active, active.size
        before = log.last_snapshot_offset
        log.try_snapshot()
        if log.last_snapshot_offset == before:
            return
        taken = self._snapshots.setdefault(partition, deque())
        taken.append(log.log_end_offset)
        if len(taken) > SNAPSHOTS_KEPT:
            offset = taken.popleft()
            if log.segments[log.segment_index(offset)].base_offset != offset:
                remove(log.directory / file_name(offset, "snapshot"))

    def _sync_all(self, syncs: list[_Sync], then: Callable[[], None]) -> None:
        if self._injection.points is None:
            self._start(syncs, then)
        else:
            self._start_past_points(syncs, then)

    def _start(self, syncs: list[_Sync], then: Callable[[], None]) -> None:
        """Sync some partitions in a thread."""

        def done(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            unexpected = future.exception()
            for sync in syncs:
                if unexpected is not None and sync.error is None:
                    sync.error = StorageError(sync.partition.log.directory, repr(unexpected))
                self._finish(sync)
            then()

        for sync in syncs:
            self._running[sync.partition] = sync
        self._in_background(partial(_run_all, syncs)).add_done_callback(done)

    def _start_past_points(self, syncs: list[_Sync], then: Callable[[], None]) -> None:
        """The same, while a rule may hold a step at ``log.fsync``: a held sync delays no other partition's."""
        passed: list[_Sync] = []
        at_once = True
        for sync in syncs:
            partition = sync.partition
            self._running[partition] = sync

            def go_on(sync: _Sync = sync) -> None:
                if at_once:
                    passed.append(sync)
                else:
                    self._start([sync], _nothing)

            def refuse(error: ErrorCode, sync: _Sync = sync) -> None:
                reason = f"fsync refused with {error.name.upper()}"
                sync.error = StorageError(sync.partition.log.directory, reason)
                self._finish(sync)

            at = InjectionPoint("log.fsync", self._node_id, partition.topic, partition.index)
            self._injection.intercept(at, go_on, refuse)
        at_once = False
        if passed:
            self._start(passed, then)
        else:
            then()

    def _finish(self, sync: _Sync) -> None:
        partition = sync.partition
        del self._running[partition]
        if sync.flush.abandoned:
            return
        if sync.error is not None:
            # What is not on the disk is not acknowledged.
            partition.go_offline(sync.error)
            return
        sync.flush.finish()
        partition.note_flushed()
        self._note(partition)
        again = self._again.pop(partition, None)
        if partition.unflushed:
            self._dirty[partition] = None
            self._arm(partition, sync.began_ms)
        if again is not None and self._is_behind(partition, whole=again):
            self._sync(partition, whole=again)

    @staticmethod
    def _is_behind(partition: Partition, *, whole: bool) -> bool:
        log = partition.log
        return log.flushed_offset < (log.log_end_offset if whole else log.active.base_offset)

    # -- all of them, now and then ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the rounds. Without them (``odradek.background.flush.interval.ms=0``) Kafka's intervals count."""
        config = self._config
        if config.background_flush_interval_ms > 0:
            self._timers = [
                Periodic(
                    self._clock,
                    config.background_flush_interval_ms,
                    self._begin_round,
                    Domain.RETENTION,
                    lambda: 0 if self._has_work else None,
                )
            ]
            return
        self._timers = [
            Periodic(
                self._clock,
                interval_ms,
                partial(self._write, names, _nothing),
                Domain.RETENTION,
                lambda: 0 if self._unchecked or self._is_changed else None,
            )
            for interval_ms, names in (
                (config.log_flush_offset_checkpoint_interval_ms, (RECOVERY_POINTS, HIGH_WATERMARKS)),
                (config.log_flush_start_offset_checkpoint_interval_ms, (LOG_STARTS,)),
            )
        ]

    @property
    def _has_work(self) -> bool:
        return bool(self._dirty) or self._is_changed

    @property
    def _is_changed(self) -> bool:
        return any(checkpoint.changed for checkpoint in self._checkpoints.values())

    def _begin_round(self) -> None:
        if self._round_goes_on:
            return  # a slow disk: the next one takes what is left
        self._round_goes_on = True
        self._round, self._dirty = self._dirty, {}
        self._go_on()

    def _end_round(self) -> None:
        self._round_goes_on = False

    def _go_on(self) -> None:
        """The next partitions of this round, or its end: the checkpoints."""
        if self._closed:
            return
        syncs: list[_Sync] = []
        while self._round and len(syncs) < PARTITIONS_AT_ONCE:
            partition, _ = self._round.popitem()
            if partition in self._running:
                self._dirty[partition] = None
                continue
            sync = self._prepare(partition, whole=True)
            if sync is not None:
                syncs.append(sync)
        if syncs:
            self._sync_all(syncs, self._go_on)
        else:
            self._write(tuple(self._checkpoints), self._end_round)

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _note(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        self._checkpoints[RECOVERY_POINTS].set(key, partition.log.recovery_point)
        self._checkpoints[HIGH_WATERMARKS].set(key, partition.high_watermark)
        self._note_log_start(partition)

    def _note_committed(self) -> None:
        moved, self._unchecked = self._unchecked, {}
        for partition in moved:
            partition.unchecked = False
            key = (partition.topic, partition.index)
            self._checkpoints[HIGH_WATERMARKS].set(key, partition.high_watermark)

    def _note_log_start(self, partition: Partition) -> None:
        """A log start is kept only where it lies inside the first segment, as in Kafka."""
        log = partition.log
        key = (partition.topic, partition.index)
        if log.exists and log.log_start_offset > log.segments[0].base_offset:
            self._checkpoints[LOG_STARTS].set(key, log.log_start_offset)
        else:
            self._checkpoints[LOG_STARTS].drop(key)

    def _write(self, names: Iterable[str], then: Callable[[], None]) -> None:
        """Write the files that are not up to date, in a thread; one of these at a time."""
        names = tuple(names)
        if self._closed:
            return
        if self._writing:
            if (names, then) not in self._to_write:
                self._to_write.append((names, then))
            return
        if HIGH_WATERMARKS in names:
            self._note_committed()
        changed = {name: self._checkpoints[name] for name in names if self._checkpoints[name].changed}
        if not changed:
            then()
            return

        def done(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                for checkpoint in changed.values():
                    checkpoint.changed = True
                log_events.error("checkpoints could not be written", reason=str(error))
            self._writing = False
            then()
            while self._to_write and not self._writing:
                self._write(*self._to_write.pop(0))

        self._writing = True
        rows = {name: checkpoint.rows() for name, checkpoint in changed.items()}
        self._in_background(partial(self._write_files, rows)).add_done_callback(done)

    def _write_files(self, rows: dict[str, list[bytes]]) -> None:
        for name, each in rows.items():
            write_rows(self._directory.path / name, each)

    # -- the end ------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        self._stop()
        self._round.clear()
        for sync in self._running.values():
            sync.flush.abandoned = True

    async def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        self._closed = True
        for timer in (*self._timers, *self._deadlines.values()):
            timer.cancel()
        self._deadlines.clear()

    def write_all(self, partitions: Iterable[Partition]) -> None:
        """After a clean stop: where each of these logs stands now."""
        for partition in partitions:
            if partition.offline is None and partition.log.exists:
                self._note(partition)
        self._write_files({name: checkpoint.rows() for name, checkpoint in self._checkpoints.items()})


def _read_checkpoint(directory: LogDirectory, name: str) -> Mapping[PartitionKey, int]:
    """Kafka's recovery begins at 0, and logs where their first segment does, if these files are invalid."""
    try:
        return directory.read_checkpoint(name)
    except StorageError as error:
        log_events.warning("checkpoint not usable, taken for empty", file=error.path, reason=str(error))
        return {}


def _nothing() -> None:
    """For a sync that no caller waits for."""


def _run_all(syncs: list[_Sync]) -> None:
    for sync in syncs:
        sync.run()
