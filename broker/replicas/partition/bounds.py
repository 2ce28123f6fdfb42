"""The bounds of a high watermark: log start <= high watermark <= log end, at every replica and at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.logging import get_logger

if TYPE_CHECKING:
    from broker.replicas.partition.reading import ReadablePartition
    from storage.log import Log

log_events = get_logger()


def clamped(log: Log, high_watermark: int) -> int:
    """The nearest offset that this log has (``UnifiedLog.updateHighWatermark``)."""
    return max(min(high_watermark, log.log_end_offset), log.log_start_offset)


def check_bounds(partition: ReadablePartition) -> None:
    """Call it wherever a log start or log end has moved and the high watermark has not.

    A high watermark out of bounds is a defect of this broker; its files are sound. Kafka clamps without a line in its log,
    and takes no partition offline for it. Here the high watermark is clamped too, and an error names it, which the tests
    and the simulation do not let pass.
    """
    log = partition.log
    if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
        report(partition)
        partition.high_watermark = clamped(log, partition.high_watermark)


def report(partition: ReadablePartition) -> None:
    log_events.error(
        "high watermark outside of its log",
        topic=partition.topic,
        partition=partition.index,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        log_end_offset=partition.log_end_offset,
        leader_epoch=partition.leader_epoch,
    )
