"""A follower's log gives up what its leader does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.logging import get_logger

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.replication.surroundings import Surroundings

log_events = get_logger()


class Shortening(NamedTuple):
    """How a follower's log gives up what its leader does not have."""

    truncate: Callable[[Partition, int], None]
    """Cut every batch that holds this offset or more, and take the producers back to there."""
    start_anew: Callable[[Partition, int], None]
    """Drop everything and begin at this offset."""


def truncate(partition: Partition, offset: int, around: Surroundings) -> None:
    """Cut off what the leader does not have.

    That was committed if it lies below the high watermark, and may have been if the leader was elected uncleanly: a log
    that was opened after a kill knows an older high watermark.
    """
    assert partition.shortening is not None
    before = partition.log_end_offset
    if offset < before:
        unclean = offset < partition.high_watermark or around.is_led_uncleanly(partition)
        log = log_events.warning if unclean else log_events.info
        log(
            "log truncated after an unclean leader election: records are lost"
            if unclean
            else "log truncated",
            node_id=around.node_id,
            topic=partition.topic,
            partition=partition.index,
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            from_offset=before,
            to_offset=offset,
            high_watermark=partition.high_watermark,
        )
    partition.shorten(partition.shortening.truncate, offset)


def start_anew(partition: Partition, offset: int, around: Surroundings) -> None:
    """The leader's log begins behind the end of ours."""
    assert partition.shortening is not None
    log_events.warning(
        "log begins anew",
        node_id=around.node_id,
        topic=partition.topic,
        partition=partition.index,
        from_offset=partition.log_end_offset,
        to_offset=offset,
    )
    partition.shorten(partition.shortening.start_anew, offset)
    partition.high_watermark = max(partition.high_watermark, partition.log_start_offset)
