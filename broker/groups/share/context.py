"""Input of decisions about a share group; their output is `broker.groups.consumer.context.Decision`. Pure."""

from __future__ import annotations

from broker.groups.consumer.context import refused
from broker.groups.consumer.topics import TopicsImage
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import ShareGroupMember
from protocol.errors import ErrorCode
from protocol.slotted import slotted


@slotted(frozen=True)
class ShareContext:
    """The input of every decision: the topics, the time and the settings of the group."""

    topics: TopicsImage
    now_ms: int
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    group_size_max: int = 200
    initialize_retry_interval_ms: int = 30_000


def live_group(group: object | None, group_id: str) -> ShareGroup:
    """Return the group if it is a share group; otherwise raise `Refused` with Kafka's message."""
    if group is None:
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
    return group


def member_of(group: ShareGroup, member_id: str) -> ShareGroupMember:
    member = group.members.get(member_id)
    if member is None:
        raise refused(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def check_empty(group: ShareGroup) -> None:
    """Raise `Refused` with NON_EMPTY_GROUP if the group has members."""
    if group.members:
        raise refused(ErrorCode.non_empty_group, "The group is not empty.")
