"""Consumer groups: their offsets and members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribedGroup as ClassicGroup
from protocol.messages.describe_groups import DescribeGroupsRequest
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
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.records.consumer_protocol import Assignment
from protocol.schema import MalformedRecord
from tools.client.cluster import GROUP, Cluster
from tools.client.errors import ToolError, check
from tools.client.offsets import by_topic_of
from tools.client.shares import ShareOffset, share_group, share_offsets

# The last versions that contain topic names.
_OFFSET_FETCH: Final = 9
_OFFSET_COMMIT: Final = 9

_LEAVES: Final = -1
"""Member epoch with which a member of the consumer protocol leaves its group."""

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as listed by its coordinator."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Member:
    """A group member with its assigned partitions."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of either protocol, as its coordinator describes it. A group that does not exist is ``Dead``."""

    group_id: str
    state: str
    assignor: str
    members: tuple[Member, ...] = ()
    epoch: int | None = None
    """Epoch of a share group; None for groups of other types."""
    shares: Mapping[tuple[str, int], ShareOffset] | None = None
    """Start offsets of the partitions of a share group; None for groups of other types."""

    @property
    def owners(self) -> dict[tuple[str, int], Member]:
        """The member to which each partition is assigned."""
        return {where: each for each in self.members for where in each.partitions}


def list_groups(cluster: Cluster, missing: list[str] | None = None) -> list[Listed]:
    """The groups of all coordinators, sorted by id. ``missing`` as in ``Cluster.of_all``."""
    found = cluster.of_all(partial(_groups_of, cluster), missing)
    return sorted(found, key=lambda each: each.group_id)


def listed_group(cluster: Cluster, group: str) -> Listed | None:
    """A group as listed by its coordinator; None if it does not exist, or this user may not describe it."""

    def ask() -> Listed | None:
        node_id = cluster.coordinator(GROUP, group)
        return next((each for each in _groups_of(cluster, node_id) if each.group_id == group), None)

    return cluster.retrying(ask)


def is_share_group(cluster: Cluster, group: str) -> bool:
    """Whether the group exists, and is a share group."""
    listed = listed_group(cluster, group)
    return listed is not None and listed.group_type.lower() == "share"


def _groups_of(cluster: Cluster, node_id: int) -> list[Listed]:
    response = cluster.ask_node(node_id, "list_groups", ListGroupsRequest())
    check(response.error_code, f"the groups of node {node_id}")
    return [
        Listed(each.group_id, each.group_state, each.group_type, each.protocol_type, node_id)
        for each in response.groups
    ]


def describe_group(cluster: Cluster, group: str) -> Group:
    """State and members of a group of either protocol. A group that does not exist is ``Dead``."""
    # List it first to get its type: a describe request of the wrong protocol fails, and brokers record rejected requests.
    listed = listed_group(cluster, group)
    if listed is None:
        return Group(group, "Dead", "")
    kind = listed.group_type.lower()
    if kind == "consumer":
        found = consumer_group(cluster, group)
        return Group(group, found.group_state, found.assignor_name, _modern_members(found.members))
    if kind == "share":
        shared = cluster.retrying(lambda: share_group(cluster, group, cluster.coordinator(GROUP, group)))
        shares = cluster.retrying(lambda: share_offsets(cluster, group, cluster.coordinator(GROUP, group)))
        members = _modern_members(shared.members)
        return Group(group, shared.group_state, shared.assignor_name, members, shared.group_epoch, shares)
    if kind not in ("", "classic"):
        raise ToolError(
            f"group {group} is of the type {kind}; only classic, consumer and share groups are supported"
        )
    return _of_classic(classic_group(cluster, group))


def _modern_members(members: Iterable[Any]) -> tuple[Member, ...]:
    """The members of a consumer group or a share group."""
    return tuple(
        Member(
            each.member_id,
            getattr(each, "instance_id", None),
            each.client_id,
            each.client_host,
            tuple(assigned_names(each.assignment)),
        )
        for each in members
    )


def assigned_names(assignment: Any) -> list[tuple[str, int]]:
    """The partitions in the assignment of a member of a consumer group or a share group."""
    return [(part.topic_name, index) for part in assignment.topic_partitions for index in part.partitions]


def _of_classic(found: ClassicGroup) -> Group:
    members = tuple(
        Member(
            each.member_id,
            getattr(each, "group_instance_id", None),
            each.client_id,
            each.client_host,
            tuple(assigned(each.member_assignment)),
        )
        for each in found.members
    )
    is_gone = found.error_code == ErrorCode.group_id_not_found
    return Group(found.group_id, "Dead" if is_gone else found.group_state, found.protocol_data, members)


def classic_group(cluster: Cluster, group: str) -> ClassicGroup:
    """State and members of a classic group, by DescribeGroups."""

    def ask() -> ClassicGroup:
        request = DescribeGroupsRequest(groups=[group])
        (found,) = cluster.ask_coordinator(GROUP, group, "describe_groups", request).groups
        if found.error_code != ErrorCode.group_id_not_found:
            check(found.error_code, f"group {group}", getattr(found, "error_message", None))
        described: ClassicGroup = found
        return described

    return cluster.retrying(ask)


