"""Reads the timeline and the states of a transactional id from the logs of the running nodes.

The logs are read in slices, between which the event loop serves other tasks. So the logs may change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from broker.clock import Clock, Domain
from broker.config.definitions import nearest
from broker.injection.happenings import Happening
from broker.metadata.topics import TRANSACTION_STATE
from broker.node import Node
from broker.replicas.partition import Partition
from broker.transactions.transaction import SETTLED, Transaction
from lab.trace.hanging import hanging_of
from lab.trace.scanning import Scan, ScanLimits, UnknownTransaction, timeline_from
from lab.trace.timeline_records import Hanging, Scanned, StateRecord, TopicPartition
from lab.trace.timeline_view import Timeline, state_name
from lab.trace.trace import Trace
from protocol.batch import CorruptBatch, RecordBatch
from storage.files import StorageError
from storage.log import Log

__all__ = ["ScanLimits", "UnknownTransaction", "states", "timeline", "transaction_view", "transactions"]

SLICE_BATCHES: Final = 1000
SLICE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a log that are read in one turn of the event loop, which takes a few milliseconds."""


async def timeline(
    nodes: Sequence[Node],
    transactional_id: str,
    trace: Trace | None = None,
    limits: ScanLimits | None = None,
) -> Timeline:
    """The timeline of a transactional id, from the leaders' logs on ``nodes`` (the running ones) and from a ``trace``.

    Raises ``UnknownTransaction`` if there is no such id.
    """
    try:
        return await timeline_from(NodesScan(nodes, limits or ScanLimits()), transactional_id, trace, limits)
    except UnknownTransaction as unknown:
        near = nearest(transactional_id, [each["transactional_id"] for each in transactions(nodes)])
        raise UnknownTransaction(f"{unknown}; did you mean {near!r}?" if near else str(unknown)) from None


async def states(nodes: Sequence[Node], transactional_id: str, offsets_max: int) -> list[StateRecord] | None:
    """The records of a transactional id in the last ``offsets_max`` offsets of its ``__transaction_state`` partition.

    The oldest record is first. An empty list: the whole partition was read, and has none. None: none was found, but the
    log was not read from its start, or no running node has the partition.
    """
    scan = NodesScan(nodes, ScanLimits(offsets_max=offsets_max))
    found = await scan.states(transactional_id)
    return found if found or (scan.scanned and scan.scanned[0].is_whole) else None


def transactions(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """All transactional ids that the coordinators on ``nodes`` know, by name.

    [{"transactional_id", "state": "Ongoing", "producer_id", "producer_epoch", "timeout_ms", "start_ms" (null: none is
    open), "open_ms" (how long it has been open, as its timeout counts), "last_update_ms", "partitions": ["orders-0"],
    "coordinator": node id}]
    """
    found = {
        txn.transactional_id: (txn, node)
        for node in nodes
        for index, shard in node.transactions.memory().items()
        # Skip the state of a partition that this node no longer leads.
        if isinstance(node.replicas.leader(TRANSACTION_STATE, index), Partition)
        for txn in shard.values()
    }
    return [transaction_view(txn, node.node_id, node.clock) for _, (txn, node) in sorted(found.items())]


def transaction_view(txn: Transaction, coordinator: int, clock: Clock) -> dict[str, Any]:
    """The entry for one transactional id in the list that `transactions` returns."""
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


class NodesScan(Scan):
    """Reads the leaders' logs on nodes of this process."""

    unknown = "no transaction log of the running nodes knows the id"

    def __init__(self, nodes: Sequence[Node], limits: ScanLimits) -> None:
        super().__init__()
        self._nodes = nodes
        self._limits = limits

    async def home(self, transactional_id: str) -> TopicPartition | None:
        if not self._nodes or self._nodes[0].metadata.topic(TRANSACTION_STATE) is None:
            return None
        return TRANSACTION_STATE, self._nodes[0].transactions.partition_for(transactional_id)

    async def hanging(self, transactional_id: str, producer_ids: frozenset[int]) -> list[Hanging]:
        return await hanging_of(self._nodes, transactional_id, producer_ids)

    def happenings(self) -> Iterable[Happening]:
        return self._nodes[0].injection.happenings

    async def batches(
        self, place: TopicPartition, since_ms: int | None
    ) -> AsyncIterator[tuple[int, RecordBatch]]:
        """Yield (node id, batch) for each batch of the partition ``place`` from the offset of `_start` on."""
        replica = self._replica(place)
        if replica is None:
            return
        node_id, log = replica
        start, is_whole = _start(log, self._limits.bytes_max, since_ms)
        if self._limits.offsets_max is not None and log.log_end_offset - start > self._limits.offsets_max:
            start, is_whole = log.log_end_offset - self._limits.offsets_max, False
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
                is_whole = False  # the log was truncated or deleted in another turn
                break
            await asyncio.sleep(0)
        self.scanned.append(Scanned(*place, node_id, start, end, is_whole))

    def _replica(self, place: TopicPartition) -> tuple[int, Log] | None:
        """(node id, log) of the leader of ``place``; if no leader is running, the longest log of a follower.

        None if no running node has the partition.
        """
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
    """Batches beginning with the one that contains ``offset``, as many as may be read in one turn of the event loop."""
    size = 0
    for batch in islice(log.batches(offset), SLICE_BATCHES):
        yield batch
        size += batch.size
        if size >= SLICE_BYTES:
            return


def _start(log: Log, bytes_max: int, since_ms: int | None) -> tuple[int, bool]:
    """(offset at which reading begins, whether the timeline has no batch below this offset).

    Of a log longer than ``bytes_max`` only the end is read; if ``since_ms`` is not None, from the first record at
    this time on, according to the time index. A shorter log is read from its start, without the time index,
    because a client's timestamp need not be the time at which the client wrote.
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
