"""Finds hanging transactions of a transactional id: open in a partition, unknown to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from broker.metadata.topics import TRANSACTION_STATE
from broker.node import Node
from broker.replicas.partition import Partition
from broker.transactions.transaction import SETTLED, Transaction
from lab.trace.timeline_records import Hanging

PARTITIONS_PER_TURN: Final = 1000


async def hanging_of(
    nodes: Sequence[Node], transactional_id: str, producer_ids: Collection[int]
) -> list[Hanging]:
    """Open transactions of these producers, in partitions that the nodes lead, that the coordinator does not know.

    Empty if no running node coordinates the id: without a coordinator it is not known which transactions hang.
    """
    coordinated = _coordinated(nodes, transactional_id)
    if coordinated is None:
        return []
    found: list[Hanging] = []
    looked_at = 0
    for node in nodes:
        for partition in node.replicas.opened():
            looked_at += 1
            if looked_at % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if partition.leader_id != node.node_id or partition.offline is not None:
                continue
            for offset, producer_id in partition.log.producers.open_transactions():
                if producer_id in producer_ids and not _is_known(coordinated, partition, producer_id):
                    epoch = partition.log.producers.entries[producer_id].epoch
                    place = (partition.topic, partition.index)
                    found.append(Hanging(*place, node.node_id, offset, producer_id, epoch))
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _coordinated(nodes: Sequence[Node], transactional_id: str) -> Transaction | None:
    for node in nodes:
        index = node.transactions.partition_for(transactional_id)
        if not isinstance(node.replicas.leader(TRANSACTION_STATE, index), Partition):
            continue
        found = node.transactions.memory().get(index, {}).get(transactional_id)
        if found is not None:
            return found
    return None


def _is_known(txn: Transaction, partition: Partition, producer_id: int) -> bool:
    """Whether the coordinator knows the transaction and will end it."""
    return (
        txn.state not in SETTLED
        and producer_id in (txn.producer_id, txn.previous_producer_id)
        and (partition.topic, partition.index) in txn.partitions
    )
