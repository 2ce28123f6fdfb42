"""A follower's log gives up what its leader does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.logging import get_logger

if TYPE_CHECKING:
    from broker.partition import Partition

log_events = get_logger()


class Shortening(NamedTuple):
    """How a follower's log gives up what its leader does not have."""

    truncate: Callable[[Partition, int], None]
    """Cut every batch that holds this offset or more, and take the producers back to there."""
    start_anew: Callable[[Partition, int], None]
    """Drop everything and begin at this offset."""


def truncate(partition: Partition, offset: int) -> None:
    """Cut off what the leader does not have."""
    assert partition.shortening is not None
    before = partition.log_end_offset
    if offset < before:
        log_events.info(
            "log truncated",
            topic=partition.topic,
            partition=partition.index,
            leader_epoch=partition.leader_epoch,
            from_offset=before,
            to_offset=offset,
            high_watermark=partition.high_watermark,
        )
    partition.shorten(partition.shortening.truncate, offset)


def start_anew(partition: Partition, offset: int) -> None:
    """The leader's log begins behind the end of ours."""
    assert partition.shortening is not None
    log_events.warning(
        "log begins anew",
        topic=partition.topic,
        partition=partition.index,
        from_offset=partition.log_end_offset,
        to_offset=offset,
    )
    partition.shorten(partition.shortening.start_anew, offset)
    partition.high_watermark = max(partition.high_watermark, partition.log_start_offset)
