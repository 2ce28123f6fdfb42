"""The bounds of a high watermark: log start <= high watermark <= log end, at every replica and at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.logging import get_logger

if TYPE_CHECKING:
    from storage.log import Log

log_events = get_logger()


class Bounded(Protocol):
    """`broker.replicas.partition.Partition`, which calls this."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    high_watermark: int


def clamped(log: Log, high_watermark: int) -> int:
    """The nearest offset that this log has (``UnifiedLog.updateHighWatermark``)."""
    return max(min(high_watermark, log.log_end_offset), log.log_start_offset)


def check_bounds(partition: Bounded) -> None:
    """Call it wherever a log start or log end has moved and the high watermark has not.

    A high watermark out of bounds is a defect of this broker; its files are sound. Kafka clamps without a line in its log,
    and takes no partition offline for it. Here the high watermark is clamped too, and an error names it, which the tests
    and the simulation do not let pass.
    """
    log = partition.log
    if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
        report(partition)
        partition.high_watermark = clamped(log, partition.high_watermark)


def report(partition: Bounded) -> None:
    log_events.error(
        "high watermark outside of its log",
        topic=partition.topic,
        partition=partition.index,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.log_start_offset,
        log_end_offset=partition.log.log_end_offset,
        leader_epoch=partition.leader_epoch,
    )
