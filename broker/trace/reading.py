"""Reads what the logs of the running nodes hold of a transactional id.

In slices: between them others have their turns, and the logs may change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from broker.clock import Clock, Domain
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.node import Node
from broker.replicas.partition import Partition
from broker.trace.decoding import Decoded, request_dict
from broker.trace.exchange import Exchange, Names, no_names
from broker.trace.hanging import hanging_of
from broker.trace.timeline import assemble
from broker.trace.timeline_records import (
    BatchKey,
    BatchWritten,
    CommittedOffset,
    MarkerWritten,
    Scanned,
    StateRecord,
    TopicPartition,
)
from broker.trace.timeline_view import Timeline, state_name
from broker.trace.trace import Trace
from broker.transactions.state import NO_PRODUCER_ID, SETTLED, Transaction
from protocol.batch import CorruptBatch, RecordBatch, parse_end_txn_marker
from protocol.hashing import partition_for
from protocol.records.group_log import OffsetCommitKey, OffsetCommitValue, decode_key
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from storage.files import StorageError
from storage.log import Log

PRODUCE: Final = 0
SLICE_BATCHES: Final = 1000
SLICE_BYTES: Final = 4 * 1024 * 1024
"""Read without a pause: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """How much is read for one timeline."""

    bytes_max: int = 64 * 1024 * 1024
    """Of one log. Of a longer one, what is not older than the first transaction known of the id, and then the end."""
    exchanges_max: int = 5000
    """From the trace's ring, the newest."""


class UnknownTransaction(LookupError):
    """No running node has heard of this transactional id; the text says so."""


async def timeline(
    nodes: Sequence[Node],
    transactional_id: str,
    trace: Trace | None = None,
    limits: ScanLimits | None = None,
) -> Timeline:
    """The life of an id, from the logs of the leaders among ``nodes`` (the running ones), and from the trace's ring.

    It does not ask that the trace has been on: the logs know all but requests, answers and what was refused.
    ``UnknownTransaction`` if there is no such id.
    """
    limits = limits or ScanLimits()
    scan = _Scan(nodes, limits)
    states = await scan.states(transactional_id)
    if not states:
        raise UnknownTransaction(f"no transaction log of the running nodes knows the id {transactional_id!r}")
    producer_ids = _producer_ids(states)
    since_ms = _since_ms(states)
    written: list[BatchWritten | MarkerWritten] = []
    hanging = await hanging_of(nodes, transactional_id, producer_ids)
    places = frozenset[TopicPartition]().union(*(record.partitions for record in states))
    places |= {(each.topic, each.partition) for each in hanging}
    for place in sorted(places):
        written += await scan.written(place, producer_ids, since_ms)
    home = {(record.topic, record.partition) for record in states}
    happenings = [
        each for each in nodes[0].injection.happenings if each.concerns(transactional_id, places | home)
    ]
    every = [] if trace is None else trace.entries()
    names = no_names if trace is None else trace.names

    def put_together() -> Timeline:
        exchanges = _exchanges(every, transactional_id, producer_ids, limits)
        sent = _sent(exchanges, names)
        assembled = assemble(
            transactional_id, states, written, exchanges, sent, scan.scanned, hanging, happenings
        )
        return Timeline(assembled, names)

    # A long life takes a while to be put together; what it is made of does not change any more.
    return await asyncio.to_thread(put_together)


