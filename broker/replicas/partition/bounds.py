"""The invariant of the high watermark: log start <= high watermark <= log end, on every replica and at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.logging import get_logger

if TYPE_CHECKING:
    from storage.log import Log

log_events = get_logger()


class Bounded(Protocol):
    """The attributes of `broker.replicas.partition.Partition` that this module needs."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    high_watermark: int


def clamped(log: Log, high_watermark: int) -> int:
    """The offset nearest to ``high_watermark`` from the log start to the log end (``UnifiedLog.updateHighWatermark``)."""
    return max(min(high_watermark, log.log_end_offset), log.log_start_offset)


def check_bounds(partition: Bounded) -> None:
    """Clamp the high watermark and log an error, if it is below the log start or above the log end.

    Call this after the log start or log end moved and the high watermark did not. A high watermark out of bounds
    is a bug of this broker; the files are intact. Kafka clamps it silently, and does not take the partition
    offline. The tests and the simulation fail if the error was logged.
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
