"""Commits, fetches and deletions of offsets, on the shard that stores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from broker.clock import Domain
from broker.groups import classic
from broker.groups.consumer.context import Refused
from broker.groups.consumer.epoch_checks import check_commit, check_fetch
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import group_tombstones
from broker.groups.group import ClassicGroup
from broker.groups.offsets import NO_RETENTION_OF_ITS_OWN, NOTHING, Found, GroupOffsets, Spot
from broker.groups.records import LogRecord
from broker.groups.shard import NO_PRODUCER, GroupShard, Producer
from broker.logging import get_logger
from protocol.errors import NONE, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.named_tuple import NamedTuple
from protocol.records.group_log import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from protocol.schema import Key

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group

GROUP_ID_NOT_FOUND_SINCE: Final = 9
TRANSACTIONAL_EPOCH_ERRORS_SINCE: Final = 6
"""First version of TxnOffsetCommit with GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319)."""
VALUE_VERSION: Final = 4
VALUE_VERSION_WITH_EXPIRY: Final = 1
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1

log = get_logger()


class OffsetToCommit(NamedTuple):
    """An offset to commit, for a topic and partition that exist."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    topic_id: UUID | None = None


class Committer(NamedTuple):
    """The client that commits: a member of the group, or (with all defaults) a client outside of the group."""

    group_id: str
    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


Errors = list[ErrorCode]
"""One error code for each offset, in the order of the request."""


async def commit(
    shard: GroupShard,
    who: Committer,
    offsets: Sequence[OffsetToCommit],
    retention_ms: int,
    api_version: int,
    producer: Producer = NO_PRODUCER,
) -> Errors:
    """Handle OffsetCommit, or TxnOffsetCommit (``producer`` is set) after the transaction was verified.

    Returns one error for each offset.
    """
    transactional = producer is not NO_PRODUCER
    error = _check(shard, who, offsets, api_version, transactional=transactional)
    if error is not NONE:
        return [error] * len(offsets)
    errors, records = _records_of(shard, who.group_id, offsets, retention_ms)
    if not records:
        return errors
    if shard.is_intercepted:
        error = await shard.may_append(who.group_id or None)
        if error is NONE:
            error = _check(shard, who, offsets, api_version, transactional=transactional)
    if error is NONE:
        error = await shard.write(records, producer)
    return errors if error is NONE else [error] * len(offsets)


def _check(
    shard: GroupShard,
    who: Committer,
    offsets: Sequence[OffsetToCommit],
    api_version: int,
    *,
    transactional: bool,
) -> ErrorCode:
    """Check whether ``who`` may commit ``offsets``. Returns NONE, or the error for all offsets.

    A commit outside of a transaction restarts the session of a classic group's member.
    """
    found = shard.state.group_with_offsets(who.group_id)
    since = TRANSACTIONAL_EPOCH_ERRORS_SINCE if transactional else GROUP_ID_NOT_FOUND_SINCE
    if isinstance(found, ConsumerGroup):
        error = _check_member(shard, found, who, offsets, api_version, transactional=transactional)
        is_older = transactional and api_version < since
        return ErrorCode.illegal_generation if is_older and error is ErrorCode.stale_member_epoch else error
    if found is not None:
        error, effects = classic.commit(
            found, who.member_id, who.group_instance_id, who.generation_id, transactional=transactional
        )
        shard.run(found, effects)
        return error
    if who.group_id in shard.state.share_groups:
        return ErrorCode.group_id_not_found
    # A commit with generation -1 creates a group that has no members.
    if who.generation_id < 0:
        return NONE
    return ErrorCode.illegal_generation if api_version < since else ErrorCode.group_id_not_found


def _check_member(
    shard: GroupShard,
    group: ConsumerGroup,
    who: Committer,
    offsets: Sequence[OffsetToCommit],
    api_version: int,
    *,
    transactional: bool,
) -> ErrorCode:
    """Check whether a member of a consumer group may commit. As on Kafka, one refused partition fails the whole request."""
    try:
        check = check_commit(
            group,
            who.member_id,
            who.group_instance_id,
            who.generation_id,
            transactional=transactional,
            api_version=api_version,
        )
    except Refused as refusal:
        return refusal.error
    if check is None:
        return NONE
    metadata_max = shard.config().offset_metadata_max_bytes
    looked_at = (wanted for wanted in offsets if _java_length(wanted.metadata or "") <= metadata_max)
    errors = (check(wanted.topic_id, wanted.partition) for wanted in looked_at)
    return next((found for found in errors if found is not NONE), NONE)


