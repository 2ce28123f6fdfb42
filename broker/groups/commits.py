"""Commits, fetches and deletions of offsets, on the shard that keeps them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from broker.clock import Domain
from broker.groups import classic
from broker.groups.consumer.context import Refused
from broker.groups.consumer.epoch_checks import check_commit, check_fetch
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import group_tombstones
from broker.groups.effects import Effect
from broker.groups.group import ClassicGroup
from broker.groups.offsets import NO_RETENTION_OF_ITS_OWN, NOTHING, Found, GroupOffsets, Spot
from broker.groups.records import LogRecord
from broker.groups.shard import NO_PRODUCER, GroupShard, Producer
from broker.loop.deferred import Deferred
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

GROUP_ID_NOT_FOUND_SINCE: Final = 9
VALUE_VERSION: Final = 4
VALUE_VERSION_WITH_EXPIRY: Final = 1
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1


class OffsetToCommit(NamedTuple):
    """A position that a client wants kept. The topic and its partition exist."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    topic_id: UUID | None = None


class Committer(NamedTuple):
    """Who commits: a member of the group, or (all defaults) a client outside of it."""

    group_id: str
    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


Errors = list[ErrorCode]
"""One for each offset, in the order of the request."""


def commit(
    shard: GroupShard, who: Committer, offsets: Sequence[OffsetToCommit], retention_ms: int, api_version: int
) -> Errors | Future[Errors]:
    """OffsetCommit."""

    def check() -> ErrorCode:
        found = shard.state.group(who.group_id)
        if isinstance(found, ConsumerGroup):
            return _check_member(shard, found, who, offsets, api_version, transactional=False)
        if found is not None:
            error, effects = _check_classic(found, who, transactional=False)
            shard.run(found, effects)
            return error
        # Generation -1 makes a group of its own kind: one that only commits.
        since = GROUP_ID_NOT_FOUND_SINCE
        missing = ErrorCode.group_id_not_found if api_version >= since else ErrorCode.illegal_generation
        return NONE if who.generation_id < 0 else missing

    return _write(shard, who.group_id, offsets, retention_ms, NO_PRODUCER, check)


def commit_transactional(
    shard: GroupShard,
    who: Committer,
    offsets: Sequence[OffsetToCommit],
    producer: Producer,
    api_version: int,
) -> Errors | Future[Errors]:
    """TxnOffsetCommit, once the transaction coordinator has agreed."""

    def check() -> ErrorCode:
        found = shard.state.group(who.group_id)
        if isinstance(found, ConsumerGroup):
            error = _check_member(shard, found, who, offsets, api_version, transactional=True)
            return ErrorCode.illegal_generation if error is ErrorCode.stale_member_epoch else error
        if found is not None:
            return _check_classic(found, who, transactional=True)[0]
        return NONE if who.generation_id < 0 else ErrorCode.illegal_generation

    return _write(shard, who.group_id, offsets, NO_RETENTION_OF_ITS_OWN, producer, check)


def _check_classic(
    group: ClassicGroup, who: Committer, *, transactional: bool
) -> tuple[ErrorCode, Sequence[Effect]]:
    return classic.commit(
        group, who.member_id, who.group_instance_id, who.generation_id, transactional=transactional
    )


def _check_member(
    shard: GroupShard,
    group: ConsumerGroup,
    who: Committer,
    offsets: Sequence[OffsetToCommit],
    api_version: int,
    *,
    transactional: bool,
) -> ErrorCode:
    """May a member of a consumer group commit this? One partition that it may not fails the whole request, as on Kafka."""
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


def _write(
    shard: GroupShard,
    group_id: str,
    offsets: Sequence[OffsetToCommit],
    retention_ms: int,
    producer: Producer,
    check: Callable[[], ErrorCode],
) -> Errors | Future[Errors]:
    """Write what ``check`` allows. It is asked again where a rule has held the append up: the member may be gone by then."""
    refused = check()
    if refused is not NONE:
        return [refused] * len(offsets)
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
            # Kafka's records of transactional commits know their topics by name alone.
            topic_id=wanted.topic_id if not has_expiry and producer is NO_PRODUCER else None,
        )
        records.append(LogRecord(key, value, VALUE_VERSION_WITH_EXPIRY if has_expiry else VALUE_VERSION))
    if not records:
        return errors
    reply: Deferred[Errors] = Deferred()

    def committed(error: ErrorCode) -> None:
        reply.resolve(errors if error is NONE else [error] * len(offsets))

    shard.write(records, committed, producer=producer, check=check)
    return reply.outcome()


