"""Builds the timeline of a transactional id from logs that are read batch by batch."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final

from broker.injection.happenings import Happening
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.transactions.transaction import NO_PRODUCER_ID
from lab.trace.decoding import Decoded, request_dict
from lab.trace.exchange import Exchange, Names, no_names
from lab.trace.timeline import assemble
from lab.trace.timeline_records import (
    BatchKey,
    BatchWritten,
    CommittedOffset,
    Hanging,
    MarkerWritten,
    Scanned,
    StateRecord,
    TopicPartition,
)
from lab.trace.timeline_view import Timeline
from lab.trace.trace import Trace
from protocol.batch import RecordBatch, parse_end_txn_marker
from protocol.records.group_log import OffsetCommitKey, OffsetCommitValue, decode_key
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.slotted import slotted

PRODUCE: Final = 0


@slotted(frozen=True)
class ScanLimits:
    """The limits of the reads for one timeline."""

    bytes_max: int = 64 * 1024 * 1024
    """Largest number of bytes read of one log. Of a longer log only the end is read, and nothing before the first
    transaction of the transactional id."""
    offsets_max: int | None = None
    """Largest number of offsets read before the end of one log; None: unlimited."""
    exchanges_max: int = 5000
    """Largest number of exchanges read from the trace: the newest ones."""


class UnknownTransaction(LookupError):
    """No readable transaction log has a record of this transactional id. The message says so."""


class Scan(ABC):
    """A reader of logs, which records the parts that it has read."""

    unknown: str
    """Beginning of the error message if no log has a record of a transactional id. The id follows."""

    def __init__(self) -> None:
        self.scanned: list[Scanned] = []

    @abstractmethod
    async def home(self, transactional_id: str) -> TopicPartition | None:
        """The partition of ``__transaction_state`` for a transactional id; None if the topic does not exist yet."""

    @abstractmethod
    def batches(self, place: TopicPartition, since_ms: int | None) -> AsyncIterator[tuple[int, RecordBatch]]:
        """Read a log. Yields (node id, batch) for each batch, and adds a row to ``scanned``."""

    @abstractmethod
    async def hanging(self, transactional_id: str, producer_ids: frozenset[int]) -> list[Hanging]:
        """Transactions of these producers that no coordinator will end."""

    @abstractmethod
    def happenings(self) -> Iterable[Happening]:
        """The recorded starts and stops of nodes, elections, and hits of rules."""

    async def states(self, transactional_id: str) -> list[StateRecord]:
        """The records of a transactional id in ``__transaction_state``, in the order of the log."""
        place = await self.home(transactional_id)
        found: list[StateRecord] = []
        if place is None:
            return found
        needle = transactional_id.encode()
        async for node_id, batch in self.batches(place, None):
            # The content of a compressed batch cannot be searched for the id.
            if batch.is_control or (batch.compression == 0 and needle not in bytes(batch.body)):
                continue
            found += _state_records(node_id, place, batch, transactional_id)
        return found

    async def written(
        self, place: TopicPartition, producer_ids: frozenset[int], since_ms: int
    ) -> list[BatchWritten | MarkerWritten]:
        """The batches and markers of these producers in the partition ``place``, in the order of its log."""
        found: list[BatchWritten | MarkerWritten] = []
        async for node_id, batch in self.batches(place, since_ms):
            if batch.producer_id in producer_ids:
                written = _marker(node_id, place, batch) if batch.is_control else _data(node_id, place, batch)
                if written is not None:
                    found.append(written)
        return found


async def timeline_from(
    scan: Scan, transactional_id: str, trace: Trace | None = None, limits: ScanLimits | None = None
) -> Timeline:
    """The timeline of a transactional id, from the logs that ``scan`` reads, and from ``trace``.

    The trace need not have been on: the logs have everything except requests, responses and errors. Raises
    ``UnknownTransaction`` if there is no such id.
    """
    limits = limits or ScanLimits()
    states = await scan.states(transactional_id)
    if not states:
        raise UnknownTransaction(f"{scan.unknown} {transactional_id!r}")
    producer_ids = _producer_ids(states)
    since_ms = _since_ms(states)
    written: list[BatchWritten | MarkerWritten] = []
    hanging = await scan.hanging(transactional_id, producer_ids)
    places = frozenset[TopicPartition]().union(*(record.partitions for record in states))
    places |= {(each.topic, each.partition) for each in hanging}
    for place in sorted(places):
        written += await scan.written(place, producer_ids, since_ms)
    home = {(record.topic, record.partition) for record in states}
    happenings = [each for each in scan.happenings() if each.concerns(transactional_id, places | home)]
    every = [] if trace is None else trace.entries()
    names = no_names if trace is None else trace.names

    def put_together() -> Timeline:
        exchanges = _exchanges(every, transactional_id, producer_ids, limits)
        sent = _sent(exchanges, names)
        assembled = assemble(
            transactional_id, states, written, exchanges, sent, scan.scanned, hanging, happenings
        )
        return Timeline(assembled, names)

    # Assembling a long timeline takes time, so it is done in a thread. Its input does not change any more.
    return await asyncio.to_thread(put_together)


def _producer_ids(states: Sequence[StateRecord]) -> frozenset[int]:
    values = [record.value for record in states if record.value is not None]
    found = {value.producer_id for value in values}
    found |= {value.previous_producer_id for value in values}
    return frozenset(found - {NO_PRODUCER_ID})


def _sent(exchanges: Sequence[Exchange], names: Names) -> dict[int, set[BatchKey]]:
    """The batches in each Produce, by the number of the exchange. Frames that the trace has cut are skipped."""
    return {
        exchange.number: set(_batches_in(request_dict(exchange, names)))
        for exchange in exchanges
        if exchange.api_key == PRODUCE and not exchange.request_is_cut
    }


def _batches_in(produce: Decoded) -> Iterator[BatchKey]:
    for topic in produce.get("topic_data", ()):
        name = topic.get("name") or topic.get("topic_name")
        for partition in topic["partition_data"]:
            for batch in (partition["records"] or {}).get("batches", ()):
                yield (
                    name,
                    partition["index"],
                    batch["producer_id"],
                    batch["producer_epoch"],
                    batch["base_sequence"],
                )


def _since_ms(states: Sequence[StateRecord]) -> int:
    """Time at which the first known transaction started, in milliseconds since 1970.

    Later records of a transaction contain its start, too, for a log in which the first record no longer exists.
    """
    known = [record.time_ms for record in states]
    known += [
        record.value.transaction_start_timestamp_ms
        for record in states
        if record.value is not None and record.value.transaction_start_timestamp_ms > 0
    ]
    return min(known)


def _exchanges(
    every: Sequence[Exchange], transactional_id: str, producer_ids: frozenset[int], limits: ScanLimits
) -> list[Exchange]:
    def is_about(exchange: Exchange) -> bool:
        return any(
            facts.transactional_id == transactional_id
            or (facts.transactional_id is None and facts.producer_id in producer_ids)
            for facts in exchange.transactions
        )

    return [exchange for exchange in every if is_about(exchange)][-limits.exchanges_max :]


# -- batches


def _state_records(
    node_id: int, place: TopicPartition, batch: RecordBatch, transactional_id: str
) -> Iterator[StateRecord]:
    for record in batch.records():
        if record.key is None:
            continue
        try:
            if TransactionLogKey.decode(record.key).transactional_id != transactional_id:
                continue
            value = None if record.value is None else TransactionLogValue.decode(record.value)
        except ValueError:
            continue  # of an unknown kind or version, which the coordinator skips, too
        yield StateRecord(node_id, *place, record.offset, record.timestamp, value)


def _marker(node_id: int, place: TopicPartition, batch: RecordBatch) -> MarkerWritten | None:
    marker = parse_end_txn_marker(batch)
    if marker is None:
        return None
    return MarkerWritten(
        node_id,
        *place,
        batch.base_offset,
        batch.producer_id,
        batch.producer_epoch,
        marker.committed,
        marker.coordinator_epoch,
        batch.max_timestamp,
        batch.partition_leader_epoch,
    )


def _data(node_id: int, place: TopicPartition, batch: RecordBatch) -> BatchWritten:
    offsets = tuple(_offsets(batch)) if place[0] == CONSUMER_OFFSETS else ()
    return BatchWritten(
        node_id,
        *place,
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
        batch.record_count,
        batch.size,
        batch.max_timestamp,
        batch.partition_leader_epoch,
        batch.is_transactional,
        offsets,
    )


def _offsets(batch: RecordBatch) -> Iterator[CommittedOffset]:
    for record in batch.records():
        if record.key is None or record.value is None:
            continue
        try:
            key = decode_key(record.key)
            if isinstance(key, OffsetCommitKey):
                offset = OffsetCommitValue.decode(record.value).offset
                yield CommittedOffset(key.group, key.topic, key.partition, offset)
        except ValueError:
            continue