def transactions(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Every transactional id that the coordinators on ``nodes`` know, by its name.

    [{"transactional_id", "state": "Ongoing", "producer_id", "producer_epoch", "timeout_ms", "start_ms" (null: none is
    open), "open_ms" (for so long, as its time-out counts), "last_update_ms", "partitions": ["orders-0"],
    "coordinator": node id}]
    """
    found = {
        txn.transactional_id: (txn, node)
        for node in nodes
        for index, shard in node.transactions.memory().items()
        # Else it was this node's once.
        if isinstance(node.replicas.leader(TRANSACTION_STATE, index), Partition)
        for txn in shard.values()
    }
    return [transaction_view(txn, node.node_id, node.clock) for _, (txn, node) in sorted(found.items())]


def transaction_view(txn: Transaction, coordinator: int, clock: Clock) -> dict[str, Any]:
    """One entry of ``transactions``."""
    is_open = txn.state not in SETTLED
    return {
        "transactional_id": txn.transactional_id,
        "state": state_name(txn.state),
        "producer_id": txn.producer_id,
        "producer_epoch": txn.epoch,
        "timeout_ms": txn.timeout_ms,
        "start_ms": txn.start_ms if is_open else None,
        "open_ms": clock.now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms if is_open else None,
        "last_update_ms": txn.last_update_ms,
        "partitions": [f"{topic}-{partition}" for topic, partition in sorted(txn.partitions)],
        "coordinator": coordinator,
    }


def _producer_ids(states: Sequence[StateRecord]) -> frozenset[int]:
    values = [record.value for record in states if record.value is not None]
    found = {value.producer_id for value in values}
    found |= {value.previous_producer_id for value in values}
    return frozenset(found - {NO_PRODUCER_ID})


def _sent(exchanges: Sequence[Exchange], names: Names) -> dict[int, set[BatchKey]]:
    """Which batches each Produce brought; what was cut does not say it."""
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
    """When the first transaction that is known began; of one whose beginning is gone from the log the rest says it."""
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


# -- logs -----------------------------------------------------------------------------------------------------------


class _Scan:
    """Reads logs and writes down which parts of them."""

    def __init__(self, nodes: Sequence[Node], limits: ScanLimits) -> None:
        self._nodes = nodes
        self._limits = limits
        self.scanned: list[Scanned] = []

    async def states(self, transactional_id: str) -> list[StateRecord]:
        """The records of the id, in the order of the log."""
        place = self._home(transactional_id)
        found: list[StateRecord] = []
        if place is None:
            return found
        needle = transactional_id.encode()
        async for node_id, batch in self._batches(place, None):
            # A compressed batch does not show what is in it.
            if batch.is_control or (batch.compression == 0 and needle not in bytes(batch.body)):
                continue
            found += _state_records(node_id, place, batch, transactional_id)
        return found

    def _home(self, transactional_id: str) -> TopicPartition | None:
        topic = self._nodes[0].metadata.topic(TRANSACTION_STATE) if self._nodes else None
        if topic is None:
            return None
        return TRANSACTION_STATE, partition_for(transactional_id, len(topic.partitions))

    async def written(
        self, place: TopicPartition, producer_ids: frozenset[int], since_ms: int
    ) -> list[BatchWritten | MarkerWritten]:
        """What these producers have written to a partition."""
        found: list[BatchWritten | MarkerWritten] = []
        async for node_id, batch in self._batches(place, since_ms):
            if batch.producer_id in producer_ids:
                written = _marker(node_id, place, batch) if batch.is_control else _data(node_id, place, batch)
                if written is not None:
                    found.append(written)
        return found

    async def _batches(
        self, place: TopicPartition, since_ms: int | None
    ) -> AsyncIterator[tuple[int, RecordBatch]]:
        """The node whose log is read, and each batch of it."""
        replica = self._replica(place)
        if replica is None:
            return
        node_id, log = replica
        start, is_whole = _start(log, self._limits.bytes_max, since_ms)
        end = position = max(start, log.log_start_offset)
        goes_on = True
        while goes_on:
            goes_on = False
            try:
                for batch in _slice(log, position):
                    yield node_id, batch
                    end = position = batch.next_offset
                    goes_on = True
            except (StorageError, CorruptBatch, OSError):
                is_whole = False  # it was cut or taken away while others had their turn
                break
            await asyncio.sleep(0)
        self.scanned.append(Scanned(*place, node_id, start, end, is_whole))

    def _replica(self, place: TopicPartition) -> tuple[int, Log] | None:
        """The leader's log; while no leader is running, the longest of the followers'."""
        found: list[tuple[bool, int, int, Log]] = []
        for node in self._nodes:
            partition = node.replicas.get(*place)
            if partition is not None and partition.offline is None:
                leads = partition.leader_id == node.node_id
                found.append((leads, partition.log.log_end_offset, node.node_id, partition.log))
        if not found:
            return None
        _, _, node_id, log = max(found, key=_rank)
        return node_id, log


_rank: Callable[[tuple[bool, int, int, Log]], tuple[bool, int]] = lambda each: each[:2]  # noqa: E731


def _slice(log: Log, offset: int) -> Iterator[RecordBatch]:
    """Batches from ``offset``'s batch on, as many as one turn may read."""
    size = 0
    for batch in islice(log.batches(offset), SLICE_BATCHES):
        yield batch
        size += batch.size
        if size >= SLICE_BYTES:
            return


def _start(log: Log, bytes_max: int, since_ms: int | None) -> tuple[int, bool]:
    """Where to begin, and whether everything that matters lies behind it.

    The time index is only asked where the log is too long to be read: what a client stamps need not be the time at
    which it wrote.
    """
    start = log.log_start_offset
    if log.size <= bytes_max:
        return start, True
    by_time = log.find_timestamp(since_ms) if since_ms is not None else None
    if by_time is not None:
        start = max(start, by_time.offset)
    total = 0
    for segment in reversed(log.segments):
        if segment.base_offset <= start:
            return start, by_time is not None
        total += segment.size
        if total > bytes_max:
            return segment.base_offset, False
    return start, by_time is not None


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
            continue  # of a kind or version that is not known here, as for the coordinator
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
