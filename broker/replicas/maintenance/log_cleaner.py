"""Which logs are compacted, and when (`LogCleaner`, `LogCleanerManager`): the work itself is `storage.compaction`'s.

One pass at a time, in a thread, as Kafka's one ``log.cleaner.threads`` does by default. Kafka looks at every log each
``log.cleaner.backoff.ms``; here a log is looked at once something has happened to it, or when time alone can have
made it ready.

A pass puts one compacted segment after the other in its place: files written and synced in the thread, renamed
to ``.swap`` on the loop, the names synced in the thread, exchanged on the loop. A crash at any point in between leaves
the old segments or the new one.
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
from broker.replicas.maintenance.removal import remove_retired, say_not_removed
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
    """Compacts the logs whose topics ask for it."""

    def __init__(
        self, directory: LogDirectory, config: BrokerConfig, clock: Clock, in_background: InBackground
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._in_background = in_background
        self._config = config
        self._checkpoint = self._read_checkpoint()
        self._candidates: dict[Partition, int] = {}
        """When to look at a log that may have something to compact."""
        self._uncleanable: set[Partition] = set()
        """Those whose last pass failed: the next one might fail too."""
        self._throttler = CleanerThrottler(self._config.log_cleaner_io_max_bytes_per_second)
        self._at_work: Partition | None = None
        self._oldest: Segment | None = None
        """Of the segments that the pass still needs."""
        self._work_is_gone = False
        """The partition of the running pass was deleted or went offline: the pass removes its files."""
        self._task: asyncio.Task[None] | None = None
        self._rounds: Periodic | None = None
        self._removals: dict[int, Timer] = {}
        self._closed = False

    def _read_checkpoint(self) -> dict[PartitionKey, int]:
        try:
            return self._directory.read_checkpoint(CLEANER_OFFSETS)
        except StorageError as error:
            # Nothing is lost with it: each log is compacted from its beginning once.
            log_events.warning("cleaner offsets are not known", file=error.path, reason=str(error))
            return {}

    def start(self) -> None:
        """From now on there may be passes: at once, and in each round in which a log's time has come."""
        self._look()
        self._rounds = Periodic(
            self._clock,
            self._config.log_cleaner_backoff_ms,
            self._look,
            Domain.RETENTION,
            self._next_look_ms,
        )

    # -- what happens to partitions -----------------------------------------------------------------------------

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
        """What was compacted and cut off comes anew; a pass that runs finds that its segments are not there."""
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
        """A pass that runs is given up; what it has put in place stays."""
        self._closed = self._throttler.abandoned = True
        for timer in (self._rounds, *self._removals.values()):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- choosing -----------------------------------------------------------------------------------------------

    def _next_look_ms(self) -> int | None:
        return min(self._candidates.values(), default=None) if self._task is None else None

    def _look(self) -> object:
        next_look_ms = self._next_look_ms()
        if self._closed or next_look_ms is None or next_look_ms > self._clock.now_ms(Domain.RETENTION):
            return NOTHING_DONE
        self._task = asyncio.get_running_loop().create_task(self._work())
        # All pieces of all passes are one piece of work for a clock that advances.
        self._clock.wait_for(self._task)
        return self._task

    async def _work(self) -> None:
        """Pass after pass, while there is something to compact and nothing goes wrong."""
        try:
            while not self._closed:
                chosen = self._choose()
                if chosen is None or not await self._compact(*chosen):
                    break
        finally:
            self._task = None

    def _choose(self) -> tuple[Partition, LogToClean] | None:
        """The log with the largest share of dirty bytes, of those that want it (`grabFilthiestCompactedLog`)."""
        now_ms = self._clock.now_ms(Domain.RETENTION)
        chosen: tuple[Partition, LogToClean] | None = None
        for partition in [each for each, due_ms in self._candidates.items() if due_ms <= now_ms]:
            try:
                found = self._look_at(partition, now_ms)
            except StorageError as error:
                self._give_up(partition, error)
                continue
            if found is not None and (chosen is None or found.dirty_ratio > chosen[1].dirty_ratio):
                chosen = (partition, found)
        return chosen

    def _look_at(self, partition: Partition, now_ms: int) -> LogToClean | None:
        """What can be compacted now, if that is worth it; else the log is looked at again in its time."""
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
        """One pass over one log; whether it came to its end."""
        began_ms = self._clock.now_ms(Domain.RETENTION)
        self._throttler = CleanerThrottler(self._config.log_cleaner_io_max_bytes_per_second)
        self._at_work, self._work_is_gone = partition, False
        self._oldest = partition.log.segments[0]
        try:
            work = await self._pass(partition, part, began_ms)
        except Abandoned:
            return False
        except Exception as error:  # whatever it is, it is this log's alone (`LogCleaningException`)
            # What retention has taken meanwhile, the oldest first, need not be found any more.
            if not self._work_is_gone and self._oldest is not None and partition.log.holds([self._oldest]):
                self._give_up(partition, error)
            return False
        finally:
            self._at_work = self._oldest = None
        if work is not None:
            self._report(partition, part, work, self._clock.now_ms(Domain.RETENTION) - began_ms)
        return work is not None

    async def _pass(self, partition: Partition, part: LogToClean, now_ms: int) -> Pass | None:
        """None if the segments were taken out of the log meanwhile."""
        # Most brokers never compact a log, and a start need not wait for it.
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
        """The segments to compact, as a thread may know them. There may be very many: the loop has its turns between."""
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
                now_ms,
                log.config.delete_retention_ms,
                {entry.producer_id: LastRecord(entry.last_offset, entry.epoch) for entry in entries},
            ),
            capacity(
                self._config.log_cleaner_dedupe_buffer_size, self._config.log_cleaner_io_buffer_load_factor
            ),
        )

    async def _install(self, partition: Partition, sources: list[Segment], cleaned: Cleaned) -> bool:
        """Put a compacted segment in the place of its sources, unless these were taken out of the log meanwhile."""
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
            return False  # its folder goes, or the next start puts the files in their place
        try:
            retired = log.replace(sources, cleaned.segment(self._clock.now_ms()))
        except StorageError as error:
            # Some files have their new names and some have not: only a start can tell which.
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

    def _give_up(self, partition: Partition, error: Exception) -> None:
        """Not again before a restart: a disk that is full or a batch that is broken stays so."""
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
    """Before the exchange: the new files' names are on the disk, and old files of an earlier pass are out of the way.

    To rename over a big file frees its blocks, which would hold up the loop.
    """
    for path in earlier:
        remove(path)
    sync_directory(directory)


def _discard(cleaned: Cleaned) -> None:
    try:
        cleaned.discard()
    except StorageError as error:
        say_not_removed(error)


def _settle(directory: LogDirectory, partition: Path, offsets: Mapping[PartitionKey, int]) -> None:
    """After the last exchange, what says that it need not be done again."""
    sync_directory(partition)
    directory.write_checkpoint(CLEANER_OFFSETS, offsets)
