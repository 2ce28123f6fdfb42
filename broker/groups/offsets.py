"""Committed offsets of one partition of ``__consumer_offsets``, and offsets that are pending in a transaction. Pure.

The records and markers of the partition determine the state. The same functions apply them after an append and in replays.
KIP-98 (offsets in transactions), KIP-447 (stable fetches), KIP-211 (expiry), KIP-848 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import UUID

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.group import NO_TIMESTAMP, ClassicGroup, ClassicGroupState
from protocol.batch import NO_PRODUCER_ID
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records.group_log import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue
from protocol.slotted import slotted

Spot = tuple[str, int]
"""Topic name and partition."""
Now = Callable[[int], int]
"""Record timestamp -> the time in ms with which to compare this timestamp (`broker.clock.clock.Clock.now_for`)."""

NO_RETENTION_OF_ITS_OWN: Final = -1


@slotted(frozen=True)
class OffsetAndMetadata:
    """A committed or pending offset, and the offset of its record in ``__consumer_offsets``."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: UUID | None
    record_offset: int

    @classmethod
    def of(cls, value: OffsetCommitValue, record_offset: int) -> OffsetAndMetadata:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp_ms,
            value.expire_timestamp_ms,
            value.topic_id,
            record_offset,
        )

    def is_of_topic(self, topic_id: UUID | None) -> bool:
        """Whether the offset was committed for this topic id. True if the record or the request has no topic id."""
        return topic_id is None or self.topic_id is None or topic_id == self.topic_id


class Found(NamedTuple):
    """The result of OffsetFetch for one partition."""

    error: ErrorCode
    committed: OffsetAndMetadata | None


UNSTABLE: Final = Found(ErrorCode.unstable_offset_commit, None)
NOTHING: Final = Found(NONE, None)


class Change(NamedTuple):
    """A record above the high watermark, and the committed offset that the record replaced (None: no offset)."""

    record_offset: int
    before: OffsetAndMetadata | None


