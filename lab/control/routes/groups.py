"""Operations on a group: show its members, assignments and offsets; reset its offsets while it has no members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from broker.groups.offsets import GroupOffsets
from broker.metadata.topics import NAME_CHARACTERS_MAX
from broker.node import Node
from broker.replicas.partition import Partition
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control, topic_of
from lab.views.forms import GroupSummary
from lab.views.groups import summary
from protocol.records.consumer_protocol import Assignment
from protocol.schema import MalformedRecord

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group

ID_CHARACTERS_MAX: Final = 2**15 - 1
PARTITIONS_MAX: Final = 1000
"""Largest number of partitions whose committed offsets one call resets."""


class MemberView(View):
    member_id: str
    instance_id: str | None
    """The member's ``group.instance.id``; null for a dynamic member."""
    client_id: str
    host: str
    assignment: list[str]
    """The assigned partitions: topic-partition."""


class GroupView(View):
    summary: GroupSummary
    members: list[MemberView]


class ClampedView(View):
    partition: int
    asked: int
    """The requested offset, which is outside of the log."""
    committed: int
    """The nearest offset of the log: its start or its end."""


class ResetView(GroupView):
    clamped: list[ClampedView]
    """Partitions for which the requested offset is outside of the log."""


class OneGroup(Given):
    group: Annotated[str, Meta(max_length=ID_CHARACTERS_MAX, description="The id of the group.")]


class Reset(Given):
    topic: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(description="If left out: all partitions.")
    ] = None
    to: Annotated[
        Literal["earliest", "latest"] | Annotated[int, Meta(ge=0, le=2**63 - 1)] | None,
        Meta(description="An offset, or earliest or latest."),
    ] = None
    time_ms: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)] | None,
        Meta(description="Instead of to: the first record at or after this time; if there is none, the end."),
    ] = None


_EXAMPLE: Final[dict[str, Any]] = {
    "summary": {
        "group": "workers",
        "type": "classic",
        "state": "Stable",
        "members": 1,
        "coordinator": 1,
        "lag": 3,
        "offsets": [{"topic": "orders", "partition": 0, "committed": 9, "lag": 3, "pending": False}],
    },
    "members": [
        {
            "member_id": "worker-1-8f1c",
            "instance_id": None,
            "client_id": "worker-1",
            "host": "/127.0.0.1",
            "assignment": ["orders-0"],
        }
    ],
}


@operation("GET", "/v1/groups/{group}", answer_example=_EXAMPLE, may_wait=True)
async def show_group(control: Control, params: OneGroup) -> GroupView:
    """Show a group: its members with their clients and assigned partitions, committed offsets and lag; of a share group its
    records in flight.
    """
    from lab.control import node_requests  # rarely used

    found = _find(control, params.group)
    if found is None:
        raise HttpError(404, f"no running coordinator knows the group {params.group}")
    group, offsets, node = found
    described = await node_requests.describe_group(control.cluster, node, params.group, group.type)
    is_classic = group.type == "classic"
    return GroupView(
        summary=summary(control.cluster, group, offsets, node),
        members=[
            MemberView(
                member_id=each.member_id,
                instance_id=each.group_instance_id if is_classic else getattr(each, "instance_id", None),
                client_id=each.client_id,
                host=each.client_host,
                assignment=_assigned(each.member_assignment) if is_classic else _named(each.assignment),
            )
            for each in described.members
        ],
    )


class ShareTimelineView(View):
    timeline: dict[str, Any]
    """The timeline as JSON: its events with kind, time_ms, node, where, member_id, ranges and text."""
    text: str
    """The timeline as a table of text."""


class WantedTimeline(OneGroup):
    topic: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)] | None = None
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


