"""The coordinator's state of one partition of ``__consumer_offsets``, and the replay of its log. Pure.

The log fully determines the offsets: the same ``apply`` is used for a commit that was just appended and for one in the
replay. A classic group is rebuilt from its last record; the progress of a rebalance is not in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import CONSUMER_GROUP_KEYS, ConsumerGroupKey
from broker.groups.consumer.records import apply as apply_consumer_group
from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.offsets import GroupOffsets
from protocol.batch import CorruptBatch, RecordBatch, parse_end_txn_marker
from protocol.records.group_log import (
    SHARE_GROUP_TYPES,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
)
from protocol.schema import Key, MalformedRecord, Value

if TYPE_CHECKING:
    from broker.groups.share.group import ShareGroup

    Group = ClassicGroup | ConsumerGroup | ShareGroup


class GroupCoordinatorState:
    """The groups and offsets of one partition of ``__consumer_offsets``."""

    __slots__ = ("config", "consumer_groups", "groups", "offsets", "records", "share_groups", "skipped")

    def __init__(self, config: ClassicGroupConfig) -> None:
        self.config = config
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """The groups of KIP-848 by group id."""
        self.share_groups: dict[str, ShareGroup] = {}
        """The groups of KIP-932 by group id. A group id is in at most one of the three."""
        self.offsets = GroupOffsets()
        self.records = 0
        """Number of records of the partition that were replayed."""
        self.skipped = 0
        """Number of records and batches that were skipped: unknown types, newer versions, bytes that do not parse."""

    def group(self, group_id: str) -> Group | None:
        # The body of `group_with_offsets`, inlined, since each commit calls this.
        return (
            self.consumer_groups.get(group_id) or self.groups.get(group_id) or self.share_groups.get(group_id)
        )

    def group_with_offsets(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """A group that can commit offsets: any but a share group."""
        return self.consumer_groups.get(group_id) or self.groups.get(group_id)

    def all_groups(self) -> list[Group]:
        return [*self.groups_with_offsets(), *self.share_groups.values()]

    def groups_with_offsets(self) -> list[ClassicGroup | ConsumerGroup]:
        """The groups that can commit offsets, which expire."""
        return [*self.groups.values(), *self.consumer_groups.values()]

    def group_ids(self) -> set[str]:
        return {*self.groups, *self.consumer_groups, *self.share_groups}

    def replay(self, batch: RecordBatch) -> None:
        """Replay one batch of the log, up to the first record that cannot be read. Raises CorruptBatch for that record."""
        try:
            if batch.is_control:
                self._replay_marker(batch)
                return
            for record in batch.records():
                self.records += 1
                self._replay_record(record.offset, batch.producer_id, record.key, record.value)
        except CorruptBatch:
            self.skipped += 1
            raise

    def _replay_marker(self, batch: RecordBatch) -> None:
        marker = parse_end_txn_marker(batch)
        if marker is not None:
            self.offsets.end_transaction(batch.producer_id, marker.committed, batch.base_offset)

    def _replay_record(self, offset: int, producer_id: int, raw_key: bytes | None, raw: bytes | None) -> None:
        try:
            key = decode_key(raw_key or b"")
            if not isinstance(key, UnknownKey):
                value = decode_value(key, raw)
                if self.apply(offset, producer_id, key, value):
                    return
        except MalformedRecord:
            pass
        self.skipped += 1

    def apply(self, record_offset: int, producer_id: int, key: Key, value: Value | None) -> bool:
        """Apply one record to the state. Returns False if the state does not use records of this type."""
        match key:
            case OffsetCommitKey() | LegacyOffsetCommitKey():
                assert value is None or isinstance(value, OffsetCommitValue)
                self.offsets.apply_commit(record_offset, producer_id, key, value)
                if value is not None and self.group(key.group) is None:
                    # A group without members, whose clients only commit offsets.
                    self.groups[key.group] = ClassicGroup(key.group, self.config)
            case GroupMetadataKey():
                assert value is None or isinstance(value, GroupMetadataValue)
                if value is None:
                    self.groups.pop(key.group, None)
                else:
                    self.consumer_groups.pop(key.group, None)
                    self.share_groups.pop(key.group, None)
                    self.groups[key.group] = ClassicGroup.from_record(key.group, self.config, value)
            case _ if isinstance(key, CONSUMER_GROUP_KEYS):
                self._apply_consumer_group(key, value)
            case _ if key.TYPE in SHARE_GROUP_TYPES:
                self._apply_share_group(key, value)
            case _:
                return False
        return True

    def _apply_consumer_group(self, key: ConsumerGroupKey, value: Value | None) -> None:
        """Apply a record of a consumer group. Creates the group if needed: after compaction, records come in any order."""
        group = self.consumer_groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            self.groups.pop(key.group_id, None)
            self.share_groups.pop(key.group_id, None)
            group = self.consumer_groups[key.group_id] = ConsumerGroup(key.group_id)
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            del self.consumer_groups[key.group_id]
        else:
            apply_consumer_group(group, key, value)

    def _apply_share_group(self, key: Key, value: Value | None) -> None:
        """Apply a record of a share group. Creates the group if needed, as `_apply_consumer_group` does."""
        # Imported on first use: a coordinator without share groups works without these modules.
        from broker.groups.share.group import ShareGroup
        from broker.groups.share.records import apply as apply_share_group
        from protocol.records.share_group_log import ShareGroupMetadataKey

        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self.share_groups.get(group_id)
        if group is None:
            if value is None:
                return
            self.groups.pop(group_id, None)
            self.consumer_groups.pop(group_id, None)
            group = self.share_groups[group_id] = ShareGroup(group_id)
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            del self.share_groups[group_id]
        else:
            apply_share_group(group, key, value)

    def settle(self) -> None:
        """Create, after the replay, the groups that have offsets but whose own records were removed by compaction."""
        for group_id in self.offsets.groups():
            if self.group(group_id) is None:
                self.groups[group_id] = ClassicGroup(group_id, self.config)

    # -- comparison in tests ------------------------------------------------------------------------------------

    def image(self) -> dict[str, object]:
        """The state as plain values; the state rebuilt from the log must have an equal image."""
        groups = {group_id: _image_of(group) for group_id, group in sorted(self.groups.items())}
        consumer_groups = {name: group.image() for name, group in sorted(self.consumer_groups.items())}
        share_groups = {name: group.image() for name, group in sorted(self.share_groups.items())}
        kinds = {"groups": groups, "consumer_groups": consumer_groups, "share_groups": share_groups}
        return {**kinds, **self.offsets.image()}


def _image_of(group: ClassicGroup) -> dict[str, object]:
    """Return the group's fields; in a rebalance, or after a failed append, the fields that a restart would load."""
    if group.unwritten or group.state not in (ClassicGroupState.EMPTY, ClassicGroupState.STABLE):
        if group.written is None:
            group = ClassicGroup(group.group_id, group.config)
        else:
            group = ClassicGroup.from_record(group.group_id, group.config, group.written)
    return {
        "state": group.state,
        "since_ms": group.state_since_ms,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader": group.leader,
        "members": {
            member.member_id: (
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name or ""),
                member.assignment,
            )
            for member in group.members
        },
        "subscribed": group.subscribed_topics(),
    }
