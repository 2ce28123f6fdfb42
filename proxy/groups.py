"""The upstream's groups with their committed offsets and their lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.views.forms import GroupOffset, GroupsSummary, GroupSummary
from lab.views.ports import GROUPS_MAX, OFFSETS_OF_GROUP_MAX
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from proxy.admin import LATEST, READ_COMMITTED, Admin, Place
from proxy.asking import NoAnswer

OFFSET_FETCH: Final = 9
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
CONSUMER_GROUP_DESCRIBE: Final = 69
NAMES_TOPICS: Final = 9
"""Last version of OffsetFetch that has topic names."""
CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"

Committed = dict[Place, tuple[int | None, bool]]
"""(committed offset, whether an open transaction has a pending offset)."""


async def groups(admin: Admin) -> GroupsSummary:
    """A summary of classic groups and consumer groups: those with members first, then by name."""
    listed = [
        (node_id, each)
        for node_id, response in await admin.of_each_node(LIST_GROUPS, ListGroupsRequest())
        for each in response.groups
        if (each.group_type or CLASSIC).lower() in (CLASSIC, CONSUMER)
    ]
    listed.sort(key=lambda each: (each[1].group_state in ("Empty", "Dead"), each[1].group_id))
    shown = listed[:GROUPS_MAX]
    members = await _members(admin, shown)
    committed = {each.group_id: await _committed(admin, node_id, each.group_id) for node_id, each in shown}
    leaders = await admin.leaders(place for offsets in committed.values() for place in offsets)
    stable = await admin.offsets(leaders, LATEST, READ_COMMITTED) if leaders else {}
    return GroupsSummary(
        total=len(listed),
        groups=[
            _summary(node_id, each, members.get(each.group_id, 0), committed[each.group_id], stable)
            for node_id, each in shown
        ],
    )


async def _members(admin: Admin, shown: Sequence[tuple[int, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in (CLASSIC, CONSUMER):
        by_node: dict[int, list[str]] = {}
        for node_id, each in shown:
            if (each.group_type or CLASSIC).lower() == kind:
                by_node.setdefault(node_id, []).append(each.group_id)
        for node_id, ids in by_node.items():
            request: Any = DescribeGroupsRequest(groups=ids)
            key = DESCRIBE_GROUPS
            if kind == CONSUMER:
                request, key = ConsumerGroupDescribeRequest(group_ids=ids), CONSUMER_GROUP_DESCRIBE
            try:
                response = await admin.proxy.ask(node_id, key, request)
            except NoAnswer:
                continue
            found |= {each.group_id: len(each.members) for each in response.groups}
    return found


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
    node_id: int, group: Any, members: int, committed: Committed, stable: Mapping[Place, int]
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
        type=(group.group_type or CLASSIC).lower(),
        state=group.group_state,
        members=members,
        coordinator=node_id,
        lag=sum(each.lag or 0 for each in shown),
        offsets=shown,
    )
