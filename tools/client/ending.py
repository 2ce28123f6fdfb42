"""What a marker would change for readers of a partition, before it is written."""

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
"""So many of a transaction's records are kept with their values."""


@dataclass(slots=True)
class Ending:
    """An open transaction of one partition, and what readers with read_committed get by its end."""

    producer: ProducerState
    stable_offset: int
    """Where readers stop now."""
    stable_offset_after: int
    """Where they would stop: at the next open transaction, or at what is the end of the log now."""
    holder: ProducerState | None
    """The open transaction that holds readers then."""
    records: int = 0
    readable: int = 0
    """How many of its records lie below ``stable_offset_after``."""
    last_offset: int = -1
    others: int = 0
    """Records of others that readers get by either marker."""
    sample: tuple[Seen, ...] = ()


def open_transaction(cluster: Cluster, topic: str, partition: int, start_offset: int) -> ProducerState:
    """The producer whose open transaction begins at an offset; ``ToolError`` if there is none."""
    for each in describe_producers(cluster, topic, partition):
        if each.current_txn_start_offset == start_offset:
            return each
    raise ToolError(f"{topic}-{partition}: no open transaction begins at offset {start_offset}")


def ending_of(cluster: Cluster, topic: str, partition: int, start_offset: int) -> Ending:
    """Read what is behind the last stable offset, and count what the end of one transaction changes."""
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
