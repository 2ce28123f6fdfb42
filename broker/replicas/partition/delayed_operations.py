"""The requests that wait for something to happen at a partition (Kafka: DelayedOperations)."""

from __future__ import annotations

from collections.abc import Callable

from broker.replicas.partition.offset_purgatory import Callback, OffsetPurgatory
from protocol.errors import NONE, ErrorCode


class DelayedOperations:
    """The callbacks that wait at one partition: a Produce for an offset, a Fetch or DeleteRecords for any change.

    The callback of a Produce is called once, with the verdict on its records. A watcher is called at each change, until
    it is unwatched; it checks by itself whether it waits for this change.
    """

    __slots__ = ("commits", "watchers")

    def __init__(self) -> None:
        self.commits = OffsetPurgatory()
        self.watchers: dict[Callable[[], None], None] = {}

    def add_commit(self, end_offset: int, callback: Callback) -> None:
        """Call back once all below ``end_offset`` is committed."""
        self.commits.add(end_offset, callback)

    def committed(self, high_watermark: int, verdict: ErrorCode = NONE) -> None:
        """All below the high watermark is committed."""
        if self.commits.pending:
            self.commits.release(high_watermark, verdict)
        if self.watchers:
            self.notify()

    def dismiss(self, error: ErrorCode) -> None:
        """Nothing more is committed here: requests that wait for it fail with ``error``."""
        self.commits.dismiss(error)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back, until unwatched, whenever the high watermark, the log start or the leader changes."""
        self.watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self.watchers.pop(callback, None)

    def notify(self) -> None:
        """Something has changed: call the watchers."""
        for callback in tuple(self.watchers):
            callback()