def consumer_group(cluster: Cluster, group: str) -> ConsumerGroup:
    """State and members of a group of the consumer protocol (KIP-848)."""

    def ask() -> ConsumerGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (found,) = cluster.ask_coordinator(GROUP, group, "consumer_group_describe", request).groups
        check(found.error_code, f"group {group}", found.error_message)
        described: ConsumerGroup = found
        return described

    return cluster.retrying(ask)


def assigned(member_assignment: bytes) -> list[tuple[str, int]]:
    """The partitions in a member's assignment; empty if the assignment is not that of a consumer."""
    try:
        found = Assignment.decode(bytes(member_assignment)).assigned_partitions if member_assignment else ()
    except MalformedRecord:
        return []
    return [(each.topic, partition) for each in found for partition in each.partitions]


def fetch_offsets(cluster: Cluster, group: str) -> Offsets:
    """The committed offsets of a group, by partition."""
    return {where: offset for where, (offset, _) in _fetched(cluster, group, None, is_stable=False).items()}


def stable_offsets(cluster: Cluster, group: str, partitions: Iterable[tuple[str, int]]) -> Offsets:
    """The committed offsets of these partitions. Waits, as consumers do, for open transactions that will commit other
    offsets for them.

    Raises ``KafkaError`` with UNSTABLE_OFFSET_COMMIT if the transactions have not ended after ``RETRY_S`` seconds.
    """
    wanted = list(partitions)

    def ask() -> Offsets:
        found = _fetched(cluster, group, wanted, is_stable=True)
        for (topic, index), (_, code) in sorted(found.items()):
            check(code, f"group {group}, whose offset in {topic}-{index} depends on an open transaction")
        return {where: offset for where, (offset, _) in found.items() if offset >= 0}

    return cluster.retrying(ask)


def unstable_partitions(
    cluster: Cluster, group: str, partitions: Iterable[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Return those of ``partitions`` for which an open transaction has a pending offset of the group."""
    found = _fetched(cluster, group, list(partitions), is_stable=True)
    return {where for where, (_, code) in found.items() if code == ErrorCode.unstable_offset_commit}


def _fetched(
    cluster: Cluster, group: str, partitions: Sequence[tuple[str, int]] | None, *, is_stable: bool
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (committed offset, error code) by partition.

    The result has ``partitions``, or if that is None, all partitions with a committed offset. ``is_stable``
    requests the error UNSTABLE_OFFSET_COMMIT for partitions with a pending offset of an open transaction.
    """
    if partitions is not None and not partitions:
        return {}
    by_topic = by_topic_of(dict.fromkeys(partitions or (), 0))
    named = [(topic, [index for index, _ in parts]) for topic, parts in by_topic.items()]
    new = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in named]
    old = [OffsetFetchRequestTopic(name=topic, partition_indexes=indexes) for topic, indexes in named]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_epoch=-1, topics=new or None)],
        group_id=group,
        topics=old or None,
        require_stable=is_stable,
    )

    def ask() -> Any:
        response = cluster.ask_coordinator(GROUP, group, "offset_fetch", request, _OFFSET_FETCH)
        found = response.groups[0] if response.groups else response
        check(found.error_code, f"the offsets of group {group}")
        return found

    return {
        (topic.name, each.partition_index): (each.committed_offset, each.error_code)
        for topic in cluster.retrying(ask).topics
        for each in topic.partitions
        if partitions is not None or (each.error_code == 0 and each.committed_offset >= 0)
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
        for topic, parts in by_topic_of(offsets).items()
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


def remove_members(cluster: Cluster, group: str) -> int:
    """Remove all members, as if each had left. Returns their number. Running members may join again.

    A client that died without leaving stays a member until its session times out.
    """
    found = listed_group(cluster, group)
    if found is None:
        return 0
    if found.group_type.lower() == "consumer":
        return _remove_consumers(cluster, group)
    members = [
        MemberIdentity(member_id=each.member_id, group_instance_id=getattr(each, "group_instance_id", None))
        for each in classic_group(cluster, group).members
    ]

    def ask() -> None:
        request = LeaveGroupRequest(group_id=group, members=members)
        response = cluster.ask_coordinator(GROUP, group, "leave_group", request)
        check(response.error_code, f"group {group}")

    if members:
        cluster.retrying(ask)
    return len(members)


def _remove_consumers(cluster: Cluster, group: str) -> int:
    """Remove members of a consumer group (KIP-848), which has no admin request for that: send a leave heartbeat for each."""
    described = consumer_group(cluster, group)
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
    """Delete a group's offsets of partitions to which no member is subscribed."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index, _ in parts]
        )
        for topic, parts in by_topic_of(dict.fromkeys(partitions, 0)).items()
    ]

    def ask() -> None:
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        response = cluster.ask_coordinator(GROUP, group, "offset_delete", request)
        check(response.error_code, f"group {group}")
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group}, {topic.name}-{each.partition_index}")

    cluster.retrying(ask)
