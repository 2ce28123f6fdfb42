"""Preview the effect of a marker on the consumers of a partition, before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.messages.describe_producers import ProducerState
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader, Seen
from tools.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offset
from tools.client.transactions import describe_producers

SAMPLE: Final = 5
"""Largest number of the transaction's first records that are stored in ``Ending.sample`` with their values."""


@dataclass(slots=True)
class Ending:
    """An open transaction in one partition, and what read_committed consumers get when it ends."""

    producer: ProducerState
    stable_offset: int
    """The last stable offset before the marker."""
    stable_offset_after: int
    """The last stable offset after the marker: the next open transaction's first offset, or the current log end."""
    holder: ProducerState | None
    """The producer whose open transaction holds back the last stable offset after the marker; None if none does."""
    records: int = 0
    readable: int = 0
    """Number of the transaction's records below ``stable_offset_after``."""
    last_offset: int = -1
    others: int = 0
    """Number of records outside the transaction that become visible whether the marker is COMMIT or ABORT."""
    sample: tuple[Seen, ...] = ()


def open_transaction(cluster: Cluster, topic: str, partition: int, start_offset: int) -> ProducerState:
    """The producer whose open transaction begins at this offset. Raises ``ToolError`` if there is none."""
    for each in describe_producers(cluster, topic, partition):
        if each.current_txn_start_offset == start_offset:
            return each
    raise ToolError(f"{topic}-{partition}: no open transaction begins at offset {start_offset}")


def ending_of(cluster: Cluster, topic: str, partition: int, start_offset: int) -> Ending:
    """Read the records above the last stable offset, and count what the end of one transaction makes visible."""
    producer = open_transaction(cluster, topic, partition, start_offset)
    stable = list_offset(cluster, topic, partition, LATEST, READ_COMMITTED)
    end = list_offset(cluster, topic, partition, LATEST)
    producers = describe_producers(cluster, topic, partition)
    rest = [
        each
        for each in producers
        if each.current_txn_start_offset >= 0 and each.producer_id != producer.producer_id
    ]
    holder = min(rest, key=lambda each: each.current_txn_start_offset, default=None)
    found = Ending(producer, stable, end if holder is None else holder.current_txn_start_offset, holder)
    reader = Reader(cluster, topic, partition, READ_UNCOMMITTED, min(stable, start_offset))
    while not reader.at_end:
        for seen in reader.read():
            _count(found, seen)
    return found


def _count(found: Ending, seen: Seen) -> None:
    offset = seen.record.offset
    readable = offset < found.stable_offset_after
    if seen.outcome == "open" and seen.batch.producer_id == found.producer.producer_id:
        found.records += 1
        found.readable += readable
        found.last_offset = offset
        if len(found.sample) < SAMPLE:
            found.sample += (seen,)
    elif seen.outcome in ("", "committed") and readable and offset >= found.stable_offset:
        found.others += 1
