"""The groups with their committed offsets and their lag."""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.cluster import Cluster
from broker.groups.offsets import GroupOffsets
from broker.node import Node
from lab.views.forms import GroupOffset, GroupsSummary, GroupSummary, SharePartitionSummary
from lab.views.led import led
from lab.views.ports import GROUPS_MAX, OFFSETS_OF_GROUP_MAX
from lab.views.turns import in_turns

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group

PER_TURN: Final = 200
GROUPS_PER_TURN: Final = 5
"""Number of groups read in one turn of the event loop. Each has up to OFFSETS_OF_GROUP_MAX partitions."""


async def groups(cluster: Cluster) -> GroupsSummary:
    """A summary of the groups, sorted by name, those with members first."""
    total = 0
    found: list[tuple[Group, GroupOffsets, Node]] = []
    for node in cluster.running_nodes():
        async for group, offsets in in_turns(node.groups.known(), PER_TURN):
            total += 1
            found.append((group, offsets, node))
            if len(found) > 2 * GROUPS_MAX:
                found = _first(found)
    shown = [summary(cluster, *each) async for each in in_turns(_first(found), GROUPS_PER_TURN)]
    return GroupsSummary(total=total, groups=shown)


def _first(
    found: list[tuple[Group, GroupOffsets, Node]],
) -> list[tuple[Group, GroupOffsets, Node]]:
    found = sorted(found, key=lambda each: each[0].group_id)
    return nlargest(GROUPS_MAX, found, key=lambda each: len(each[0].members) > 0)


def summary(cluster: Cluster, group: Group, offsets: GroupOffsets, node: Node) -> GroupSummary:
    """A summary of one group, with its offsets in the order of topics and partitions."""
    spots = sorted(offsets.all_spots(group.group_id))
    shown = [_offset(cluster, group.group_id, offsets, *spot) for spot in islice(spots, OFFSETS_OF_GROUP_MAX)]
    shares: list[SharePartitionSummary] = []
    if group.type == "share":
        from lab.views.shares import share_partitions  # imported with the first share group

        shares = share_partitions(cluster, group)
    return GroupSummary(
        group=group.group_id,
        type=group.type,
        state=group.state.value,
        members=len(group.members),
        coordinator=node.node_id,
        lag=sum(each.lag or 0 for each in shown) + sum(each.lag or 0 for each in shares),
        offsets=shown,
        shares=shares,
    )


def _offset(cluster: Cluster, group_id: str, offsets: GroupOffsets, topic: str, index: int) -> GroupOffset:
    committed = offsets.find(group_id, topic, index, require_stable=False).committed
    partition = led(cluster, topic, index)
    position = None if committed is None else committed.offset
    lag = None if partition is None or position is None else max(0, partition.last_stable_offset - position)
    return GroupOffset(
        topic=topic,
        partition=index,
        committed=position,
        lag=lag,
        pending=offsets.is_unstable(group_id, (topic, index)),
    )