def _records_of(
    shard: GroupShard,
    group_id: str,
    offsets: Sequence[OffsetToCommit],
    retention_ms: int,
) -> tuple[Errors, list[LogRecord]]:
    """Return (NONE or an error for each offset, the records of the offsets without an error)."""
    now_ms = shard.clock.now_ms()
    has_expiry = retention_ms != NO_RETENTION_OF_ITS_OWN
    metadata_max = shard.config().offset_metadata_max_bytes
    errors: Errors = []
    records: list[LogRecord] = []
    for wanted in offsets:
        metadata = wanted.metadata or ""
        if _java_length(metadata) > metadata_max:
            errors.append(ErrorCode.offset_metadata_too_large)
            continue
        errors.append(NONE)
        key = OffsetCommitKey(group_id, wanted.topic, wanted.partition)
        value = OffsetCommitValue(
            offset=wanted.offset,
            leader_epoch=wanted.leader_epoch if not has_expiry else NO_LEADER_EPOCH,
            metadata=metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=now_ms + retention_ms if has_expiry else NO_RETENTION_OF_ITS_OWN,
            topic_id=None if has_expiry else wanted.topic_id,
        )
        records.append(LogRecord(key, value, VALUE_VERSION_WITH_EXPIRY if has_expiry else VALUE_VERSION))
    return errors, records


def _java_length(text: str) -> int:
    """Number of UTF-16 code units (Java's ``String.length()``), by which Kafka limits the metadata of an offset."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


async def fetch(
    shard: GroupShard, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Handle OffsetFetch for one group.

    The response has only committed offsets. With ``require_stable``, first wait until all appended records are committed.
    """
    shard.state.offsets.note_high_watermark(shard.partition.high_watermark)
    if require_stable:
        error = await shard.read()
        if error is not NONE:
            # Consumers do not expect COORDINATOR_NOT_AVAILABLE here.
            if error is ErrorCode.coordinator_not_available:
                error = ErrorCode.not_coordinator
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error)
    return _fetched_group(shard, wanted, require_stable=require_stable)


def _fetched_group(
    shard: GroupShard, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    group = shard.state.consumer_groups.get(wanted.group_id)
    if group is not None:
        error = check_fetch(group, wanted.member_id, wanted.member_epoch)
        if error is not NONE:
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error)
    find = _find_all if wanted.topics is None else _find_some
    topics = find(shard.state.offsets, wanted, require_stable=require_stable)
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


def _find(
    offsets: GroupOffsets, group_id: str, spot: Spot, *, require_stable: bool, topic_id: UUID | None = None
) -> Found:
    if require_stable:
        return offsets.find(group_id, *spot, require_stable=True, topic_id=topic_id)
    return offsets.find_committed(group_id, *spot, topic_id=topic_id)


