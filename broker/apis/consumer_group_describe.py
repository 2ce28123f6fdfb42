"""ConsumerGroupDescribe: consumer groups (KIP-848) with their members, and the members' current and target assignments.

v1 has the type of each member: whether it uses the classic or the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from broker.apis.consumer_group_heartbeat import serves_consumer_groups
from broker.groups.consumer.context import Refused, live_group
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.topics import TopicsImage
from broker.groups.consumer_settings import assignors
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import unauthorized
from broker.requests.described_groups import describe_groups
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from storage.steps import Steps

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
HAS_OTHER_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."
"""Kafka's error message for a group with topics that the client may not describe."""


@api(key=69, versions=range(2))
async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    if not serves_consumer_groups(context):
        error = ErrorCode.unsupported_version
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error) for group_id in request.group_ids]
        )
    return await context.node.slices.run(_answer(request, context))


def _answer(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Steps[ConsumerGroupDescribeResponse]:
    groups = yield from describe_groups(
        request.group_ids, context, _describe, _refused, with_operations=request.include_authorized_operations
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.invalid_group_id)
    groups = context.node.groups
    found = groups.find(group_id)
    if isinstance(found, ErrorCode) and found is not ErrorCode.group_id_not_found:
        return DescribedGroup(group_id=group_id, error_code=found)
    try:
        group = live_group(None if isinstance(found, ErrorCode) else found, group_id)
    except Refused as refusal:
        return DescribedGroup(group_id=group_id, error_code=refusal.error, error_message=refusal.message)
    default = assignors(context.node.config)[0]
    described = _described(group, groups.consumer_groups.topics, default)
    if unauthorized(context, "DESCRIBE", "TOPIC", _topics_of(described)):
        return DescribedGroup(
            group_id=group_id, error_code=ErrorCode.topic_authorization_failed, error_message=HAS_OTHER_TOPICS
        )
    return described


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name


def _described(group: ConsumerGroup, topics: TopicsImage, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: TopicsImage) -> Member:
    current = {topic_id: list(epochs) for topic_id, epochs in member.assigned.items()}
    for topic_id, epochs in member.pending_revocation.items():
        # A partition that the member still has to revoke is part of its current assignment.
        current[topic_id] = [*current.get(topic_id, ()), *epochs]
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(current, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: TopicsImage) -> Assignment:
    """The assignment as the response has it, with topic names. Deleted topics are left out, because their names are not
    known.
    """
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (name := topics.topic_name(topic_id)) is not None
        ]
    )
