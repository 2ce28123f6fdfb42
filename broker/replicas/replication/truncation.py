"""A follower's log gives up what its leader does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.replicas.replication.lost_records import note_truncated

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.replication.context import ReplicationContext

log_events = get_logger()


def truncate(partition: Partition, offset: int, context: ReplicationContext) -> None:
    """Cut off what the leader does not have.

    That was committed if it lies below the high watermark, and may have been if the leader was elected uncleanly: a log
    that was opened after a kill knows an older high watermark.
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
    """The leader's log begins behind the end of ours."""
    log_events.warning(
        "log begins anew",
        node_id=context.node_id,
        topic=partition.topic,
        partition=partition.index,
        from_offset=partition.log_end_offset,
        to_offset=offset,
    )
    partition.truncate_by(context.truncation.truncate_fully_and_start_at, offset)
