"""The requests that wait for a partition to change (Kafka: DelayedOperations)."""

from __future__ import annotations

from collections.abc import Callable

from broker.replicas.partition.offset_purgatory import Callback, OffsetPurgatory
from protocol.errors import NONE, ErrorCode


class DelayedOperations:
    """The callbacks of requests that wait at one partition: Produce for an offset, Fetch and DeleteRecords for any change.

    The callback of a Produce is called once, with the error code for its records. The callback of a Fetch or
    DeleteRecords (a watcher) is called at each change until it is removed, and checks itself whether its request can
    now be completed.
    """

    __slots__ = ("commits", "watchers")

    def __init__(self) -> None:
        self.commits = OffsetPurgatory()
        self.watchers: dict[Callable[[], None], None] = {}

    def add_commit(self, end_offset: int, callback: Callback) -> None:
        """Call ``callback`` with an error code once all records below ``end_offset`` are committed, or at `dismiss`."""
        self.commits.add(end_offset, callback)

    def committed(self, high_watermark: int, verdict: ErrorCode = NONE) -> None:
        """Call each Produce callback whose offset is reached with ``verdict``; then call all watchers."""
        if self.commits.pending:
            self.commits.release(high_watermark, verdict)
        if self.watchers:
            self.notify()

    def dismiss(self, error: ErrorCode) -> None:
        """Call all callbacks of Produce with ``error``, because this replica will commit nothing more."""
        self.commits.dismiss(error)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the high watermark, the log start or the leader changes, until `unwatch`."""
        self.watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self.watchers.pop(callback, None)

    def notify(self) -> None:
        """Call the watchers after a change of the high watermark, the log start or the leader."""
        for callback in tuple(self.watchers):
            callback()