class GroupOffsets:
    """The committed and pending offsets of all groups of one partition."""

    __slots__ = ("_changes", "_committed", "_high_watermark", "_open", "_pending")

    def __init__(self) -> None:
        self._high_watermark = 0
        # Bounded by the records above the high watermark; usually there are none.
        self._changes: dict[tuple[str, Spot], list[Change]] = {}
        self._committed: dict[str, dict[Spot, OffsetAndMetadata]] = {}
        self._pending: dict[int, dict[tuple[str, Spot], OffsetAndMetadata]] = {}
        # The reverse index: the producers that have an offset pending for each topic partition.
        self._open: dict[str, dict[Spot, set[int]]] = {}

    # -- applying the log ---------------------------------------------------------------------------------------

    def note_high_watermark(self, high_watermark: int) -> None:
        """Discard each `Change` whose record is now below the high watermark."""
        if high_watermark == self._high_watermark:
            return
        self._high_watermark = high_watermark
        for key, changes in tuple(self._changes.items()):
            left = [change for change in changes if change.record_offset >= high_watermark]
            if left:
                self._changes[key] = left
            else:
                del self._changes[key]

    def _note_change(self, record_offset: int, group_id: str, spot: Spot) -> None:
        before = self._committed.get(group_id, {}).get(spot)
        self._changes.setdefault((group_id, spot), []).append(Change(record_offset, before))

    def apply_commit(
        self,
        record_offset: int,
        producer_id: int,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | None,
    ) -> None:
        """Apply one record: a committed offset, a transaction's pending offset, or a tombstone, which removes both."""
        spot = (key.topic, key.partition)
        if record_offset >= self._high_watermark and (value is None or producer_id == NO_PRODUCER_ID):
            self._note_change(record_offset, key.group, spot)
        if value is None:
            self._remove(key.group, spot)
            return
        committed = OffsetAndMetadata.of(value, record_offset)
        if producer_id == NO_PRODUCER_ID:
            self._committed.setdefault(key.group, {})[spot] = committed
            return
        self._pending.setdefault(producer_id, {})[key.group, spot] = committed
        self._open.setdefault(key.group, {}).setdefault(spot, set()).add(producer_id)

    def _remove(self, group_id: str, spot: Spot) -> None:
        """Remove a topic partition's committed offset, and its pending ones, so that no later marker commits these."""
        of_group = self._committed.get(group_id)
        if of_group is not None and of_group.pop(spot, None) is not None and not of_group:
            del self._committed[group_id]
        for producer_id in tuple(self._open.get(group_id, {}).get(spot, ())):
            self._settle(producer_id, group_id, spot)

    def end_transaction(self, producer_id: int, committed: bool, marker_offset: int) -> None:
        """Apply a marker: commit or drop the producer's pending offsets.

        A pending offset does not replace a committed offset whose record is later in the log.
        """
        pending = self._pending.get(producer_id, {})
        for (group_id, spot), offset in tuple(pending.items()):
            if offset.record_offset > marker_offset:
                continue  # the offset belongs to the producer's next transaction
            self._settle(producer_id, group_id, spot)
            if committed:
                of_group = self._committed.setdefault(group_id, {})
                current = of_group.get(spot)
                if current is None or offset.record_offset > current.record_offset:
                    if marker_offset >= self._high_watermark:
                        self._note_change(marker_offset, group_id, spot)
                    of_group[spot] = offset

    def pending_producers(self) -> list[tuple[int, int]]:
        """Return (producer id, log offset of its oldest pending record) for each open transaction."""
        return [
            (producer_id, min(offset.record_offset for offset in pending.values()))
            for producer_id, pending in self._pending.items()
        ]

    def _settle(self, producer_id: int, group_id: str, spot: Spot) -> None:
        pending = self._pending[producer_id]
        del pending[group_id, spot]
        if not pending:
            del self._pending[producer_id]
        of_group = self._open[group_id]
        of_group[spot].discard(producer_id)
        if not of_group[spot]:
            del of_group[spot]
            if not of_group:
                del self._open[group_id]

    # -- queries ------------------------------------------------------------------------------------------------

    def find(
        self, group_id: str, topic: str, partition: int, *, require_stable: bool, topic_id: UUID | None = None
    ) -> Found:
        """Return the committed offset, even if its record is above the high watermark.

        With ``require_stable``, return `UNSTABLE` if an open transaction has an offset for the partition (KIP-447).
        """
        spot = (topic, partition)
        if require_stable and self.is_unstable(group_id, spot):
            return UNSTABLE
        committed = self._committed.get(group_id, {}).get(spot)
        if committed is None or not committed.is_of_topic(topic_id):
            return NOTHING
        return Found(NONE, committed)

    def find_committed(
        self, group_id: str, topic: str, partition: int, *, topic_id: UUID | None = None
    ) -> Found:
        """Return the offset as of the high watermark, without the effect of records above it, like Kafka's snapshot."""
        changes = self._changes.get((group_id, (topic, partition)))
        if not changes:
            return self.find(group_id, topic, partition, require_stable=False, topic_id=topic_id)
        before = changes[0].before
        return Found(NONE, before) if before is not None and before.is_of_topic(topic_id) else NOTHING

    def committed_spots(self, group_id: str) -> list[Spot]:
        """Topic partitions with a committed offset, in the order of their first commits, without pending offsets."""
        return list(self._committed.get(group_id, ()))

    def spots_once_committed(self, group_id: str) -> list[Spot]:
        """Topic partitions of `committed_spots`, and those whose offset was deleted by a record above the high watermark."""
        changed = (spot for changed_group, spot in self._changes if changed_group == group_id)
        return list(dict.fromkeys((*self._committed.get(group_id, ()), *changed)))

    def all_spots(self, group_id: str) -> list[Spot]:
        """Topic partitions with a committed or a pending offset, all of which DeleteGroups must delete."""
        return list(dict.fromkeys((*self._committed.get(group_id, ()), *self._open.get(group_id, ()))))

    def exists(self, group_id: str, spot: Spot) -> bool:
        return spot in self._committed.get(group_id, ()) or self.is_unstable(group_id, spot)

    def is_unstable(self, group_id: str, spot: Spot) -> bool:
        return spot in self._open.get(group_id, ())

    def pending_of(self, group_id: str, spot: Spot) -> frozenset[int]:
        """Ids of the producers whose open transactions have a pending offset for this topic partition."""
        return frozenset(self._open.get(group_id, {}).get(spot, ()))

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def groups(self) -> Iterator[str]:
        """Ids of all groups with a committed or a pending offset."""
        return iter(tuple(dict.fromkeys((*self._committed, *self._open))))

    def topics(self) -> set[tuple[str, UUID | None]]:
        """(name, topic id) of all topics with a committed or a pending offset."""
        offsets = [offset for of_group in self._committed.values() for offset in of_group.items()]
        offsets += [
            (spot, offset) for pending in self._pending.values() for (_, spot), offset in pending.items()
        ]
        return {(spot[0], offset.topic_id) for spot, offset in offsets}

    def of_topic(self, topic: str, topic_id: UUID | None) -> list[tuple[str, Spot]]:
        """(group id, topic partition) of all committed and pending offsets for a topic."""
        found: dict[tuple[str, Spot], None] = {}
        for group_id, of_group in self._committed.items():
            for spot, offset in of_group.items():
                if spot[0] == topic and offset.is_of_topic(topic_id):
                    found[group_id, spot] = None
        for pending in self._pending.values():
            for (group_id, spot), offset in pending.items():
                if spot[0] == topic and offset.is_of_topic(topic_id):
                    found[group_id, spot] = None
        return list(found)

    # -- expiry -------------------------------------------------------------------------------------------------

    def expired(
        self, group: ClassicGroup | ConsumerGroup, now_for: Now, retention_ms: int
    ) -> tuple[list[Spot], bool]:
        """Return (topic partitions of the group whose offset has expired, whether the group has no offset afterwards)."""
        group_id = group.group_id
        of_group = self._committed.get(group_id)
        if of_group is None:
            return [], not self.has_open_transaction(group_id)
        if not _may_expire(group):
            return [], False
        waits = self._waits_ms(group, of_group, now_for, retention_ms)
        spots = [spot for spot, wait_ms in waits if wait_ms <= 0]
        return spots, len(spots) == len(of_group) and not self.has_open_transaction(group_id)

    def expires_in_ms(
        self, group: ClassicGroup | ConsumerGroup, now_for: Now, retention_ms: int
    ) -> int | None:
        """Milliseconds until the first offset of the group expires. 0: an empty group without offsets. None: never."""
        of_group = self._committed.get(group.group_id)
        if of_group is None:
            return None if self.has_open_transaction(group.group_id) or not group.is_empty else 0
        if not _may_expire(group):
            return None
        waits = self._waits_ms(group, of_group, now_for, retention_ms)
        return min((wait_ms for _, wait_ms in waits), default=None)

    def _waits_ms(
        self,
        group: ClassicGroup | ConsumerGroup,
        of_group: Mapping[Spot, OffsetAndMetadata],
        now_for: Now,
        retention_ms: int,
    ) -> Iterator[tuple[Spot, int]]:
        """Yield the remaining time in milliseconds of each offset that may expire."""
        subscribed: dict[str, bool] = {}
        for spot, offset in of_group.items():
            topic = spot[0]
            if topic not in subscribed:
                subscribed[topic] = group.is_subscribed_to(topic)
            if not subscribed[topic] and not self.is_unstable(group.group_id, spot):
                yield spot, _wait_ms(group, offset, now_for, retention_ms)

    # -- comparison in tests ------------------------------------------------------------------------------------

    def image(self) -> dict[str, object]:
        """The state as plain values, for a comparison with the state after a replay of the log."""
        return {
            "committed": {
                group_id: dict(sorted(of_group.items()))
                for group_id, of_group in sorted(self._committed.items())
            },
            "pending": {
                producer_id: dict(sorted(pending.items()))
                for producer_id, pending in sorted(self._pending.items())
            },
            "open": {
                group_id: {spot: sorted(producers) for spot, producers in sorted(of_group.items())}
                for group_id, of_group in sorted(self._open.items())
            },
        }


