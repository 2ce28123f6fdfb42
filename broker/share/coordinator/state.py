"""The share partitions of one partition of ``__share_group_state``: the state that its records have left, and the record
that a request adds.

Pure. The counterpart of Kafka's ``ShareCoordinatorShard``. Methods that decide change nothing: the caller appends the
record, then calls `ShareCoordinatorState.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from broker.share.coordinator.batches import combined
from broker.share.messages import outcome_of
from broker.share.state import (
    NO_START_OFFSET,
    UNKNOWN_COUNT,
    Outcome,
    SharePartitionKey,
    StateBatch,
    StoredState,
)
from broker.share.state_apis import state_batches
from protocol.errors import NONE, ErrorCode
from protocol.messages import initialize_share_group_state as initializing
from protocol.messages import read_share_group_state as reading
from protocol.messages import write_share_group_state as writing
from protocol.named_tuple import NamedTuple
from protocol.records import share_state_log as records
from protocol.schema import Key, Value

NO_EPOCH: Final = -1
"""Leader epoch of an update that does not change the epoch."""

OK: Final = Outcome(NONE)


class ShareRecord(NamedTuple):
    """A record to write. With the value None it is a tombstone."""

    key: Key
    value: Value | None = None


Decision = ShareRecord | Outcome
"""The record to write, or the outcome of a request that writes none."""


class ShareGroupOffset(NamedTuple):
    """The state of a share partition, with the epoch and the times of its last snapshot."""

    snapshot_epoch: int
    stored: StoredState
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    """Time of the last snapshot. It differs from ``create_timestamp_ms`` after a cold snapshot."""


class ShareCoordinatorState:
    """The states of share partitions, as the replayed records have left them."""

    def __init__(self, updates_per_snapshot: int) -> None:
        """``updates_per_snapshot``: number of updates after which the next write is a snapshot."""
        self._updates_per_snapshot = updates_per_snapshot
        self.offsets: dict[SharePartitionKey, ShareGroupOffset] = {}
        self.leader_epochs: dict[SharePartitionKey, int] = {}
        """Highest leader epochs. An initialization resets the epoch in ``offsets``, but not this one."""
        self.state_epochs: dict[SharePartitionKey, int] = {}
        self.update_counts: dict[SharePartitionKey, int] = {}
        """Numbers of updates since the last snapshot that came due by this number."""
        self.snapshots: dict[SharePartitionKey, int] = {}
        """Offset of the last snapshot of each share partition."""
        self._last_offset = 0
        """Offset of the last snapshot or tombstone."""

    # -- requests -----------------------------------------------------------------------------------------------
    # ``wanted`` is what a request has for the share partition, ``exists`` whether the cluster has the topic's partition.

    def initialize(
        self, key: SharePartitionKey, wanted: initializing.PartitionData, now_ms: int, *, exists: bool
    ) -> Decision:
        refused = _negative(key.partition, state_epoch=wanted.state_epoch)
        if refused is None and self.state_epochs.get(key, 0) > wanted.state_epoch:
            refused = outcome_of(ErrorCode.fenced_state_epoch)
        if refused is not None or not exists:
            return refused or outcome_of(ErrorCode.unknown_topic_or_partition)
        known = self.offsets.get(key)
        start_offset = wanted.start_offset
        stored = StoredState(
            state_epoch=wanted.state_epoch,
            start_offset=start_offset,
            # The lag is known as soon as there is a start offset.
            delivery_complete_count=UNKNOWN_COUNT if start_offset == NO_START_OFFSET else 0,
        )
        snapshot_epoch = 0 if known is None else known.snapshot_epoch + 1
        return _snapshot(key, ShareGroupOffset(snapshot_epoch, stored, now_ms, now_ms))

    def read(
        self, key: SharePartitionKey, wanted: reading.PartitionData, now_ms: int, *, exists: bool
    ) -> Decision:
        """Decide a read: its record raises the leader epoch. The response has the state before this record."""
        refused = self._refused("Read", key, wanted.leader_epoch, None, exists=exists)
        if refused is not None:
            return refused
        if self.leader_epochs.get(key) == wanted.leader_epoch:
            return OK
        stored = self.offsets[key].stored
        return self._changed(key, stored._replace(leader_epoch=wanted.leader_epoch, batches=()), now_ms)

    def write(
        self, key: SharePartitionKey, wanted: writing.PartitionData, now_ms: int, *, exists: bool
    ) -> Decision:
        """Decide a write. Epochs above those of the share partition are accepted, but not stored."""
        refused = self._refused("Write", key, wanted.leader_epoch, wanted.state_epoch, exists=exists)
        if refused is not None:
            return refused
        before = self.offsets[key].stored
        batches = state_batches(wanted.state_batches)
        if any(each.last_offset < each.first_offset for each in batches):
            # In Kafka the merge fails, with a NullPointerException.
            message = "Unable to write share group state: a state batch ends before it begins"
            return Outcome(ErrorCode.unknown_server_error, message)
        return self._changed(
            key,
            before._replace(
                start_offset=wanted.start_offset,
                delivery_complete_count=wanted.delivery_complete_count,
                batches=batches,
            ),
            now_ms,
        )

    def delete(self, key: SharePartitionKey, _: object, __: int, *, exists: bool) -> Decision:
        refused = self._unknown(key, exists=exists)
        if refused is not None:
            return refused
        return tombstone(key) if key in self.offsets else OK

    def summarize(self, key: SharePartitionKey, _: object, __: int, *, exists: bool) -> Decision:
        """Decide whether the state may be read. The leader epoch of the request does not matter."""
        return self._unknown(key, exists=exists) or OK

    def _unknown(self, key: SharePartitionKey, *, exists: bool) -> Outcome | None:
        return _negative(key.partition) or (
            None if exists else outcome_of(ErrorCode.unknown_topic_or_partition)
        )

    def _refused(
        self,
        operation: str,
        key: SharePartitionKey,
        leader_epoch: int,
        state_epoch: int | None,
        *,
        exists: bool,
    ) -> Outcome | None:
        refused = _negative(key.partition, leader_epoch, state_epoch)
        if refused is not None:
            return refused
        if key not in self.offsets:
            message = f"{operation} operation on uninitialized share partition not allowed."
            return Outcome(ErrorCode.invalid_request, message)
        if self.leader_epochs.get(key, 0) > leader_epoch:
            return outcome_of(ErrorCode.fenced_leader_epoch)
        if state_epoch is not None and self.state_epochs.get(key, 0) > state_epoch:
            return outcome_of(ErrorCode.fenced_state_epoch)
        return None if exists else outcome_of(ErrorCode.unknown_topic_or_partition)

    def _changed(self, key: SharePartitionKey, change: StoredState, now_ms: int) -> ShareRecord:
        """Return the record of a change: an update, or after ``updates_per_snapshot`` updates a snapshot."""
        known = self.offsets[key]
        before = known.stored
        start_offset, count = before.start_offset, before.delivery_complete_count
        if change.start_offset == start_offset:
            count = max(count, change.delivery_complete_count)
        elif change.start_offset > start_offset:
            start_offset, count = change.start_offset, change.delivery_complete_count
        is_snapshot = self.update_counts.get(key, 0) >= self._updates_per_snapshot
        stored = StoredState(
            before.state_epoch,
            change.leader_epoch,
            start_offset,
            count,
            combined([*(before.batches if is_snapshot else ()), *change.batches], start_offset),
        )
        if is_snapshot:
            return _snapshot(key, ShareGroupOffset(known.snapshot_epoch + 1, stored, now_ms, now_ms))
        value = records.ShareUpdateValue(
            snapshot_epoch=known.snapshot_epoch,
            leader_epoch=stored.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=count,
            state_batches=_to_log(stored.batches),
        )
        return ShareRecord(records.ShareUpdateKey(*key), value)

    # -- periodic jobs ------------------------------------------------------------------------------------------

    def cold_snapshots(self, is_cold: Callable[[int], bool], now_ms: int) -> list[ShareRecord]:
        """Return a new snapshot of each share partition for whose last one ``is_cold(write_timestamp_ms)`` is true.

        Return none if all last snapshots are such cold snapshots: nothing was written in the meantime.
        """
        if self.is_cold:
            return []
        return [
            _snapshot(key, known._replace(snapshot_epoch=known.snapshot_epoch + 1, write_timestamp_ms=now_ms))
            for key, known in self.offsets.items()
            if is_cold(known.write_timestamp_ms)
        ]

    @property
    def is_cold(self) -> bool:
        """Whether every last snapshot is a cold one. True if there are no share partitions."""
        return all(each.create_timestamp_ms != each.write_timestamp_ms for each in self.offsets.values())

    def deletable_offset(self) -> int:
        """Offset before which no record is needed: that of the oldest of the last snapshots. 0 if there is none."""
        return min(self.snapshots.values(), default=self._last_offset)

    def of_topic(self, topic_id: UUID) -> list[ShareRecord]:
        """Tombstones of all share partitions of a topic."""
        return [tombstone(key) for key in self.offsets if key.topic_id == topic_id]

    # -- records ------------------------------------------------------------------------------------------------

    def replay(self, offset: int, key: Key, value: Value | None) -> None:
        """Apply a record. Records of other types are ignored, as by Kafka."""
        if isinstance(key, records.ShareSnapshotKey):
            assert value is None or isinstance(value, records.ShareSnapshotValue)
            self._replay_snapshot(offset, _key_of(key), value)
        elif isinstance(key, records.ShareUpdateKey) and isinstance(value, records.ShareUpdateValue):
            self._replay_update(_key_of(key), value)

    def _replay_snapshot(
        self, offset: int, key: SharePartitionKey, value: records.ShareSnapshotValue | None
    ) -> None:
        self._last_offset = offset
        if value is None:
            for by_key in (
                self.offsets,
                self.leader_epochs,
                self.state_epochs,
                self.update_counts,
                self.snapshots,
            ):
                by_key.pop(key, None)
            return
        self.snapshots[key] = offset
        _raise(self.leader_epochs, key, value.leader_epoch)
        _raise(self.state_epochs, key, value.state_epoch)
        stored = StoredState(
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.delivery_complete_count,
            state_batches(value.state_batches),
        )
        self.offsets[key] = ShareGroupOffset(
            value.snapshot_epoch, stored, value.create_timestamp_ms, value.write_timestamp_ms
        )
        if self.update_counts.get(key, -1) >= self._updates_per_snapshot:
            self.update_counts[key] = 0

    def _replay_update(self, key: SharePartitionKey, value: records.ShareUpdateValue) -> None:
        _raise(self.leader_epochs, key, value.leader_epoch)
        self.update_counts[key] = self.update_counts.get(key, 0) + 1
        known = self.offsets.get(key)
        changed = state_batches(value.state_batches)
        if known is None:  # its snapshot is damaged
            stored = StoredState(
                0, value.leader_epoch, value.start_offset, value.delivery_complete_count, changed
            )
            self.offsets[key] = ShareGroupOffset(value.snapshot_epoch, stored)
            return
        before = known.stored
        start_offset = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
        stored = StoredState(
            before.state_epoch,
            before.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
            start_offset,
            value.delivery_complete_count,
            combined([*before.batches, *changed], start_offset),
        )
        self.offsets[key] = known._replace(stored=stored)


def tombstone(key: SharePartitionKey) -> ShareRecord:
    return ShareRecord(records.ShareSnapshotKey(*key))


def _negative(
    partition: int, leader_epoch: int | None = None, state_epoch: int | None = None
) -> Outcome | None:
    for name, number in (
        ("partition id", partition),
        ("leader epoch", leader_epoch),
        ("state epoch", state_epoch),
    ):
        if number is not None and number < 0:
            return Outcome(ErrorCode.invalid_request, f"The {name} cannot be a negative number.")
    return None


def _snapshot(key: SharePartitionKey, offset: ShareGroupOffset) -> ShareRecord:
    stored = offset.stored
    value = records.ShareSnapshotValue(
        snapshot_epoch=offset.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=stored.start_offset,
        delivery_complete_count=stored.delivery_complete_count,
        create_timestamp_ms=offset.create_timestamp_ms,
        write_timestamp_ms=offset.write_timestamp_ms,
        state_batches=_to_log(stored.batches),
    )
    return ShareRecord(records.ShareSnapshotKey(*key), value)


def _raise(epochs: dict[SharePartitionKey, int], key: SharePartitionKey, epoch: int) -> None:
    epochs[key] = max(epochs.get(key, epoch), epoch)


def _key_of(key: records.ShareSnapshotKey | records.ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id or UUID(int=0), key.partition)


def _to_log(batches: Sequence[StateBatch]) -> list[records.StateBatch]:
    return [records.StateBatch(*batch) for batch in batches]
