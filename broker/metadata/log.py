"""The durable log of the cluster's metadata: ``__cluster_metadata-0``, in Kafka's own format.

A commit is written immediately, in one write, and is valid once it is synced. Fsyncs run in a separate thread, one at a
time; commits that are written during an fsync share the next one. In the turn of the event loop in which an fsync has
returned, its commits are applied in order, and their callers resume.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker.logging import get_logger
from broker.metadata.changes import records_of
from broker.metadata.files import (
    LOG_DIRECTORY,
    QUORUM_STATE,
    partition_folders,
    voted_epoch,
    write_leader_epochs,
    write_partition_metadata,
    write_quorum_state,
)
from broker.metadata.framing import CorruptMetadata, data_batch, leader_change
from broker.metadata.image import Image
from broker.metadata.replay import Replayed, replay
from broker.metadata.results import ApiError
from broker.metadata.snapshot import snapshots, write_snapshot
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord
from protocol.slotted import slotted
from storage.config import ConfigError, parse_topic_config
from storage.files import AppendFile, StorageError, sync_directory

SNAPSHOT_FROM_BYTES: Final = 1024 * 1024
SNAPSHOT_RATIO: Final = 1

log_events = get_logger()

Apply = Callable[[Sequence[MetadataRecord], int], None]
"""Function that applies the records of a durable commit to the image: (records, offset of the last record)."""

Sync = Callable[[AppendFile], None]


class MetadataLogFailed(ApiError):
    """The metadata log could not be written or synced. The state on disk is unknown, so all further commits are refused.

    In this case Kafka's process terminates, and the cluster elects another controller. This broker has no other controller:
    it continues to serve the present metadata, and refuses changes until it is restarted on a working disk.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)


@slotted
class _Commit:
    records: Sequence[MetadataRecord]
    last_offset: int
    done: asyncio.Future[None]


