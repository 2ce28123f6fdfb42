"""The end offsets of partitions, from their leaders (``NetworkPartitionMetadataClient``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Domain
from broker.clock.sleeping import sleep_ms
from broker.loop.coroutines import fork
from broker.metadata.values import NO_LEADER
from protocol.errors import NONE, ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from broker.node import Node

Spot = tuple[str, int]
LIST_OFFSETS: Final = (2, 11)
LATEST: Final = -1
NO_REPLICA: Final = -1
READ_UNCOMMITTED: Final = 0
ATTEMPTS: Final = 6
BACKOFF_MS: Final = 2_000
"""Time before the second attempt; it doubles with each attempt, up to the maximum."""
BACKOFF_MAX_MS: Final = 30_000


async def latest_offsets(node: Node, spots: Iterable[Spot]) -> Mapping[Spot, int | ErrorCode]:
    """Return the high watermark of each (topic, partition), or the error with which it could not be read."""
    by_leader: dict[int, list[Spot]] = {}
    for spot in spots:
        by_leader.setdefault(_leader(node, spot), []).append(spot)
    asked = [fork(_ask(node, leader, of_leader), node.life) for leader, of_leader in by_leader.items()]
    found: dict[Spot, int | ErrorCode] = {}
    for each in asked:
        found.update(await each)
    return found


def _leader(node: Node, spot: Spot) -> int:
    topic = node.metadata.topic(spot[0])
    state = None if topic is None else topic.partition(spot[1])
    return NO_LEADER if state is None else state.leader


async def _ask(node: Node, leader: int, spots: list[Spot]) -> Mapping[Spot, int | ErrorCode]:
    if leader == node.node_id:
        return {spot: _own(node, spot) for spot in spots}
    if leader == NO_LEADER or node.peers is None or not node.peers.is_alive(leader):
        return dict.fromkeys(spots, ErrorCode.leader_not_available)
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in spots:
        asked = ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=LATEST)
        by_topic.setdefault(topic, []).append(asked)
    request = ListOffsetsRequest(
        replica_id=NO_REPLICA,
        isolation_level=READ_UNCOMMITTED,
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )
    client_id = f"NetworkPartitionMetadataClient-client-{node.node_id}"
    for attempt in range(ATTEMPTS):
        response = await node.peers.send(leader, client_id, *LIST_OFFSETS, request)
        if response is not None:
            return {**dict.fromkeys(spots, ErrorCode.unknown_topic_or_partition), **_found(response)}
        if attempt + 1 < ATTEMPTS:
            await sleep_ms(node.clock, min(BACKOFF_MS << attempt, BACKOFF_MAX_MS), Domain.REQUESTS)
    return dict.fromkeys(spots, ErrorCode.network_exception)


def _own(node: Node, spot: Spot) -> int | ErrorCode:
    partition = node.replicas.leader(*spot)
    if isinstance(partition, ErrorCode):
        return partition
    found = partition.latest(read_committed=False)
    return found.offset if found.error is NONE else found.error


def _found(response: Any) -> dict[Spot, int | ErrorCode]:
    return {
        (topic.name, each.partition_index): each.offset
        if each.error_code == NONE
        else ErrorCode(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
