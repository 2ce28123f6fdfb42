"""Decides which logs are compacted, and when (`LogCleaner`, `LogCleanerManager`). `storage.compaction` compacts them.

One pass runs at a time, in a thread, as with Kafka's default of one ``log.cleaner.threads``. Kafka checks every log each
``log.cleaner.backoff.ms``. Here a log is checked only after it has changed, or when the passage of time can have made it
ready.

A pass replaces groups of segments by compacted ones. The thread writes and syncs the new files, the event loop renames them
to ``.swap``, the thread syncs the directory, and the event loop exchanges them. A crash at any point leaves either the old
segments or the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.clock import NOTHING_DONE, Clock, Domain, Periodic, Timer
from broker.logging import get_logger
from broker.replicas.maintenance.cleaner_throttler import Abandoned, CleanerThrottler
from broker.replicas.maintenance.removal import log_not_removed, remove_retired
from broker.replicas.partition.listeners import PartitionListener
from storage.compaction.choice import LogToClean, compactable, first_dirty_offset
from storage.directory import CLEANER_OFFSETS, LogDirectory, PartitionKey
from storage.files import StorageError, remove, sync_directory
from storage.renaming import DELETED
from storage.segment import Segment

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition
    from storage.compaction.grouping import Source
    from storage.compaction.rewriting import Cleaned, Order, Pass

log_events = get_logger()

SEGMENTS_PER_TURN: Final = 1000
InBackground = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]


class LogCleaner(PartitionListener["Partition"]):
    """Compacts the logs of topics with ``cleanup.policy=compact``."""

    def __init__(
        self, directory: LogDirectory, config: BrokerConfig, clock: Clock, in_background: InBackground
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._in_background = in_background
        self._config = config
        self._checkpoint = self._read_checkpoint()
        self._candidates: dict[Partition, int] = {}
        """Logs that may have something to compact, and when to check each (ms)."""
        self._uncleanable: set[Partition] = set()
        """Partitions whose last pass failed. They are not compacted again before a restart."""
        self._throttler = CleanerThrottler(self._config.log_cleaner_io_max_bytes_per_second)
        self._at_work: Partition | None = None
        self._oldest: Segment | None = None
        """The oldest segment that the running pass still needs. If the pass fails after the log has lost this
        segment, the log may be compacted again later."""
        self._work_is_gone = False
        """Whether the running pass must not replace segments any more, and discards the segment that it has
        written: the partition was deleted or went offline, or the node was killed."""
        self._task: asyncio.Task[None] | None = None
        self._rounds: Periodic | None = None
        self._removals: dict[int, Timer] = {}
        self._closed = False

    def _read_checkpoint(self) -> dict[PartitionKey, int]:
        try:
            return self._directory.read_checkpoint(CLEANER_OFFSETS)
        except StorageError as error:
            # Without the checkpoint, each log is compacted from its beginning once; no data is lost.
            log_events.warning(
                "cleaner offset checkpoint not usable, treated as empty", file=error.path, reason=str(error)
            )
            return {}

    def start(self) -> None:
        """Allow compaction passes from now on: start a pass if a log is due, and check this periodically."""
        self._look()
        self._rounds = Periodic(
            self._clock,
            self._config.log_cleaner_backoff_ms,
            self._look,
            Domain.RETENTION,
            self._next_look_ms,
        )

    # -- partition listener -------------------------------------------------------------------------------------

    def opened(self, partition: Partition) -> None:
        self._consider(partition)

    def rolled(self, partition: Partition) -> None:
        self._consider(partition)

    def configured(self, partition: Partition) -> None:
        self._consider(partition)

    def reconfigured(self) -> None:
        if self._rounds is not None:
            self._rounds.every(self._config.log_cleaner_backoff_ms)

    def log_start_moved(self, partition: Partition) -> None:
        self._consider(partition)

    def truncated(self, partition: Partition) -> None:
        """Move the cleaner offset back to the new log end. A running pass notices that its segments are gone."""
        key = (partition.topic, partition.index)
        if key in self._checkpoint:
            self._checkpoint[key] = min(self._checkpoint[key], partition.log_end_offset)

    def removed(self, partition: Partition) -> None:
        self._candidates.pop(partition, None)
        self._uncleanable.discard(partition)
        if partition.offline is None:
            self._checkpoint.pop((partition.topic, partition.index), None)
        if partition is self._at_work:
            self._work_is_gone = self._throttler.abandoned = True

    def _consider(self, partition: Partition) -> None:
        log = partition.log
        if not log.config.compact or len(log.segments) < 2 or partition in self._uncleanable:
            return
        first_dirty, _ = first_dirty_offset(log, self._checkpoint.get((partition.topic, partition.index)))
        if first_dirty < log.active.base_offset:
            self._candidates[partition] = 0

    def abandon(self) -> None:
        self._closed = self._throttler.abandoned = self._work_is_gone = True
        for timer in (self._rounds, *self._removals.values()):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """Cancel a running pass and wait for its end. Segments that the pass has replaced before stay replaced."""
        self._closed = self._throttler.abandoned = True
        for timer in (self._rounds, *self._removals.values()):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- choosing a log -----------------------------------------------------------------------------------------

    def _next_look_ms(self) -> int | None:
        return min(self._candidates.values(), default=None) if self._task is None else None

    def _look(self) -> object:
        next_look_ms = self._next_look_ms()
        if self._closed or next_look_ms is None or next_look_ms > self._clock.now_ms(Domain.RETENTION):
            return NOTHING_DONE
        self._task = asyncio.get_running_loop().create_task(self._work())
        # A clock that advances waits for the whole task, that is, for all passes.
        self._clock.wait_for(self._task)
        return self._task

    async def _work(self) -> None:
        """Run compaction passes, one after the other, while there is a log to compact and no pass fails."""
        try:
            while not self._closed:
                chosen = self._choose()
                if chosen is None or not await self._compact(*chosen):
                    break
        finally:
            self._task = None

    def _choose(self) -> tuple[Partition, LogToClean] | None:
        """The due log with the largest share of dirty bytes, None if no log should be compacted
        (`grabFilthiestCompactedLog`)."""
        now_ms = self._clock.now_ms(Domain.RETENTION)
        chosen: tuple[Partition, LogToClean] | None = None
        for partition in [each for each, due_ms in self._candidates.items() if due_ms <= now_ms]:
            try:
                found = self._look_at(partition, now_ms)
            except StorageError as error:
                self._mark_uncleanable(partition, error)
                continue
            if found is not None and (chosen is None or found.dirty_ratio > chosen[1].dirty_ratio):
                chosen = (partition, found)
        return chosen

    def _look_at(self, partition: Partition, now_ms: int) -> LogToClean | None:
        """The compactable part of a log. If the log is not dirty enough, schedule its next check and return None."""
        log, key = partition.log, (partition.topic, partition.index)
        if not log.config.compact or not log.exists:
            del self._candidates[partition]
            return None
        checkpoint = self._checkpoint.get(key)
        first_dirty, problem = first_dirty_offset(log, checkpoint)
        if problem is not None:
            log_events.warning(
                "first dirty offset reset",
                topic=key[0],
                partition=key[1],
                from_offset=checkpoint,
                to_offset=first_dirty,
                reason=problem,
            )
        if checkpoint is not None:
            self._checkpoint[key] = first_dirty
        found = compactable(log, first_dirty, partition.last_stable_offset, now_ms)
        if found.dirty_bytes and found.is_wanted(log.config.min_cleanable_dirty_ratio):
            return found
        if found.ask_again_ms is None:
            del self._candidates[partition]
        else:
            self._candidates[partition] = found.ask_again_ms
        return None

    # -- one pass -----------------------------------------------------------------------------------------------

    async def _compact(self, partition: Partition, part: LogToClean) -> bool:
        """Run one compaction pass over one log. Returns whether the pass was completed."""
        began_ms = self._clock.now_ms(Domain.RETENTION)
        self._throttler = CleanerThrottler(self._config.log_cleaner_io_max_bytes_per_second)
        self._at_work, self._work_is_gone = partition, False
        self._oldest = partition.log.segments[0]
        try:
            work = await self._pass(partition, part, began_ms)
        except Abandoned:
            return False
        except Exception as error:  # any failure concerns this log only (`LogCleaningException`)
            # If retention has deleted the oldest segment meanwhile, the failure may come from that, and the log stays
            # eligible.
            if not self._work_is_gone and self._oldest is not None and partition.log.holds([self._oldest]):
                self._mark_uncleanable(partition, error)
            return False
        finally:
            self._at_work = self._oldest = None
        if work is not None:
            self._report(partition, part, work, self._clock.now_ms(Domain.RETENTION) - began_ms)
        return work is not None

    async def _pass(self, partition: Partition, part: LogToClean, now_ms: int) -> Pass | None:
        """Compact the log, write the checkpoint of cleaner offsets, and return the completed pass.

        None if segments of the log were deleted or truncated meanwhile, or if the partition went offline.
        """
        # Imported here, since most brokers never compact a log.
        from storage.compaction.rewriting import Pass

        segments = await self._sources(partition, part)
        work = Pass(self._order(partition, part, tuple(segments), now_ms), self._throttler)
        try:
            await self._in_background(work.prepare)
            for group in work.groups:
                sources = [segments[source] for source in group]
                self._oldest = sources[0]
                cleaned = await self._in_background(partial(work.rewrite, group))
                if not await self._install(partition, sources, cleaned):
                    return None
            if self._work_is_gone:
                return None
            self._checkpoint[partition.topic, partition.index] = work.end_offset
            await self._in_background(
                partial(_settle, self._directory, partition.log.directory, dict(self._checkpoint))
            )
        finally:
            await self._in_background(partial(work.finish, CleanerThrottler(inf)))
        return work

    @staticmethod
    async def _sources(partition: Partition, part: LogToClean) -> dict[Source, Segment]:
        """Segments to compact, keyed by the `Source` (base offset and size) that is passed to the thread.

        The call suspends from time to time, since there may be very many segments.
        """
        from storage.compaction.grouping import Source

        segments = partition.log.segments[: partition.log.segment_index(part.upper_bound)]
        found = {}
        for at in range(0, len(segments), SEGMENTS_PER_TURN):
            found.update({Source(s.base_offset, s.size): s for s in segments[at : at + SEGMENTS_PER_TURN]})
            await asyncio.sleep(0)
        return found

    def _order(
        self, partition: Partition, part: LogToClean, sources: tuple[Source, ...], now_ms: int
    ) -> Order:
        from storage.compaction.filtering import LastRecord, Rules
        from storage.compaction.offset_map import capacity
        from storage.compaction.rewriting import Order

        log = partition.log
        entries = log.producers.entries.values()
        return Order(
            log.directory,
            sources,
            part.first_dirty_offset,
            log.log_start_offset,
            log.config,
            Rules(
                part.upper_bound,
                partition.high_watermark,
                now_ms,
                log.config.delete_retention_ms,
                {entry.producer_id: LastRecord(entry.last_offset, entry.epoch) for entry in entries},
            ),
            capacity(
                self._config.log_cleaner_dedupe_buffer_size, self._config.log_cleaner_io_buffer_load_factor
            ),
        )

    async def _install(self, partition: Partition, sources: list[Segment], cleaned: Cleaned) -> bool:
        """Replace the source segments by the compacted one.

        Returns False if the log does not have the source segments any more, or if the partition is deleted or
        offline.
        """
        log = partition.log
        if self._work_is_gone or not log.holds(sources):
            await self._in_background(partial(_discard, cleaned))
            return False
        earlier = [path.with_name(path.name + DELETED) for source in sources for path in source.paths()]
        try:
            cleaned.offer()
            await self._in_background(partial(_make_way, log.directory, earlier))
        except StorageError:
            await self._in_background(partial(_discard, cleaned))
            raise
        if self._work_is_gone:
            return False  # the directory is being deleted, or the next start completes the exchange
        try:
            retired = log.replace(sources, cleaned.segment(self._clock.now_ms()))
        except StorageError as error:
            # Some files have been renamed and some have not. Only the recovery at the next start can complete the exchange.
            partition.go_offline(error)
            return False
        if retired is None:
            await self._in_background(partial(_discard, cleaned))
            return False
        self._remove_later(retired, log.config.file_delete_delay_ms)
        return True

    def _remove_later(self, paths: list[Path], delay_ms: int) -> None:
        number = max(self._removals, default=0) + 1

        def remove_now() -> None:
            del self._removals[number]
            self._in_background(partial(remove_retired, paths))

        self._removals[number] = self._clock.call_later_ms(delay_ms, remove_now, Domain.RETENTION)

    def _mark_uncleanable(self, partition: Partition, error: Exception) -> None:
        """Exclude a log from compaction until the next start: the next pass would probably fail too."""
        self._candidates.pop(partition, None)
        self._uncleanable.add(partition)
        log_events.error(
            "log cannot be compacted",
            topic=partition.topic,
            partition=partition.index,
            file=error.path if isinstance(error, StorageError) else None,
            reason=str(error) or repr(error),
        )

    @staticmethod
    def _report(partition: Partition, part: LogToClean, work: Pass, duration_ms: int) -> None:
        counts = work.counts
        log_events.info(
            "log compacted",
            topic=partition.topic,
            partition=partition.index,
            from_offset=part.first_dirty_offset,
            to_offset=work.end_offset,
            bytes_before=counts.bytes_before,
            bytes_after=counts.bytes_after,
            records_before=counts.records_before,
            records_after=counts.records_after,
            duration_ms=duration_ms,
        )
        if work.keyless:
            log_events.warning(
                "records without a key dropped",
                topic=partition.topic,
                partition=partition.index,
                records=work.keyless,
            )


def _make_way(directory: Path, earlier: Iterable[Path]) -> None:
    """Prepare the exchange: delete files that an earlier pass retired, and sync the names of the new files.

    Runs in a thread, because a rename over a large file frees its blocks and would block the event loop.
    """
    for path in earlier:
        remove(path)
    sync_directory(directory)


def _discard(cleaned: Cleaned) -> None:
    try:
        cleaned.discard()
    except StorageError as error:
        log_not_removed(error)


def _settle(directory: LogDirectory, partition: Path, offsets: Mapping[PartitionKey, int]) -> None:
    """Sync the directory and write the cleaner offsets after a pass's last exchange, so that the pass is not repeated."""
    sync_directory(partition)
    directory.write_checkpoint(CLEANER_OFFSETS, offsets)
