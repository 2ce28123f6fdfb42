"""Deletes expired segments (`storage.retention` selects them), a few in each turn of the event loop.

Kafka checks every log each ``log.retention.check.interval.ms``, and compacted logs each ``log.cleaner.backoff.ms``. The
intervals are the same here, but a check covers only logs that may have expired segments: their due time has come, they have
a size limit and were written to, or their log start or settings changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.clock import Clock, Domain, Periodic, Timer
from broker.logging import get_logger
from broker.replicas.maintenance.removal import remove_retired
from broker.replicas.partition.listeners import PartitionListener
from storage.directory import PartitionKey
from storage.files import StorageError
from storage.retention import Ageing, Expired, Reason
from storage.segment import Segment

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition

log_events = get_logger()

WORK_PER_TURN: Final = 8
"""Maximum number of checked logs plus removed segments in one turn of the event loop. They take about 1 ms."""
OPENED_PER_TURN: Final = 4
"""Number of partitions opened in one turn of the event loop. The first check opens each unopened partition once."""
STALE_MAX: Final = 16
"""A queue rebuilds its heap when the heap has more than ``STALE_MAX`` entries beyond two for each log."""
NOW: Final = 0
"""Due time of a log that the next check has to examine in any case."""


class _Queue:
    """Logs ordered by the time at which they must be checked."""

    def __init__(self) -> None:
        self._due: dict[Partition, tuple[int, int]] = {}
        """For each log its current heap entry: due time in ms, and a sequence number."""
        self._heap: list[tuple[int, int, Partition]] = []
        self._arrivals = count()
        self.until_ms = -1
        """Start time of the running check in ms: logs due later wait for the next check. -1 between checks."""

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._due

    def put(self, partition: Partition, due_ms: int) -> None:
        """Set the due time of a partition, replacing an earlier one."""
        before = self._due.get(partition)
        if before is None or before[0] != due_ms:
            self._due[partition] = place = due_ms, next(self._arrivals)
            heappush(self._heap, (*place, partition))
            self._tidy()

    def drop(self, partition: Partition) -> None:
        self._due.pop(partition, None)
        self._tidy()

    def _tidy(self) -> None:
        """Rebuild the heap when most of its entries are stale, that is, replaced or dropped.

        Stale entries keep deleted logs in memory until their due time, which usually is a week away.
        """
        if len(self._heap) > 2 * len(self._due) + STALE_MAX:
            self._heap = [(*place, partition) for partition, place in self._due.items()]
            heapify(self._heap)

    def _is_stale(self) -> bool:
        due_ms, arrival, partition = self._heap[0]
        return self._due.get(partition) != (due_ms, arrival)

    def next_due_ms(self) -> int | None:
        """When the next partition is due, in ms; None if the queue is empty."""
        while self._heap and self._is_stale():
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self) -> Partition | None:
        """Remove and return the next partition that is due in this check; end the check if there is none."""
        due_ms = self.next_due_ms()
        if due_ms is not None and due_ms <= self.until_ms:
            _, _, partition = heappop(self._heap)
            del self._due[partition]
            return partition
        self.until_ms = -1
        return None


class UnopenedReplicas(Protocol):
    """The part of `broker.replicas.manager.ReplicaManager` that retention needs."""

    def unopened(self) -> list[PartitionKey]: ...

    def open_existing(self, topic: str, index: int) -> None: ...

    def in_background(self, work: Callable[[], Any]) -> asyncio.Future[Any]: ...


class Retention(PartitionListener["Partition"]):
    """Deletes segments from the beginning of logs, by time, by size and below the log start offset."""

    def __init__(self, config: BrokerConfig, clock: Clock, replicas: UnopenedReplicas) -> None:
        self._config = config
        self._clock = clock
        self._replicas = replicas
        self._plain, self._compacted = _Queue(), _Queue()
        self._at_work: Partition | None = None
        """The partition that the current check has begun and not finished."""
        self._deleted: dict[Partition, dict[Reason, Expired]] = {}
        """For each partition, what the current check has deleted so far, by reason."""
        self._retired: dict[Partition, list[Path]] = {}
        self._unopened: list[PartitionKey] = []
        self._turn_timer: Timer | None = None
        self._numbers = count()
        self._waiting: dict[int, Timer] = {}
        """Sequence number -> timer of work that runs once, such as the deletion of files after a delay."""
        self._checks: list[Timer] = []
        self._rounds: Periodic | None = None
        """Periodic checks of compacted logs, which Kafka makes in the cleaner's thread. None before `start`, and
        if ``log.cleaner.enable`` is false."""

    def start(self) -> None:
        """Start the checks. The first one runs after ``log.initial.task.delay.ms``, as in Kafka."""
        self._later(self._config.log_initial_task_delay_ms, self._begin)
        if self._config.log_cleaner_enable:
            self._rounds = self._periodic(self._config.log_cleaner_backoff_ms, self._compacted)
            self._checks.append(self._rounds)

    def _begin(self) -> None:
        self._checks.append(self._periodic(self._config.log_retention_check_interval_ms, self._plain))
        self._unopened = self._replicas.unopened()
        self._check(self._plain)

    def reconfigured(self) -> None:
        if self._rounds is not None:
            self._rounds.every(self._config.log_cleaner_backoff_ms)

    def _periodic(self, interval_ms: int, queue: _Queue) -> Periodic:
        check = partial(self._check, queue)
        return Periodic(self._clock, interval_ms, check, Domain.RETENTION, queue.next_due_ms)

    def _later(self, delay_ms: float, work: Callable[[], object]) -> None:
        # By number: a callback that refers to its timer would be a reference cycle, which only the garbage collector frees.
        number = next(self._numbers)
        due = partial(self._due, number, work)
        self._waiting[number] = self._clock.call_later_ms(delay_ms, due, Domain.RETENTION)

    def _due(self, number: int, work: Callable[[], object]) -> None:
        del self._waiting[number]
        work()

    def abandon(self) -> None:
        self._stop()

    async def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        """Cancel all timers. Files that were renamed to ``.deleted`` are deleted when their log is opened again, as in
        Kafka.
        """
        for timer in [*self._checks, *self._waiting.values()]:
            timer.cancel()
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._checks.clear()
        self._waiting.clear()
        self._at_work = None
        self._plain.until_ms = self._compacted.until_ms = -1
        self._unopened.clear()

    # -- partition listener -------------------------------------------------------------------------------------

    def opened(self, partition: Partition) -> None:
        self._schedule(partition, NOW)

    def appended(self, partition: Partition) -> None:
        """Schedule the log for the next check if it has a size limit, or is in no queue because it had no records."""
        queue = self._queue_of(partition)
        if partition.log.config.retention_bytes >= 0 or partition not in queue:
            queue.put(partition, NOW)

    def log_start_moved(self, partition: Partition) -> None:
        if partition is not self._at_work:
            self._schedule(partition, NOW)

    def configured(self, partition: Partition) -> None:
        self._schedule(partition, NOW)

    def removed(self, partition: Partition) -> None:
        self._plain.drop(partition)
        self._compacted.drop(partition)
        if partition is self._at_work:
            self._at_work = None
        self._finish(partition)

    def _queue_of(self, partition: Partition) -> _Queue:
        return self._compacted if partition.log.config.compact else self._plain

    def _schedule(self, partition: Partition, due_ms: int) -> None:
        queue = self._queue_of(partition)
        (self._plain if queue is self._compacted else self._compacted).drop(partition)
        queue.put(partition, due_ms)

    # -- checks -------------------------------------------------------------------------------------------------

    def _check(self, queue: _Queue) -> None:
        queue.until_ms = self._clock.now_ms(Domain.RETENTION)
        if self._turn_timer is None:
            self._turn()

    def _turn(self) -> None:
        """Check as many logs as one turn of the event loop allows. The other logs follow in the next turns."""
        self._turn_timer = None
        for key in self._unopened[-OPENED_PER_TURN:]:
            self._replicas.open_existing(*key)  # calls `opened`
        del self._unopened[-OPENED_PER_TURN:]
        left = WORK_PER_TURN
        while left > 0:
            partition = self._at_work = self._at_work or self._plain.take() or self._compacted.take()
            if partition is None:
                break
            try:
                left -= 1 + self._look(partition, left)
            except StorageError as error:
                self._at_work = None
                partition.go_offline(error)
        if self._unopened or left <= 0:
            self._turn_timer = self._clock.call_later_ms(0, self._turn, Domain.RETENTION)

    def _look(self, partition: Partition, segments_max: int) -> int:
        """Delete at most ``segments_max`` expired segments of one log. Returns the number of deleted segments."""
        if not partition.log.exists:
            self._at_work = None
            return 0
        config = partition.log.config
        deletions = _ageing(partition).expired(config, self._clock.now_ms(Domain.RETENTION), segments_max)
        deleted = sum(deletion.segments for deletion in deletions)
        if deleted:
            self._delete(partition, deletions, deleted)
        if deleted < segments_max:
            self._at_work = None
            self._finish(partition)
            self._look_again(partition)
        return deleted

    def _delete(self, partition: Partition, deletions: Iterable[Expired], segments: int) -> None:
        paths = partition.drop_oldest(segments)
        self._retired.setdefault(partition, []).extend(paths)
        so_far = self._deleted.setdefault(partition, {})
        for reason, number, size in deletions:
            before = so_far.get(reason, Expired(reason, 0, 0))
            so_far[reason] = Expired(reason, before.segments + number, before.size + size)

    def _look_again(self, partition: Partition) -> None:
        """Schedule the log: at the next check if it has a size limit and unsynced records, else when a segment expires."""
        config = partition.log.config
        limited = config.delete and config.retention_bytes >= 0
        due_ms = NOW if limited and partition.unflushed else _ageing(partition).due_ms(config)
        if due_ms is not None:
            # A segment whose time has come but that cannot be deleted yet waits for the next check, not for this one.
            self._schedule(partition, max(due_ms, self._clock.now_ms(Domain.RETENTION) + 1))

    def _finish(self, partition: Partition) -> None:
        """Log what was deleted from a partition, and remove the files after ``file.delete.delay.ms``."""
        for reason, number, size in self._deleted.pop(partition, {}).values():
            log_events.info(
                "segments deleted",
                topic=partition.topic,
                partition=partition.index,
                segments=number,
                bytes=size,
                reason=reason.value,
                log_start_offset=partition.log_start_offset,
            )
        paths = self._retired.pop(partition, None)
        if paths:
            remove_them = partial(remove_retired, paths)
            work: Callable[[], asyncio.Future[Any]] = partial(self._replicas.in_background, remove_them)
            self._later(partition.log.config.file_delete_delay_ms, work)


def _ageing(partition: Partition) -> Ageing[Segment]:
    log = partition.log
    return Ageing(
        log.segments,
        lambda: log.size,
        log.log_start_offset,
        log.log_end_offset,
        partition.high_watermark,
        _modified_ms,
    )


def _modified_ms(segment: Segment) -> int:
    path = segment.paths()[0]
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise StorageError(path, error) from error
