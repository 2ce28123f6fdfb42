"""Consumer groups: their offsets and members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.records.consumer_protocol import Assignment
from protocol.schema import MalformedRecord
from tools.client.cluster import GROUP, Cluster
from tools.client.errors import check

# The last versions that name topics.
_OFFSET_FETCH: Final = 9
_OFFSET_COMMIT: Final = 9

_LEAVES: Final = -1
"""The epoch by which a member of the consumer protocol says that it leaves."""

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as its coordinator lists it."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int


def list_groups(cluster: Cluster) -> list[Listed]:
    """The groups of all coordinators, by id."""
    found = []
    for node_id, response in cluster.ask_all("list_groups", ListGroupsRequest()):
        check(response.error_code, f"the groups of node {node_id}")
        found += [
            Listed(each.group_id, each.group_state, each.group_type, each.protocol_type, node_id)
            for each in response.groups
        ]
    return sorted(found, key=lambda each: each.group_id)


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """State and members of a classic group; a group that does not exist is ``Dead``."""

    def ask() -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group])
        (found,) = cluster.ask_coordinator(GROUP, group, "describe_groups", request).groups
        if found.error_code != ErrorCode.group_id_not_found:
            check(found.error_code, f"group {group}", getattr(found, "error_message", None))
        described: DescribedGroup = found
        return described

    return cluster.retrying(ask)


def assigned(member_assignment: bytes) -> list[tuple[str, int]]:
    """The partitions of a member, empty if other clients than consumers wrote the assignment."""
    try:
        found = Assignment.decode(bytes(member_assignment)).assigned_partitions if member_assignment else ()
    except MalformedRecord:
        return []
    return [(each.topic, partition) for each in found for partition in each.partitions]


def fetch_offsets(cluster: Cluster, group: str, *, require_stable: bool = False) -> Offsets:
    """The committed offsets of a group, by partition."""

    def ask() -> Any:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, member_epoch=-1, topics=None)],
            group_id=group,
            topics=None,
            require_stable=require_stable,
        )
        response = cluster.ask_coordinator(GROUP, group, "offset_fetch", request, _OFFSET_FETCH)
        found = response.groups[0] if response.groups else response
        check(found.error_code, f"the offsets of group {group}")
        return found

    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in cluster.retrying(ask).topics
        for each in topic.partitions
        if each.error_code == 0 and each.committed_offset >= 0
    }


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a group without members, as an administrator does (generation -1)."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for partition, offset in parts
            ],
        )
        for topic, parts in _by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, retention_time_ms=-1, topics=topics
    )

    def ask() -> None:
        response = cluster.ask_coordinator(GROUP, group, "offset_commit", request, _OFFSET_COMMIT)
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group}, {topic.name}-{each.partition_index}")

    cluster.retrying(ask)


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, []).append((partition, offset))
    return found


def remove_members(cluster: Cluster, group: str) -> int:
    """Let all members leave, as if each had asked for it; returns how many. Those that are alive may join again.

    A client that died without a word is a member until its session times out.
    """
    found = next((each for each in list_groups(cluster) if each.group_id == group), None)
    if found is None:
        return 0
    if found.group_type.lower() == "consumer":
        return _remove_consumers(cluster, group)
    members = [
        MemberIdentity(member_id=each.member_id, group_instance_id=getattr(each, "group_instance_id", None))
        for each in describe_group(cluster, group).members
    ]

    def ask() -> None:
        request = LeaveGroupRequest(group_id=group, members=members)
        response = cluster.ask_coordinator(GROUP, group, "leave_group", request)
        check(response.error_code, f"group {group}")

    if members:
        cluster.retrying(ask)
    return len(members)


def _remove_consumers(cluster: Cluster, group: str) -> int:
    """Of the consumer protocol (KIP-848), which has no request for others: each leaves by a heartbeat in its name."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (described,) = cluster.ask_coordinator(GROUP, group, "consumer_group_describe", request).groups
    check(described.error_code, f"group {group}")
    for member in described.members:
        leaves = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member.member_id, member_epoch=_LEAVES
        )
        answer = cluster.ask_coordinator(GROUP, group, "consumer_group_heartbeat", leaves)
        if answer.error_code != ErrorCode.unknown_member_id:
            check(answer.error_code, f"group {group}")
    return len(described.members)


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members, with its offsets."""

    def ask() -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (found,) = cluster.ask_coordinator(GROUP, group, "delete_groups", request).results
        check(found.error_code, f"group {group}", named=("group", group))

    cluster.retrying(ask)


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[tuple[str, int]]) -> None:
    """Delete a group's offsets of partitions to which no member subscribes."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index, _ in parts]
        )
        for topic, parts in _by_topic(dict.fromkeys(partitions, 0)).items()
    ]

    def ask() -> None:
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        response = cluster.ask_coordinator(GROUP, group, "offset_delete", request)
        check(response.error_code, f"group {group}")
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group}, {topic.name}-{each.partition_index}")

    cluster.retrying(ask)