def _may_expire(group: ClassicGroup | ConsumerGroup) -> bool:
    """Whether offsets of the group can expire now.

    Offsets of a classic group do not expire in a rebalance, nor while the members' subscriptions are unknown.
    """
    if isinstance(group, ConsumerGroup):
        return True
    if group.protocol_type is None or group.state is ClassicGroupState.EMPTY:
        return True
    return group.state is ClassicGroupState.STABLE and group.subscribed_topics() is not None


def _wait_ms(
    group: ClassicGroup | ConsumerGroup, offset: OffsetAndMetadata, now_for: Now, retention_ms: int
) -> int:
    """Milliseconds until an offset expires; 0 or less if it has expired."""
    if offset.expire_timestamp_ms != NO_RETENTION_OF_ITS_OWN:
        return offset.expire_timestamp_ms - now_for(offset.commit_timestamp_ms)
    since_ms = offset.commit_timestamp_ms
    if (
        isinstance(group, ClassicGroup)
        and group.protocol_type is not None
        and group.state is ClassicGroupState.EMPTY
        and group.state_since_ms != NO_TIMESTAMP
    ):
        # KIP-211: retention starts when the last member leaves. Old group records lack the time at which it left.
        since_ms = group.state_since_ms
    return retention_ms - (now_for(since_ms) - since_ms)