def _find_some(
    offsets: GroupOffsets, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=[
                fetched(
                    index,
                    _find(
                        offsets,
                        wanted.group_id,
                        (topic.name, index),
                        require_stable=require_stable,
                        topic_id=topic.topic_id,
                    ),
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in wanted.topics or ()
    ]


def _find_all(
    offsets: GroupOffsets, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """Return all committed offsets of the group. Partitions with only a pending offset are left out."""
    group_id = wanted.group_id
    spots = offsets.committed_spots(group_id) if require_stable else offsets.spots_once_committed(group_id)
    topics: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for spot in spots:
        found = _find(offsets, group_id, spot, require_stable=require_stable)
        if found is not NOTHING:
            topics.setdefault(spot[0], []).append(fetched(spot[1], found))
    return [
        OffsetFetchResponseTopics(name=name, partitions=partitions) for name, partitions in topics.items()
    ]


def fetched(index: int, found: Found) -> OffsetFetchResponsePartitions:
    committed = found.committed
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=found.error
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


async def delete_offsets(shard: GroupShard, group_id: str, spots: Sequence[Spot]) -> tuple[ErrorCode, Errors]:
    """Handle OffsetDelete. Returns (NONE or the error of the whole request, NONE or the error of each partition)."""
    errors: Errors = []

    def find() -> list[Key] | ErrorCode:
        group = shard.state.group_with_offsets(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        error = classic.offsets_deletable(group) if isinstance(group, ClassicGroup) else NONE
        if error is not NONE:
            return error
        subscribed = [group.is_subscribed_to(topic) for topic, _ in spots]
        errors[:] = [ErrorCode.group_subscribed_to_topic if each else NONE for each in subscribed]
        free = [spot for spot, is_subscribed in zip(spots, subscribed, strict=True) if not is_subscribed]
        return _keys(group_id, (spot for spot in free if shard.state.offsets.exists(group_id, spot)))

    failure = await shard.write_tombstones(find)
    return failure, errors if failure is NONE else []


async def delete_group(shard: GroupShard, group_id: str) -> ErrorCode:
    """Handle DeleteGroups for one group: delete the group with all its offsets, including pending ones."""

    def find() -> list[Key] | ErrorCode:
        group = shard.state.group(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if isinstance(group, ClassicGroup):
            error = classic.deletable(group)
        else:
            error = NONE if group.is_empty else ErrorCode.non_empty_group
        if error is not NONE:
            return error
        return [*_keys(group_id, shard.state.offsets.all_spots(group_id)), *_group_keys(group)]

    # Kafka first reads from the shard whether this is a share group, and deletes nothing before that read has ended.
    error = await shard.read()
    return await shard.write_tombstones(find) if error is NONE else error


async def expire(shard: GroupShard, retention_ms: int) -> None:
    """Delete the offsets and groups that have expired. If a tombstone cannot be written, the next run writes it."""
    doomed: list[Key] = []

    def now_for(written_ms: int) -> int:
        return shard.clock.now_for(written_ms, Domain.GROUPS)

    def find() -> list[Key]:
        doomed.clear()
        for group in shard.state.groups_with_offsets():
            spots, nothing_left = shard.state.offsets.expired(group, now_for, retention_ms)
            doomed.extend(_keys(group.group_id, spots))
            if nothing_left and group.is_empty:
                doomed.extend(_group_keys(group))
        return doomed

    error = await shard.write_tombstones(find)
    if doomed and error is NONE:
        log.info(
            "expired offsets and groups deleted", partition=shard.partition.index, tombstones=len(doomed)
        )


def expires_in_ms(shard: GroupShard, retention_ms: int) -> int | None:
    """Milliseconds until `expire` deletes an offset or group, if nothing changes before; None for never."""

    def now_for(written_ms: int) -> int:
        return shard.clock.now_for(written_ms, Domain.GROUPS)

    waits = (
        shard.state.offsets.expires_in_ms(group, now_for, retention_ms)
        for group in shard.state.groups_with_offsets()
    )
    return min((wait_ms for wait_ms in waits if wait_ms is not None), default=None)


async def forget_topic(shard: GroupShard, topic: str, topic_id: UUID | None) -> None:
    """Delete all offsets for a deleted topic, so that a new topic of the same name starts without offsets."""

    def find() -> list[Key]:
        spots = shard.state.offsets.of_topic(topic, topic_id)
        return [OffsetCommitKey(group_id, *spot) for group_id, spot in spots]

    await shard.write_tombstones(find)


def _group_keys(group: Group) -> list[Key]:
    """The keys of the group's own records, without the keys of its offsets."""
    if isinstance(group, ConsumerGroup):
        return [record.key for record in group_tombstones(group)]
    if isinstance(group, ClassicGroup):
        return [GroupMetadataKey(group.group_id)]
    from broker.groups.share.records import empty_group_keys  # imported with the first share group

    return empty_group_keys(group.group_id)


def _keys(group_id: str, spots: Iterable[Spot]) -> list[Key]:
    return [OffsetCommitKey(group_id, topic, partition) for topic, partition in spots]