class MetadataLog:
    """The metadata log, open for writing.

    ``replayed`` is the result of the replay; ``next_offset`` is the offset of the next commit.
    """

    def __init__(
        self, directory: Path, replayed: Replayed, file: AppendFile, epoch: int, apply: Apply, sync: Sync
    ) -> None:
        self.directory = directory
        self.replayed = replayed
        self.epoch = epoch
        self.next_offset = replayed.next_offset
        self._file = file
        self._apply = apply
        self._sync = sync
        self._written: list[_Commit] = []
        self._syncing: asyncio.Future[None] | None = None
        self._defers_syncs = False
        self._has_deferred = False
        self._failure: Exception | None = None
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-sync")

    @classmethod
    def open(
        cls,
        directory: Path,
        image: Image,
        *,
        node_id: int,
        apply: Apply,
        now_ms: int,
        sync: Sync = AppendFile.sync,
    ) -> MetadataLog:
        """Replay the log into the image, truncate a torn write at its end, and begin a new leader epoch of the node."""
        directory.mkdir(exist_ok=True)
        replayed = replay(directory, image)
        _refuse_lost_log(directory, replayed)
        _refuse_invalid_settings(image)
        if _snapshot_is_due(replayed):
            take_snapshot(directory, image, replayed, now_ms)
        epoch = max(replayed.epoch, voted_epoch(directory)) + 1
        file = _segment(directory, replayed)
        write_partition_metadata(directory)
        # The vote is written first: Kafka does not accept an epoch in the log that was never voted for.
        write_quorum_state(directory, node_id, epoch)
        write_leader_epochs(directory, [*replayed.epochs, (epoch, replayed.next_offset)])
        log = cls(directory, replayed, file, epoch, apply, sync)
        log._append(leader_change(node_id, log.next_offset, epoch, now_ms), 1)
        if replayed.held_back is not None:
            # Abort a metadata transaction that a dead controller did not finish, for the next snapshot and the next reader.
            abort = schema.AbortTransactionRecord(reason="Controller failover")
            log._append(data_batch([abort], log.next_offset, epoch, now_ms), 1)
        return log

    def commit(self, records: Sequence[MetadataRecord], now_ms: int) -> asyncio.Future[None]:
        """Write the records as one batch. The future is done once they are durable and applied."""
        loop = asyncio.get_running_loop()
        last_offset = self._append(data_batch(records, self.next_offset, self.epoch, now_ms), len(records))
        commit = _Commit(records, last_offset, loop.create_future())
        self._written.append(commit)
        if self._syncing is None:
            self._start_sync(loop)
        return commit.done

    def commit_now(self, commits: Iterable[Sequence[MetadataRecord]], now_ms: int) -> None:
        """Write and apply each commit before the next one is computed, then sync them together.

        Only for the start: no event loop runs, and no other code reads the image before this method returns.
        """
        assert self._syncing is None, "a synchronous commit must not overtake one that is being synced"
        for records in commits:
            batch = data_batch(records, self.next_offset, self.epoch, now_ms)
            self._apply(records, self._append(batch, len(records)))
        self._sync(self._file)

    def defer_syncs(self) -> None:
        """From now on, apply commits without waiting for an fsync. Serve no client until `sync_deferred` returns."""
        self._defers_syncs = True

    async def sync_deferred(self) -> None:
        """Make all commits since `defer_syncs` durable with one fsync. Raises ``MetadataLogFailed``."""
        self._defers_syncs = False
        await self._syncs_ended()
        if not self._has_deferred:
            return
        self._has_deferred = False
        if self._failure is None:
            self._start_sync(asyncio.get_running_loop())
            await self._syncs_ended()
        if self._failure is not None:
            raise MetadataLogFailed(str(self._failure)) from self._failure

    async def _syncs_ended(self) -> None:
        while self._syncing is not None:
            await asyncio.wait([self._syncing])
            # The callbacks of this fsync run in the same turn.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Wait until all commits are durable, then close the file."""
        with suppress(MetadataLogFailed):  # it was logged
            await self.sync_deferred()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without waiting for commits, as if the process were killed. A running fsync is finished."""
        self._failure = self._failure or MetadataLogFailed("the metadata log is closed")
        self._threads.shutdown(wait=True)
        self._file.close()

    def _append(self, batch: bytes, count: int) -> int:
        """Write a batch at the end of the log and return its last offset."""
        if self._failure is not None:
            raise MetadataLogFailed(str(self._failure)) from self._failure
        try:
            self._file.append((batch,), len(batch))
        except StorageError as error:
            self._note_failure(error)
            raise MetadataLogFailed(str(self._failure)) from error
        self.next_offset += count
        return self.next_offset - 1

    def _start_sync(self, loop: asyncio.AbstractEventLoop) -> None:
        group, self._written = self._written, []
        if self._defers_syncs:
            self._has_deferred = True
            self._syncing = loop.create_future()
            self._syncing.set_result(None)
        else:
            self._syncing = loop.run_in_executor(self._threads, self._sync, self._file)
        self._syncing.add_done_callback(lambda sync: self._synced(loop, group, sync))

    def _synced(
        self, loop: asyncio.AbstractEventLoop, group: list[_Commit], sync: asyncio.Future[None]
    ) -> None:
        self._syncing = None
        failure = asyncio.CancelledError() if sync.cancelled() else sync.exception()
        if failure is not None:
            self._fail(group + self._written, failure)
            return
        try:
            for commit in group:
                self._apply(commit.records, commit.last_offset)
        except Exception as broken:
            # Image and log differ now: fail all waiting callers, and accept no further commit.
            self._fail(group + self._written, broken)
            raise
        for commit in group:
            if not commit.done.done():
                commit.done.set_result(None)
        if self._written:
            self._start_sync(loop)

    def _note_failure(self, failure: BaseException) -> None:
        if self._failure is None:
            path = str(self._file.path)
            log_events.error("metadata cannot be changed any more", file=path, reason=str(failure))
        self._failure = MetadataLogFailed(f"the metadata log has failed: {failure}")

    def _fail(self, group: list[_Commit], failure: BaseException) -> None:
        """Fail all waiting commits. A failed fsync is not retried: the kernel may have dropped the pages."""
        self._note_failure(failure)
        self._written = []
        for commit in group:
            if not commit.done.done():
                commit.done.set_exception(MetadataLogFailed(str(self._failure)))


def _refuse_lost_log(directory: Path, replayed: Replayed) -> None:
    """Raise `CorruptMetadata` if the metadata log is missing but logs of topics exist: these topics would be lost.

    Kafka starts on such a directory, and treats each log as a stray (``LogManager.isStrayReplica``).
    """
    if replayed.next_offset > 0:
        return
    logs = [name for name in partition_folders(directory.parent) if name != LOG_DIRECTORY]
    if logs:
        what = f"though {directory.parent} contains logs of topics ({logs[0]} and {len(logs) - 1} more)"
    elif replayed.segment is None and (directory / QUORUM_STATE).exists():
        what = f"though {QUORUM_STATE} says that there was one"
    else:
        return
    raise CorruptMetadata(
        f"{directory} contains no log of the cluster metadata, {what}: restore it from a copy "
        "(each node of a cluster has one), or start on an empty directory"
    )


def _refuse_invalid_settings(image: Image) -> None:
    """Raise `CorruptMetadata` if a topic has an invalid setting, as Kafka does (``LogManager.startup``)."""
    accepted: set[tuple[str, str]] = set()
    for topic in image.topics.values():
        for setting in topic.configs.items():
            if setting in accepted:
                continue
            try:
                parse_topic_config(*setting)
            except ConfigError as error:
                raise CorruptMetadata(
                    f"topic {topic.name} has a setting that Kafka 4.4 does not accept: {error}. Change it with the "
                    "Kafka that wrote the directory"
                ) from None
            accepted.add(setting)


def _snapshot_is_due(replayed: Replayed) -> bool:
    """Whether the log is so much larger than the last snapshot that a new snapshot saves time.

    Every restart writes a record for each partition, so without snapshots each start would be slower than the one before.
    Writing a snapshot takes about as much time as the next start saves by it.
    """
    due = max(SNAPSHOT_FROM_BYTES, SNAPSHOT_RATIO * replayed.snapshot_bytes)
    return replayed.log_bytes > due and replayed.held_back is None


def take_snapshot(directory: Path, image: Image, replayed: Replayed, now_ms: int) -> None:
    """Write the replayed state as a snapshot, then delete the log segments and older snapshots that it covers.

    After a crash in between, the covered files still exist; the next start reads the snapshot and skips their records.
    """
    snapshot = write_snapshot(
        directory,
        records_of(image),
        end_offset=replayed.next_offset,
        epoch=replayed.epoch,
        last_record_ms=replayed.last_record_ms,
        now_ms=now_ms,
        quorum=replayed.quorum,
    )
    for path in (*directory.glob("*.log"), *directory.glob("*.index"), *directory.glob("*.timeindex")):
        path.unlink()
    for older in snapshots(directory):
        if older.path != snapshot.path:
            older.path.unlink()
    replayed.segment, replayed.segment_bytes, replayed.epochs = None, 0, []
    replayed.snapshot_epoch = snapshot.epoch


def _segment(directory: Path, replayed: Replayed) -> AppendFile:
    """Open the last segment, truncated to its valid batches. If none exists, or a snapshot ends later, create one."""
    if replayed.segment is None or replayed.log_end < replayed.next_offset:
        file = AppendFile(directory / f"{replayed.next_offset:020d}.log", 0)
        os.close(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
        sync_directory(directory)
        return file
    file = AppendFile(replayed.segment)
    if file.size != replayed.segment_bytes:
        file.truncate(replayed.segment_bytes)
        file.sync()
    return file
