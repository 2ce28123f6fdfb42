"""Checks whether a member of a consumer group may commit or fetch offsets with the epoch in its request. Pure.

KIP-1251: a commit with an older epoch is accepted for a partition that was assigned to the member at that epoch or earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from broker.groups.consumer.context import refused
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from protocol.errors import NONE, ErrorCode

MEMBER_EPOCH_SINCE: Final = 9
"""The first version of OffsetCommit for members of the consumer protocol."""
NO_EPOCH: Final = -1

CheckPartition = Callable[[UUID | None, int], ErrorCode]
"""(topic id, partition) -> NONE if the member may commit an offset of the partition, otherwise the error."""


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    transactional: bool,
    api_version: int,
) -> CheckPartition | None:
    """Check a commit. Returns None if all partitions may be committed, otherwise the check for each partition.

    Raises `Refused` if no partition may be committed.
    """
    if epoch < 0 and not group.members:
        return None
    if transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
        return None
    member = group.members.get(member_id)
    if member is None:
        raise refused(ErrorCode.unknown_member_id)
    if not transactional and not member.uses_classic_protocol and api_version < MEMBER_EPOCH_SINCE:
        raise refused(ErrorCode.unsupported_version)
    if epoch == member.member_epoch:
        return None
    stale = _stale(member)
    if epoch > member.member_epoch:
        raise refused(stale)

    def check(topic_id: UUID | None, partition: int) -> ErrorCode:
        since = _assigned_since(member, topic_id, partition)
        return NONE if since is not None and epoch >= since else stale

    return check


def _assigned_since(member: ConsumerGroupMember, topic_id: UUID | None, partition: int) -> int | None:
    """Epoch at which the partition was assigned to the member; None if the member does not have the partition.

    A partition that the member must revoke still counts as the member's until the member reports it as revoked.
    """
    if topic_id is None:
        return None
    since = member.assigned.get(topic_id, {}).get(partition)
    return member.pending_revocation.get(topic_id, {}).get(partition) if since is None else since


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    if member_id is None and epoch < 0:
        return NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    return NONE if epoch == member.member_epoch else _stale(member)


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    """Return the error for a wrong epoch: ILLEGAL_GENERATION for a classic member, otherwise STALE_MEMBER_EPOCH."""
    return ErrorCode.illegal_generation if member.uses_classic_protocol else ErrorCode.stale_member_epoch
