"""The upstream's groups with their committed offsets and their lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.views.forms import GroupOffset, GroupsSummary, GroupSummary, SharePartitionSummary
from lab.views.ports import GROUPS_MAX, OFFSETS_OF_GROUP_MAX
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.share_group_describe import ShareGroupDescribeRequest
from proxy.admin import LATEST, READ_COMMITTED, Admin, Place
from proxy.asking import NoAnswer

OFFSET_FETCH: Final = 9
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
CONSUMER_GROUP_DESCRIBE: Final = 69
SHARE_GROUP_DESCRIBE: Final = 77
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
NAMES_TOPICS: Final = 9
"""Last version of OffsetFetch that has topic names."""
CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"
SHARE: Final = "share"
KINDS: Final = (CLASSIC, CONSUMER, SHARE)

Committed = dict[Place, tuple[int | None, bool]]
"""(committed offset, whether an open transaction has a pending offset)."""


async def groups(admin: Admin) -> GroupsSummary:
    """A summary of classic, consumer and share groups: those with members first, then by name."""
    listed = [
        (node_id, each)
        for node_id, response in await admin.of_each_node(LIST_GROUPS, ListGroupsRequest())
        for each in response.groups
        if _kind(each) in KINDS
    ]
    listed.sort(key=lambda each: (each[1].group_state in ("Empty", "Dead"), each[1].group_id))
    shown = listed[:GROUPS_MAX]
    members = await _members(admin, shown)
    committed = {
        each.group_id: await _committed(admin, node_id, each.group_id)
        for node_id, each in shown
        if _kind(each) != SHARE
    }
    shares = {
        each.group_id: await _shares(admin, node_id, each.group_id)
        for node_id, each in shown
        if _kind(each) == SHARE
    }
    leaders = await admin.leaders(place for offsets in committed.values() for place in offsets)
    stable = await admin.offsets(leaders, LATEST, READ_COMMITTED) if leaders else {}
    return GroupsSummary(
        total=len(listed),
        groups=[
            _summary(
                node_id,
                each,
                members.get(each.group_id, 0),
                committed.get(each.group_id, {}),
                stable,
                shares.get(each.group_id, []),
            )
            for node_id, each in shown
        ],
    )


def _kind(listed: Any) -> str:
    """The type of a listed group. Coordinators that know no types list classic groups."""
    return (listed.group_type or CLASSIC).lower()


async def _members(admin: Admin, shown: Sequence[tuple[int, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in KINDS:
        by_node: dict[int, list[str]] = {}
        for node_id, each in shown:
            if _kind(each) == kind:
                by_node.setdefault(node_id, []).append(each.group_id)
        for node_id, ids in by_node.items():
            request: Any = DescribeGroupsRequest(groups=ids)
            key = DESCRIBE_GROUPS
            if kind == CONSUMER:
                request, key = ConsumerGroupDescribeRequest(group_ids=ids), CONSUMER_GROUP_DESCRIBE
            elif kind == SHARE:
                request, key = ShareGroupDescribeRequest(group_ids=ids), SHARE_GROUP_DESCRIBE
            try:
                response = await admin.proxy.ask(node_id, key, request)
            except NoAnswer:
                continue
            found |= {each.group_id: len(each.members) for each in response.groups}
    return found


async def _shares(admin: Admin, node_id: int, group_id: str) -> list[SharePartitionSummary]:
    """The partitions of a share group. Only the leaders know which records are in flight."""
    group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    try:
        response = await admin.proxy.ask(node_id, DESCRIBE_SHARE_GROUP_OFFSETS, request)
    except NoAnswer:
        return []
    found = [
        SharePartitionSummary(
            topic=topic.topic_name,
            partition=each.partition_index,
            start_offset=each.start_offset if each.start_offset >= 0 else None,
            lag=lag if (lag := getattr(each, "lag", -1)) >= 0 else None,  # since version 1
        )
        for topic in response.groups[0].topics
        for each in topic.partitions
        if not each.error_code
    ]
    return sorted(found, key=lambda each: (each.topic, each.partition))[:OFFSETS_OF_GROUP_MAX]


async def _committed(admin: Admin, node_id: int, group_id: str) -> Committed:
    found: Committed = {}
    for place, offset, error in await _offsets(admin, node_id, group_id, require_stable=False):
        if not error:
            found[place] = (offset if offset >= 0 else None, False)
    for place, _, error in await _offsets(admin, node_id, group_id, require_stable=True):
        if error == ErrorCode.unstable_offset_commit:
            found[place] = (found.get(place, (None, False))[0], True)
    return found


async def _offsets(
    admin: Admin, node_id: int, group_id: str, *, require_stable: bool
) -> list[tuple[Place, int, int]]:
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None, member_epoch=-1)
    request = OffsetFetchRequest(
        group_id=group_id, topics=None, groups=[group], require_stable=require_stable
    )
    try:
        response = await admin.proxy.ask(node_id, OFFSET_FETCH, request, NAMES_TOPICS)
    except NoAnswer:
        return []
    # Before version 8 a response has only one group.
    topics = response.groups[0].topics if response.groups else response.topics
    return [
        ((topic.name, each.partition_index), each.committed_offset, each.error_code)
        for topic in topics
        for each in topic.partitions
    ]


def _summary(
    node_id: int,
    group: Any,
    members: int,
    committed: Committed,
    stable: Mapping[Place, int],
    shares: list[SharePartitionSummary],
) -> GroupSummary:
    shown = []
    for place, (offset, pending) in sorted(committed.items())[:OFFSETS_OF_GROUP_MAX]:
        end = stable.get(place)
        lag = None if offset is None or end is None else max(0, end - offset)
        shown.append(
            GroupOffset(topic=place[0], partition=place[1], committed=offset, lag=lag, pending=pending)
        )
    return GroupSummary(
        group=group.group_id,
        type=_kind(group),
        state=group.group_state,
        members=members,
        coordinator=node_id,
        lag=sum(each.lag or 0 for each in shown) + sum(each.lag or 0 for each in shares),
        offsets=shown,
        shares=shares,
    )
