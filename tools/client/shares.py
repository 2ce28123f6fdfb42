"""Share groups (KIP-932): members and epochs, and the start offsets and lag of their partitions."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from protocol.named_tuple import NamedTuple
from tools.client.cluster import GROUP, Cluster
from tools.client.errors import check
from tools.client.offsets import by_topic_of

UNKNOWN = -1
"""Start offset of a partition of which no record was acknowledged, and lag that the coordinator does not know."""


class ShareOffset(NamedTuple):
    """The stored start offset of a partition of a share group, and the group's lag. Each may be ``UNKNOWN``."""

    start_offset: int
    lag: int


def share_group(cluster: Cluster, group: str, coordinator: int) -> DescribedGroup:
    """State, epochs and members of a share group. Raises ``KafkaError`` if it is none."""
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (found,) = cluster.ask_node(coordinator, "share_group_describe", request).groups
    check(found.error_code, f"group {group}", found.error_message)
    described: DescribedGroup = found
    return described


def share_offsets(cluster: Cluster, group: str, coordinator: int) -> dict[tuple[str, int], ShareOffset]:
    """The start offsets of the initialized partitions of a share group, by topic and partition."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    (found,) = cluster.ask_node(coordinator, "describe_share_group_offsets", request).groups
    check(found.error_code, f"the offsets of group {group}", found.error_message)
    return {
        (topic.topic_name, each.partition_index): ShareOffset(
            each.start_offset, getattr(each, "lag", UNKNOWN)
        )
        for topic in found.topics
        for each in topic.partitions
        if not each.error_code
    }


def alter_share_offsets(cluster: Cluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set the start offsets of a share group without members."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
                for partition, offset in parts
            ],
        )
        for topic, parts in by_topic_of(offsets).items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)

    def ask() -> None:
        response = cluster.ask_coordinator(GROUP, group, "alter_share_group_offsets", request)
        check(response.error_code, f"group {group}", response.error_message)
        for topic in response.responses:
            for each in topic.partitions:
                where = f"group {group}, {topic.topic_name}-{each.partition_index}"
                check(each.error_code, where, each.error_message)

    cluster.retrying(ask)
