"""Background fsync of logs, and the recovery point checkpoints: they limit how much a crash leaves to recover.

A partition is synced for one of four reasons: a segment was sealed (as in Kafka), ``flush.messages``, ``flush.ms``, and
every ``odradek.background.flush.interval.ms`` if records were written since. Kafka leaves the periodic write-back to
the operating system.
Kafka checks ``flush.ms`` only every ``log.flush.scheduler.interval.ms``, by default never, so that a topic's setting has no
effect unless the broker's setting allows it. Here ``flush.ms`` always has an effect: a timer starts at the first record that
is not synced.

At most one sync of a partition runs at a time. The operating system reports a failed write-back once: a second sync beside
the one that gets the error would succeed, although pages were lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain, Periodic, Timer
from broker.injection.points import FaultInjection, InjectionPoint
from broker.replicas.maintenance.checkpoints import Checkpoints, InBackground
from broker.replicas.maintenance.producer_snapshots import ProducerSnapshots
from broker.replicas.partition.listeners import PartitionListener
from protocol.errors import ErrorCode
from protocol.slotted import slotted
from storage.config import NEVER
from storage.directory import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from storage.files import StorageError
from storage.flush import Flush

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition

PARTITIONS_AT_ONCE: Final = 32
"""Number of partitions that are passed to the thread together. The event loop spends about a millisecond on this."""


@slotted(eq=False)
class _Sync:
    """One flush of a partition in a thread: its files, the time at which it began, and its error."""

    partition: Partition
    flush: Flush
    began_ms: int
    error: StorageError | None = None

    def run(self) -> None:
        self.error = self.flush.run()


class Flushing(PartitionListener["Partition"]):
    """Syncs partitions, then advances their recovery points and writes the checkpoint files."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        config: BrokerConfig,
        clock: Clock,
        in_background: InBackground,
        *,
        injection: FaultInjection | None = None,
        node_id: int = -1,
    ) -> None:
        self._checkpoints = checkpoints
        self._config = config
        self._clock = clock
        self._in_background = in_background
        self._injection = injection or FaultInjection()
        self._node_id = node_id
        self._dirty: dict[Partition, None] = {}
        """Partitions to sync in the next periodic round."""
        self._round: dict[Partition, None] = {}
        """Partitions that the current periodic round has yet to sync."""
        self._running: dict[Partition, _Sync] = {}
        self._again: dict[Partition, bool] = {}
        """Partitions to sync again after their running sync; the value says whether to include the active segment."""
        self._deadlines: dict[Partition, Timer] = {}
        self._snapshots = ProducerSnapshots()
        self._timers: list[Timer] = []
        self._round_goes_on = False
        self._closed = False

    # -- partition listener -------------------------------------------------------------------------------------

    def appended(self, partition: Partition) -> None:
        self._dirty[partition] = None
        self._arm(partition, self._clock.now_ms(Domain.RETENTION))

    def rolled(self, partition: Partition) -> None:
        """Sync all sealed segments, and then move the recovery point to the start of the active segment."""
        self._sync(partition, whole=False)

    def log_start_moved(self, partition: Partition) -> None:
        self._checkpoints.note_log_start(partition)
        self._dirty[partition] = None  # the leader epoch file has changed, too

    def truncated(self, partition: Partition) -> None:
        """Write the new recovery point soon: after a crash, the old recovery point would cover offsets that are not in the
        log any more.
        """
        self._snapshots.forget(partition)
        self._checkpoints.note(partition)
        self._checkpoints.write((RECOVERY_POINTS, LOG_STARTS), _nothing)
        partition.notify_unflushed()

    def high_watermark_updated(self, partition: Partition) -> None:
        self._checkpoints.high_watermark_moved(partition)

    def configured(self, partition: Partition) -> None:
        timer = self._deadlines.pop(partition, None)
        if timer is not None:
            timer.cancel()
        if partition.unflushed:
            self._arm(partition, self._clock.now_ms(Domain.RETENTION))

    def removed(self, partition: Partition) -> None:
        self._dirty.pop(partition, None)
        self._checkpoints.removed(partition)
        self._round.pop(partition, None)
        self._again.pop(partition, None)
        self._snapshots.forget(partition)
        timer = self._deadlines.pop(partition, None)
        if timer is not None:
            timer.cancel()
        running = self._running.get(partition)
        if running is not None:
            running.flush.abandoned = True

    # -- one partition ------------------------------------------------------------------------------------------

    def flush(self, partition: Partition) -> None:
        """Start an fsync of the whole log; when it ends, the high watermark may move (``flush.messages``)."""
        self._sync(partition, whole=True)

    def _arm(self, partition: Partition, since_ms: int) -> None:
        """Start the timer that syncs the log ``flush.ms`` after ``since_ms``, the time of the first unsynced record."""
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
        """Collect the files to sync before the recovery point moves.

        The recovery point moves to the log end with ``whole``, else to the active segment's base offset. Returns
        None if there is nothing to sync, or if the partition goes offline in this call.
        """
        log = partition.log
        if partition.offline is not None or not log.exists:
            return None
        try:
            if whole:
                self._snapshots.take_if_due(partition)
            return _Sync(partition, Flush(log, whole=whole), self._clock.now_ms(Domain.RETENTION))
        except StorageError as error:
            partition.go_offline(error)
            return None

    def _sync_all(self, syncs: list[_Sync], then: Callable[[], None]) -> None:
        if self._injection.points is None:
            self._start(syncs, then)
        else:
            self._start_past_points(syncs, then)

    def _start(self, syncs: list[_Sync], then: Callable[[], None]) -> None:
        """Sync some partitions in a thread, and then call ``then`` in the event loop."""

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
        """Like `_start`, but each sync passes the injection point ``log.fsync``. A sync that is held there does not delay
        the others.
        """
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
            # Records that are not on the disk must not be acknowledged.
            partition.go_offline(sync.error)
            return
        sync.flush.finish()
        partition.note_flushed()
        self._checkpoints.note(partition)
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

    # -- periodic rounds ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic rounds, each of which syncs changed partitions and writes the checkpoints.

        If ``odradek.background.flush.interval.ms`` is 0, no partition is synced periodically, and the checkpoints
        are written at Kafka's intervals.
        """
        config = self._config
        if config.background_flush_interval_ms > 0:
            self._timers = [
                Periodic(
                    self._clock,
                    config.background_flush_interval_ms,
                    self._begin_round,
                    Domain.RETENTION,
                    lambda: 0 if self._has_work else None,
                    once_per_advance=True,
                )
            ]
            return
        self._timers = [
            Periodic(
                self._clock,
                interval_ms,
                partial(self._checkpoints.write, names, _nothing),
                Domain.RETENTION,
                lambda: 0 if self._checkpoints.is_behind else None,
                once_per_advance=True,
            )
            for interval_ms, names in (
                (config.log_flush_offset_checkpoint_interval_ms, (RECOVERY_POINTS, HIGH_WATERMARKS)),
                (config.log_flush_start_offset_checkpoint_interval_ms, (LOG_STARTS,)),
            )
        ]

    @property
    def _has_work(self) -> bool:
        return bool(self._dirty) or self._checkpoints.is_changed

    def _begin_round(self) -> None:
        if self._round_goes_on:
            return  # the disk is slow: the next round syncs the rest
        self._round_goes_on = True
        self._round, self._dirty = self._dirty, {}
        self._go_on()

    def _end_round(self) -> None:
        self._round_goes_on = False

    def _go_on(self) -> None:
        """Sync the next partitions of this round; at its end write the checkpoints."""
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
            self._checkpoints.write_all(self._end_round)

    # -- stopping -----------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        self._stop()
        self._round.clear()
        for sync in self._running.values():
            sync.flush.abandoned = True

    async def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        self._closed = True
        self._checkpoints.close()
        for timer in (*self._timers, *self._deadlines.values()):
            timer.cancel()
        self._deadlines.clear()

    def write_all(self, partitions: Iterable[Partition]) -> None:
        """Write the checkpoints of the partitions after a clean stop."""
        for partition in partitions:
            if partition.offline is None and partition.log.exists:
                self._checkpoints.note(partition)
        self._checkpoints.write_at_the_end()


def _nothing() -> None:
    """Callback for a sync or write that no caller waits for."""


def _run_all(syncs: list[_Sync]) -> None:
    for sync in syncs:
        sync.run()
