"""ShareGroupDescribe: share groups (KIP-932) with their members, and the members' assignments."""

from __future__ import annotations

from collections.abc import Iterator

from broker.apis.consumer_group_describe import HAS_OTHER_TOPICS
from broker.apis.share_group_heartbeat import serves_share_groups
from broker.config.agreement import SHARE_ASSIGNORS
from broker.groups.consumer.context import Refused
from broker.groups.consumer.topics import TopicsImage
from broker.groups.share.member import ShareGroupMember
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import unauthorized
from broker.requests.described_groups import describe_groups
from broker.share.messages import message_of
from protocol.errors import ErrorCode
from protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from storage.steps import Steps


@api(key=77, versions=range(1, 2))
async def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    if not serves_share_groups(context):
        error = ErrorCode.unsupported_version
        return ShareGroupDescribeResponse(
            groups=[_refused(group_id, error) for group_id in request.group_ids]
        )
    return await context.node.slices.run(_answer(request, context))


def _answer(request: ShareGroupDescribeRequest, context: RequestContext) -> Steps[ShareGroupDescribeResponse]:
    groups = yield from describe_groups(
        request.group_ids, context, _describe, _refused, with_operations=request.include_authorized_operations
    )
    return ShareGroupDescribeResponse(groups=groups)


def _refused(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error, error_message=message)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    if not group_id:
        return _refused("", ErrorCode.invalid_group_id)
    groups = context.node.groups
    try:
        group = groups.share_groups.find(group_id)
    except Refused as refusal:
        return _refused(group_id, refusal.error, refusal.message or message_of(refusal.error))
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SHARE_ASSIGNORS[context.node.config.group_share_assignors[0]],
        members=[_member(member, groups.share_groups.topics) for member in group.members.values()],
    )
    if unauthorized(context, "DESCRIBE", "TOPIC", _topics_of(described)):
        return _refused(group_id, ErrorCode.topic_authorization_failed, HAS_OTHER_TOPICS)
    return described


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        yield from (topic.topic_name for topic in member.assignment.topic_partitions)


def _member(member: ShareGroupMember, topics: TopicsImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                # Deleted topics are left out: their names are not known.
                if (name := topics.topic_name(topic_id)) is not None
            ]
        ),
    )
