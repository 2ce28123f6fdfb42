"""The transactions: the state of each at its coordinator, the readers that wait for open ones, and hanging ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Final

from broker.clock import Domain
from broker.cluster import Cluster
from broker.node import Node
from broker.replicas.partition import Partition
from broker.transactions.transaction import SETTLED, Transaction
from lab.views.forms import HeldUp, TransactionsSummary, TransactionSummary
from lab.views.led import first_open_offset, led, led_partitions
from lab.views.ports import HANGING, PARTITIONS_OF_ONE_MAX, TRANSACTIONS_MAX
from lab.views.turns import in_turns

PER_TURN: Final = 500
OPEN_PER_TURN: Final = 20
"""Number of transactions summarized in one turn of the event loop. Each has up to PARTITIONS_OF_ONE_MAX partitions."""
HANGING_MAX: Final = 100

Coordinated = tuple[Transaction, Node]
Place = tuple[int, str, int]
"""(producer id, topic, partition)"""


async def transactions(cluster: Cluster) -> TransactionsSummary:
    by_state: Counter[str] = Counter()
    open_ones: list[Coordinated] = []
    settled: list[Coordinated] = []
    async for txn, node in in_turns(_known(cluster), PER_TURN):
        by_state[txn.state.wire_name] += 1
        if txn.state not in SETTLED:
            open_ones.append((txn, node))
            continue
        settled.append((txn, node))
        if len(settled) >= 2 * PER_TURN:
            settled = nlargest(TRANSACTIONS_MAX, settled, key=_last_update)
    shown = await _hanging(cluster)
    if shown:
        by_state[HANGING] = len(shown)
    oldest = nsmallest(TRANSACTIONS_MAX - len(shown), open_ones, key=lambda each: each[0].start_ms)
    async for txn, node in in_turns(oldest, OPEN_PER_TURN):
        shown.append(_open_summary(cluster, txn, node))
    latest = nlargest(TRANSACTIONS_MAX - len(shown), settled, key=_last_update)
    shown += [_summary(txn, node) for txn, node in latest]
    return TransactionsSummary(total=sum(by_state.values()), by_state=dict(by_state), transactions=shown)


async def owners(cluster: Cluster) -> dict[Place, Transaction]:
    """(producer id, topic, partition) -> the coordinator's state, of each open or decided transaction."""
    found: dict[Place, Transaction] = {}
    async for txn, _ in in_turns(_known(cluster), PER_TURN):
        if txn.state in SETTLED:
            continue
        for producer_id in {txn.producer_id, txn.previous_producer_id}:
            for topic, index in txn.partitions:
                found[producer_id, topic, index] = txn
    return found


def _known(cluster: Cluster) -> Iterator[Coordinated]:
    for node in cluster.running_nodes():
        for txn in node.transactions.known():
            yield txn, node


def _last_update(coordinated: Coordinated) -> int:
    return coordinated[0].last_update_ms


def _summary(txn: Transaction, node: Node) -> TransactionSummary:
    is_open = txn.state not in SETTLED
    return TransactionSummary(
        transactional_id=txn.transactional_id,
        state=txn.state.wire_name,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        coordinator=node.node_id,
        timeout_ms=txn.timeout_ms,
        open_ms=max(0, node.clock.now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms)
        if is_open
        else None,
        partitions=[
            f"{topic}-{index}" for topic, index in islice(sorted(txn.partitions), PARTITIONS_OF_ONE_MAX)
        ],
        holds_up=[],
    )


def _open_summary(cluster: Cluster, txn: Transaction, node: Node) -> TransactionSummary:
    summary = _summary(txn, node)
    for topic, index in islice(sorted(txn.partitions), PARTITIONS_OF_ONE_MAX):
        partition = led(cluster, topic, index)
        if partition is None:
            continue
        producers = (txn.producer_id, txn.previous_producer_id)
        first = next((at for pid in producers if (at := first_open_offset(partition, pid)) is not None), None)
        if first is not None:
            summary.holds_up.append(waiting(partition, first))
    return summary


def waiting(partition: Partition, first_offset: int) -> HeldUp:
    """The part of a partition that the open transaction at ``first_offset`` hides. ``records`` is 0 if an earlier
    transaction is open.
    """
    is_first = partition.last_stable_offset >= first_offset
    return HeldUp(
        topic=partition.topic,
        partition=partition.index,
        first_offset=first_offset,
        records=max(0, partition.high_watermark - first_offset) if is_first else 0,
    )


async def _hanging(cluster: Cluster) -> list[TransactionSummary]:
    """Transactions that are open in a partition, and that no coordinator will end.

    While partitions and coordinators are read, transactions begin and end. So a transaction counts as hanging only if
    two searches find it.
    """
    suspects = await _unowned(cluster)
    if suspects:
        again = await _unowned(cluster)
        suspects = {place: at for place, at in suspects.items() if again.get(place) == at}
    found = []
    for (producer_id, topic, index), first_offset in islice(suspects.items(), HANGING_MAX):
        partition = led(cluster, topic, index)
        if partition is not None and first_open_offset(partition, producer_id) == first_offset:
            found.append(_hanging_summary(partition, first_offset, producer_id))
    return found


async def _unowned(cluster: Cluster) -> dict[Place, int]:
    """(producer id, topic, partition) -> first offset, of each open transaction that no coordinator has."""
    open_ones: dict[Place, int] = {}
    async for partition in in_turns(led_partitions(cluster), PER_TURN):
        for first_offset, producer_id in partition.log.producers.open_transactions():
            open_ones[producer_id, partition.topic, partition.index] = first_offset
    if not open_ones:
        return open_ones
    owned = await owners(cluster)
    return {place: at for place, at in open_ones.items() if place not in owned}


def _hanging_summary(partition: Partition, first_offset: int, producer_id: int) -> TransactionSummary:
    return TransactionSummary(
        transactional_id="",
        state=HANGING,
        producer_id=producer_id,
        producer_epoch=partition.log.producers.entries[producer_id].epoch,
        coordinator=None,
        timeout_ms=None,
        open_ms=None,
        partitions=[partition.name],
        holds_up=[waiting(partition, first_offset)],
    )
