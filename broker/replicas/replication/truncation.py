"""Truncation of a follower's log to the part that the leader has as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.replicas.replication.lost_records import note_truncated

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.replication.context import ReplicationContext

log_events = get_logger()


def truncate(partition: Partition, offset: int, context: ReplicationContext) -> None:
    """Truncate the log to ``offset``, because the leader does not have the rest, and record the lost batches.

    A warning is logged if committed records may be lost. Records below the high watermark were committed. After an
    unclean election, records above it may have been committed too, since a log that was opened after a kill has an
    older, checkpointed high watermark.
    """
    before = partition.log_end_offset
    if offset < before:
        unclean = offset < partition.high_watermark or context.is_led_uncleanly(partition)
        log = log_events.warning if unclean else log_events.info
        log(
            "log truncated after an unclean leader election: records are lost"
            if unclean
            else "log truncated",
            node_id=context.node_id,
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            from_offset=before,
            to_offset=offset,
            high_watermark=partition.high_watermark,
        )
        note_truncated(partition, offset, context)
    partition.truncate_by(context.truncation.truncate, offset)


def truncate_fully_and_start_at(partition: Partition, offset: int, context: ReplicationContext) -> None:
    """Delete the whole log and start it at ``offset``, because the leader's log starts after the end of this one."""
    log_events.warning(
        "log restarted at the leader's log start",
        node_id=context.node_id,
        topic=partition.topic,
        partition=partition.index,
        from_offset=partition.log_end_offset,
        to_offset=offset,
    )
    partition.truncate_by(context.truncation.truncate_fully_and_start_at, offset)
