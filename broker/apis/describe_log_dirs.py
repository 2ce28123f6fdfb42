"""DescribeLogDirs: sizes of the partitions on this node, size and free space of the volume (KIP-113).

v3 has an error for the whole request, v4 the sizes of the volume (KIP-827), v5 whether a directory is cordoned, that is,
closed to new partitions (KIP-1066).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from storage.directory import PartitionKey

if TYPE_CHECKING:
    from broker.replicas.partition import Partition


@api(key=35, versions=range(1, 6))
async def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    if not may_on_cluster(context, "DESCRIBE"):
        return DescribeLogDirsResponse(error_code=ErrorCode.cluster_authorization_failed)
    keys = _hosted(request, context)
    replicas = context.node.replicas
    opened = {(each.topic, each.index): each for each in replicas.opened()}
    # Partitions that are not open stay closed, since there may be thousands. A thread adds up the sizes of their files.
    closed = [key for key in keys if key not in opened]
    directory = replicas.directory
    result = DescribeLogDirsResult(
        log_dir=str(directory.path.absolute()), is_cordoned=context.node.config.is_cordoned
    )
    try:
        sizes, volume = await asyncio.gather(
            replicas.in_background(partial(directory.sizes, closed)),
            replicas.in_background(directory.volume),
        )
    except OSError:
        result.error_code = ErrorCode.kafka_storage_error
        return DescribeLogDirsResponse(results=[result])
    result.total_bytes, result.usable_bytes = volume
    result.topics = _topics(keys, opened, sizes)
    return DescribeLogDirsResponse(results=[result])


def _hosted(request: DescribeLogDirsRequest, context: RequestContext) -> list[PartitionKey]:
    """The requested partitions (null: all partitions) of which this node has a usable replica."""
    node = context.node
    keys: Iterable[PartitionKey]
    if request.topics is None:
        keys = (
            (topic.name, state.index) for topic in node.metadata.topics.values() for state in topic.partitions
        )
    else:
        keys = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
    return [key for key in keys if _is_here(key, context)]


def _is_here(key: PartitionKey, context: RequestContext) -> bool:
    topic = context.node.metadata.topic(key[0])
    state = None if topic is None else topic.partition(key[1])
    return (
        state is not None
        and context.node.node_id in state.replicas
        and not context.node.replicas.is_offline(*key)
    )


def _topics(
    keys: list[PartitionKey], opened: dict[PartitionKey, Partition], sizes: dict[PartitionKey, int]
) -> list[DescribeLogDirsTopic]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for name, index in keys:
        row = DescribeLogDirsPartition(partition_index=index)
        partition = opened.get((name, index))
        if partition is None:
            row.partition_size = sizes[name, index]
        else:
            row.partition_size = partition.log.size
            row.offset_lag = max(partition.high_watermark - partition.log.log_end_offset, 0)
        by_topic.setdefault(name, []).append(row)
    return [DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in by_topic.items()]