def _java_length(text: str) -> int:
    """``String.length()``: what Kafka counts as bytes of metadata."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def fetch(
    shard: GroupShard, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup | Future[OffsetFetchResponseGroup]:
    """OffsetFetch for one group: what is committed to the log; stable offsets only once all is that was taken in before."""
    shard.state.offsets.note_high_watermark(shard.partition.high_watermark)
    if not require_stable:
        return _fetched_group(shard, wanted, require_stable=False)

    def answer(error: ErrorCode) -> OffsetFetchResponseGroup:
        if error is not NONE:
            # Consumers do not expect COORDINATOR_NOT_AVAILABLE here.
            if error is ErrorCode.coordinator_not_available:
                error = ErrorCode.not_coordinator
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error)
        return _fetched_group(shard, wanted, require_stable=True)

    return shard.read(answer)


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
    """Everything the group has committed. What is only pending does not exist yet, not even as unstable."""
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


def delete_offsets(
    shard: GroupShard, group_id: str, spots: Sequence[Spot]
) -> tuple[ErrorCode, Errors] | Future[tuple[ErrorCode, Errors]]:
    """OffsetDelete: (an error for the whole group, an error for each spot)."""
    errors: Errors = []

    def find() -> list[Key] | ErrorCode:
        group = shard.state.group(group_id)
        error = NONE
        if group is None:
            error = ErrorCode.group_id_not_found
        elif isinstance(group, ClassicGroup):
            error = classic.offsets_deletable(group)
        if group is None or error is not NONE:
            return error
        subscribed = [group.is_subscribed_to(topic) for topic, _ in spots]
        errors[:] = [ErrorCode.group_subscribed_to_topic if each else NONE for each in subscribed]
        free = [spot for spot, is_subscribed in zip(spots, subscribed, strict=True) if not is_subscribed]
        return _keys(group_id, (spot for spot in free if shard.state.offsets.exists(group_id, spot)))

    reply: Deferred[tuple[ErrorCode, Errors]] = Deferred()
    shard.write_tombstones(find, lambda failure: reply.resolve((failure, errors if failure is NONE else [])))
    return reply.outcome()


def delete_group(shard: GroupShard, group_id: str) -> ErrorCode | Future[ErrorCode]:
    """DeleteGroups: the group with all its offsets, pending ones included."""

    def find() -> list[Key] | ErrorCode:
        group = shard.state.group(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if isinstance(group, ConsumerGroup):
            error = ErrorCode.non_empty_group if group.members else NONE
        else:
            error = classic.deletable(group)
        if error is not NONE:
            return error
        return [*_keys(group_id, shard.state.offsets.all_spots(group_id)), *_group_keys(group)]

    def delete(error: ErrorCode) -> None:
        if error is NONE:
            shard.write_tombstones(find, reply.resolve)
        else:
            reply.resolve(error)

    reply: Deferred[ErrorCode] = Deferred()
    # As Kafka, which looks for a share group of this name first: nothing is deleted while that waits.
    shard.when_committed(shard.partition.log_end_offset, delete)
    return reply.outcome()


def expire(shard: GroupShard, retention_ms: int) -> int:
    """Delete the offsets that are expired by the retention; how many tombstones that took."""
    doomed: list[Key] = []

    def now_for(written_ms: int) -> int:
        return shard.clock.now_for(written_ms, Domain.GROUPS)

    def find() -> list[Key]:
        doomed.clear()
        for group in shard.state.all_groups():
            spots, nothing_left = shard.state.offsets.expired(group, now_for, retention_ms)
            doomed.extend(_keys(group.group_id, spots))
            if nothing_left and group.is_empty:
                doomed.extend(_group_keys(group))
        return doomed

    # No request waits for it: what could not be written is found again the next time.
    shard.write_tombstones(find, lambda _: None)
    return len(doomed)


def expires_in_ms(shard: GroupShard, retention_ms: int) -> int | None:
    """In how many milliseconds `expire` has something to delete, as things are; None for never."""

    def now_for(written_ms: int) -> int:
        return shard.clock.now_for(written_ms, Domain.GROUPS)

    waits = (
        shard.state.offsets.expires_in_ms(group, now_for, retention_ms) for group in shard.state.all_groups()
    )
    return min((wait_ms for wait_ms in waits if wait_ms is not None), default=None)


def forget_topic(shard: GroupShard, topic: str, topic_id: UUID | None) -> int:
    """A topic is gone, and its offsets with it: one that comes later under its name starts without them."""
    doomed: list[Key] = []

    def find() -> list[Key]:
        spots = shard.state.offsets.of_topic(topic, topic_id)
        doomed[:] = [OffsetCommitKey(group_id, *spot) for group_id, spot in spots]
        return doomed

    shard.write_tombstones(find, lambda _: None)
    return len(doomed)


def _group_keys(group: ClassicGroup | ConsumerGroup) -> list[Key]:
    """What stands in the log of a group itself."""
    if isinstance(group, ConsumerGroup):
        return [record.key for record in group_tombstones(group)]
    return [GroupMetadataKey(group.group_id)]


def _keys(group_id: str, spots: Iterable[Spot]) -> list[Key]:
    return [OffsetCommitKey(group_id, topic, partition) for topic, partition in spots]
