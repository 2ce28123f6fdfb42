"""Reads a partition into the memory of its coordinator, in turns of the event loop. Kafka's ``CoordinatorLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.replicas.partition import Partition
from protocol.batch import CorruptBatch, RecordBatch
from protocol.schema import MalformedRecord
from storage.salvage import Damaged, unreadable

LOAD_TURN_RECORDS: Final = 500
"""Number of records after which a load yields to the event loop."""


def load_log(
    partition: Partition, replay: Callable[[RecordBatch], object], damaged: DamagedRecords
) -> Iterator[None]:
    """Call ``replay`` with each batch from log start to log end. Yields between slices of work.

    The load ends at the log end, not at the high watermark, because a new leader commits everything that is in its log.
    Damaged batches, and those for which ``replay`` raises CorruptBatch or MalformedRecord, are added to ``damaged``.
    """
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        before, replayed = offset, 0
        for found in log.sound_batches(offset):
            if isinstance(found, Damaged):
                damaged.note(found)
                replayed += 1
            else:
                try:
                    replay(found)
                except (CorruptBatch, MalformedRecord) as error:
                    damaged.note(unreadable(found, str(log.directory), str(error)))
                replayed += found.record_count
            offset = max(offset, found.next_offset)
            if replayed >= LOAD_TURN_RECORDS:
                break
        if offset == before:
            break
        if offset < log.log_end_offset:
            yield
