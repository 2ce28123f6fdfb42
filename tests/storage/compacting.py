"""Compaction in one call, in the steps of the broker: one pass, then the replacement of the groups of segments, one after
the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.injection.crash import on_passage
from protocol.batch import Record, batches, parse_end_txn_marker
from storage.compaction.choice import LogToClean, compactable, first_dirty_offset
from storage.compaction.filtering import LastRecord, Rules
from storage.compaction.grouping import Source
from storage.compaction.rewriting import Order, Pass
from storage.files import remove_all, sync_directory
from storage.log import Log
from tests.storage.dying import Killed
from tests.storage.logs import NOW_MS

CAPACITY = 100_000


def part_of(log: Log, checkpoint: int | None = None, now_ms: int = NOW_MS) -> LogToClean:
    """The part of the log that may be compacted, if all of its records are committed."""
    unstable = log.producers.first_unstable_offset(log.log_end_offset)
    last_stable_offset = log.log_end_offset if unstable is None else min(unstable, log.log_end_offset)
    return compactable(log, first_dirty_offset(log, checkpoint)[0], last_stable_offset, now_ms)


def order_for(log: Log, part: LogToClean, now_ms: int = NOW_MS, map_capacity: int = CAPACITY) -> Order:
    return Order(
        log.directory,
        [Source(each.base_offset, each.size) for each in log.segments if each.base_offset < part.upper_bound],
        part.first_dirty_offset,
        log.log_start_offset,
        log.config,
        Rules(
            part.upper_bound,
            log.log_end_offset,
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
    """Run one compaction pass, and install its result in the log.

    Returns the first dirty offset after the pass, None if there was nothing to compact.
    """
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


class Countdown:
    """A hook that raises ``Killed`` after a number of system calls, as if the process had been killed."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, name: str) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Killed(name)


def calls_of(work: Callable[[], object]) -> int:
    """Number of system calls of ``work`` that change a file."""
    passages: list[str] = []
    with on_passage(passages.append):
        work()
    return len(passages)


def consumed(log: Log, *, read_committed: bool) -> list[Record]:
    """The records that a consumer gets from the start of the log, a few batches at a time (the Java client's algorithm)."""
    records: list[Record] = []
    offset = log.log_start_offset
    unstable = log.producers.first_unstable_offset(log.log_end_offset)
    end_offset = log.log_end_offset if unstable is None or not read_committed else unstable
    while (span := log.read(offset, end_offset, 300, whole_first_batch=True)) is not None:
        found = log.aborted_transactions(offset, span) if read_committed else []
        coming = sorted(found, key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        for batch in batches(span.bytes()):
            while coming and coming[0].first_offset <= batch.last_offset:
                aborted.add(coming.pop(0).producer_id)
            offset = batch.next_offset
            if batch.is_control:
                marker = parse_end_txn_marker(batch)
                if marker is not None and not marker.committed:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                records += batch.records()
    return records


def latest(records: Iterable[Record]) -> dict[bytes, tuple[int, bytes]]:
    """Offset and value of the last record of each key, without keys whose last record is a tombstone."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for record in records:
        assert record.key is not None
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = (record.offset, record.value)
    return found
