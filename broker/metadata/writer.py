"""The writer of the metadata log: serialises the changes of a topic, and waits until each change is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broker.metadata.log import MetadataLog
from broker.metadata.pending_changes import PendingTopicChanges
from broker.metadata.results import RECORDS_PER_REQUEST_MAX, ApiError
from broker.metadata.startup import chunks
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import MetadataRecord

if TYPE_CHECKING:
    from broker.clock import Clock


class MetadataWriter:
    """Commits changes to the metadata log.

    A caller awaits `settled`, checks its change against the image and commits it, without an await in between.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending_changes = PendingTopicChanges()
        self._log: MetadataLog

    def begin(self, log: MetadataLog) -> None:
        """Set the log to which changes are written."""
        self._log = log

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    @property
    def leader_epoch(self) -> int:
        return self._log.epoch

    async def settled(self, topics: Iterable[str]) -> None:
        """Return once the image contains every change of these topics that was committed."""
        await self._pending_changes.settled(topics)

    async def all_settled(self) -> None:
        """Return once the image contains every committed change, as registrations and fencing of brokers require."""
        await self._pending_changes.all_settled()

    async def commit(self, records: Sequence[MetadataRecord], topics: Iterable[str] = ()) -> None:
        """Make the records durable. Returns once the image contains them; changes of ``topics`` wait until then.

        The records are written before the first await, so what the caller has checked is still true.
        """
        if len(records) > RECORDS_PER_REQUEST_MAX:
            raise ApiError(ErrorCode.policy_violation, "Unable to perform excessively large batch operation.")
        done = self._log.commit(records, self._clock.now_ms())
        self._pending_changes.mark(topics, done)
        self._clock.wait_for(done)
        # Shielded, so that a caller that is cancelled does not cancel the commit, which is already written.
        await asyncio.shield(done)

    async def commit_for_all(self, records: Sequence[MetadataRecord]) -> None:
        """Commit records that may concern every topic, in several batches if needed."""
        if not records:
            return  # for example the restore of an equal state in which no node runs
        done = [self._log.commit(chunk, self._clock.now_ms()) for chunk in chunks(iter(records))]
        self._pending_changes.mark_all(done[-1])
        self._clock.wait_for(done[-1])
        await asyncio.shield(done[-1])

    def defer_syncs(self) -> None:
        """From now on, apply changes without waiting for an fsync. Serve no client until `sync_deferred` returns."""
        self._log.defer_syncs()

    async def sync_deferred(self) -> None:
        """Return once all changes since `defer_syncs` are durable."""
        await self._log.sync_deferred()

    async def close(self) -> None:
        """Close the log after all commits are durable."""
        await self._log.close()

    def abandon(self) -> None:
        """Close only the file descriptor of the log, as if the process were killed."""
        self._log.abandon()
