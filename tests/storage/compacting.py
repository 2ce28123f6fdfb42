"""Compaction as the broker does it, in one call: the pass, then one exchange after the other."""

from __future__ import annotations

from storage.compaction.choice import Compactable, compactable, first_dirty_offset
from storage.compaction.filtering import LastRecord, Rules
from storage.compaction.grouping import Source
from storage.compaction.rewriting import Order, Pass
from storage.files import remove_all, sync_directory
from storage.log import Log
from tests.storage.logs import NOW_MS

CAPACITY = 100_000


def part_of(log: Log, checkpoint: int | None = None, now_ms: int = NOW_MS) -> Compactable:
    """What may be compacted of a log whose records are all committed."""
    unstable = log.producers.first_unstable_offset(log.log_end_offset)
    last_stable_offset = log.log_end_offset if unstable is None else min(unstable, log.log_end_offset)
    return compactable(log, first_dirty_offset(log, checkpoint)[0], last_stable_offset, now_ms)


def order_for(log: Log, part: Compactable, now_ms: int = NOW_MS, map_capacity: int = CAPACITY) -> Order:
    return Order(
        log.directory,
        [Source(each.base_offset, each.size) for each in log.segments if each.base_offset < part.upper_bound],
        part.first_dirty_offset,
        log.log_start_offset,
        log.config,
        Rules(
            part.upper_bound,
            now_ms,
            log.config.delete_retention_ms,
            {
                entry.producer_id: LastRecord(entry.last_offset, entry.epoch)
                for entry in log.producers.entries.values()
            },
        ),
        map_capacity,
    )


def install(log: Log, group: list[Source], work: Pass, now_ms: int = NOW_MS) -> None:
    bases = {source.base_offset for source in group}
    sources = [segment for segment in log.segments if segment.base_offset in bases]
    cleaned = work.rewrite(group)
    cleaned.offer()
    sync_directory(log.directory)
    retired = log.replace(sources, cleaned.segment(now_ms))
    assert retired is not None
    remove_all(retired)


def compact(
    log: Log,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW_MS,
    upper_bound: int | None = None,
    map_capacity: int = CAPACITY,
) -> int | None:
    """One pass; returns up to where the log is clean now, None where there was nothing to do."""
    part = part_of(log, checkpoint, now_ms)
    if upper_bound is not None:
        part = part._replace(upper_bound=upper_bound)
    if part.upper_bound <= part.first_dirty_offset:
        return None
    work = Pass(order_for(log, part, now_ms, map_capacity))
    work.prepare()
    for group in work.groups:
        install(log, group, work, now_ms)
    work.finish()
    return work.end_offset
