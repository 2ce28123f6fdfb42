"""Adds the batches that a truncation is about to remove to the ledger of lost records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.injection.losses import ACKS_1, COMMITTED, PERHAPS_COMMITTED, Loss, Losses
from protocol.batch import CorruptBatch, RecordBatch
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.replication.context import ReplicationContext

BATCHES_MAX: Final = 1000
"""Maximum number of batches of one truncation that are recorded; later batches are not."""


def note_truncated(partition: Partition, offset: int, context: ReplicationContext) -> None:
    """Record the loss of the batches from ``offset`` on, which a follower truncates because its leader lacks them."""
    note_lost(
        partition,
        offset,
        context.injection.losses,
        now_ms=context.clock.cluster_ms(),
        node_id=context.node_id,
        unclean=context.is_led_uncleanly(partition),
    )


def note_lost(
    partition: Partition, offset: int, losses: Losses, *, now_ms: int, node_id: int, unclean: bool = False
) -> None:
    """Record the loss of the batches from ``offset`` on, up to the first batch that cannot be read."""
    current: Loss | None = None
    try:
        for batch in _batches(partition, offset):
            acknowledged = _acknowledged(partition, batch, unclean=unclean)
            if current is not None and _continues(current, batch, acknowledged):
                current.last_offset = batch.last_offset
                current.records += batch.record_count
                continue
            if current is not None:
                losses.note(current)
            current = Loss(
                now_ms,
                partition.topic,
                partition.index,
                batch.base_offset,
                batch.last_offset,
                batch.record_count,
                batch.producer_id,
                batch.producer_epoch,
                acknowledged,
                batch.partition_leader_epoch,
                partition.leader_id,
                partition.leader_epoch,
                [node_id],
            )
    except (CorruptBatch, StorageError, OSError):
        pass
    if current is not None:
        losses.note(current)


def _batches(partition: Partition, offset: int) -> Iterator[RecordBatch]:
    """At most ``BATCHES_MAX`` batches from ``offset`` on, without markers: the coordinator writes these again."""
    batches = islice(partition.log.batches(offset), BATCHES_MAX)
    return (batch for batch in batches if not batch.is_control)


def _acknowledged(partition: Partition, batch: RecordBatch, *, unclean: bool) -> str:
    if batch.last_offset < partition.high_watermark:
        return COMMITTED
    return PERHAPS_COMMITTED if unclean else ACKS_1


def _continues(loss: Loss, batch: RecordBatch, acknowledged: str) -> bool:
    return (
        loss.last_offset + 1 == batch.base_offset
        and loss.acknowledged == acknowledged
        and loss.written_epoch == batch.partition_leader_epoch
        and (loss.producer_id, loss.producer_epoch) == (batch.producer_id, batch.producer_epoch)
    )
