"""Input of decisions about a share group; their output is `broker.groups.consumer.context.Decision`. Pure."""

from __future__ import annotations

from functools import partial

from broker.groups.consumer.context import group_of_type, refused
from broker.groups.consumer.topics import TopicsImage
from broker.groups.share.group import ShareGroup
from broker.share.messages import message_of
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


live_group = partial(group_of_type, ShareGroup)


def check_empty(group: ShareGroup) -> None:
    """Raise `Refused` with NON_EMPTY_GROUP if the group has members."""
    if group.members:
        raise refused(ErrorCode.non_empty_group, message_of(ErrorCode.non_empty_group))