@operation(
    "GET",
    "/v1/groups/{group}/timeline",
    answer_example={
        "timeline": {
            "subject": "record 17 of orders-0 in share group workers",
            "events": [],
            "is_whole": True,
        },
        "text": "record 17 of orders-0 in share group workers …",
    },
    may_wait=True,
)
async def show_share_timeline(control: Control, params: WantedTimeline) -> ShareTimelineView:
    """Show the timeline of a share group, of a topic partition in it, or of the record at an offset.

    Of a partition or record: who acquired and acknowledged it, as far as the trace was on; the states that were written to
    __share_group_state; dead letters. Of the group: its records in __consumer_offsets.
    """
    from lab.trace.share_timeline import share_timeline  # rarely used

    if (params.topic is None) != (params.partition is None) or (
        params.offset is not None and params.topic is None
    ):
        raise HttpError(400, "give topic and partition together; an offset needs both")
    found = _find(control, params.group)
    if found is None:
        raise HttpError(404, f"no running coordinator knows the group {params.group}")
    if found[0].type != "share":
        raise HttpError(400, f"{params.group} is a {found[0].type} group: only share groups have a timeline")
    place = None
    if params.topic is not None and params.partition is not None:
        topic = topic_of(control.cluster.metadata, params.topic)
        if topic.partition(params.partition) is None:
            last = len(topic.partitions) - 1
            raise HttpError(404, f"{params.topic} has no partition {params.partition}: the last is {last}")
        place = (params.topic, params.partition)
    nodes = control.cluster.running_nodes()
    timeline = await share_timeline(nodes, params.group, place, params.offset, control.trace)
    # Formatting a long timeline takes longer than a turn of the event loop may.
    return await asyncio.to_thread(
        lambda: ShareTimelineView(timeline=timeline.to_json(), text=timeline.to_text())
    )


@operation(
    "POST",
    "/v1/groups/{group}/offsets",
    body_example={"topic": "orders", "partition": 0, "to": "earliest"},
    answer_example={
        **_EXAMPLE,
        "members": [],
        "clamped": [{"partition": 0, "asked": 99, "committed": 12}],
    },
    may_wait=True,
)
async def reset_offsets(control: Control, params: OneGroup, body: Reset) -> ResetView:
    """Reset the committed offsets of a group without members: to an offset, the earliest, the latest, or a time.

    A group that does not exist is created. If an offset is outside of a log, the start or the end of the log is committed,
    as by kafka-consumer-groups.sh. The response lists these partitions in clamped. Of a share group, the start offsets are
    set.
    """
    from lab.control import node_requests  # rarely used

    if (body.to is None) == (body.time_ms is None):
        raise HttpError(400, 'give the offset, either as {"to": "earliest"} or as {"time_ms": 1795291007000}')
    cluster = control.cluster
    topic = topic_of(cluster.metadata, body.topic)
    found = _find(control, params.group)
    if found is not None and found[0].members:
        raise HttpError(409, f"the group {params.group} has members: stop them first")
    indexes = [state.index for state in topic.partitions] if body.partition is None else [body.partition]
    if len(indexes) > PARTITIONS_MAX:
        raise HttpError(400, f"at most {PARTITIONS_MAX} partitions can be reset at once")
    offsets: dict[tuple[str, int], int] = {}
    for index in indexes:
        node, partition = node_requests.leader(cluster, body.topic, index)
        if body.to is not None:
            offsets[body.topic, index] = _target(partition, body.to)
        elif body.time_ms is not None:
            offsets[body.topic, index] = await node_requests.first_at(
                node, partition, body.time_ms, read_committed=False
            )
    if found is not None and found[0].type == "share":
        starts = {index: offset for (_, index), offset in offsets.items()}
        await node_requests.alter_share_offsets(cluster, params.group, body.topic, starts)
    else:
        await node_requests.commit_offsets(cluster, params.group, offsets)
    shown = await show_group(control, params)
    clamped = [
        ClampedView(partition=index, asked=body.to, committed=offset)
        for (_, index), offset in offsets.items()
        if isinstance(body.to, int) and offset != body.to
    ]
    return ResetView(summary=shown.summary, members=shown.members, clamped=clamped)


def _target(partition: Partition, to: str | int) -> int:
    start, end = partition.log_start_offset, partition.high_watermark
    if isinstance(to, int):
        return min(max(to, start), end)
    return start if to == "earliest" else end


def _find(control: Control, group_id: str) -> tuple[Group, GroupOffsets, Node] | None:
    for node in control.cluster.running_nodes():
        for group, offsets in node.groups.known():
            if group.group_id == group_id:
                return group, offsets, node
    return None


def _assigned(assignment: bytes) -> list[str]:
    """Assigned partitions of a classic member; empty if the member is not a consumer."""
    try:
        found = Assignment.decode(bytes(assignment)).assigned_partitions if assignment else ()
    except MalformedRecord:
        return []
    return [f"{each.topic}-{index}" for each in found for index in each.partitions]


def _named(assignment: Any) -> list[str]:
    return [f"{each.topic_name}-{index}" for each in assignment.topic_partitions for index in each.partitions]
