"""AlterReplicaLogDirs: move replicas between the log directories of a node (KIP-113).

A node of this broker has only one log directory, so no replica is ever moved.
The versions differ in their encoding only.
"""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

FUTURE_NAME_MAX: Final = 255
FUTURE_SUFFIX_CHARACTERS: Final = len(".") + 32 + len("-future")
"""Length of the suffix that Kafka appends to the directory name of a moving partition: a unique id and ``-future``."""


@api(key=34, versions=range(1, 3))
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    allowed = may_on_cluster(context, "ALTER")
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                error = ErrorCode.cluster_authorization_failed
                if allowed:
                    error = _move(directory.path, topic.name, index, context)
                result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                results.setdefault(topic.name, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


def _move(path: str, name: str, index: int, context: RequestContext) -> ErrorCode:
    """Return NONE if the replica is already in the directory ``path``, else an error: the node has no other directory."""
    replicas = context.node.replicas
    if len(f"{name}-{index}") + FUTURE_SUFFIX_CHARACTERS > FUTURE_NAME_MAX:
        return ErrorCode.invalid_topic_exception
    if path != str(replicas.directory.path.absolute()):
        return ErrorCode.log_dir_not_found
    if context.node.config.is_cordoned:
        return ErrorCode.invalid_replica_assignment
    topic = context.node.metadata.topic(name)
    state = None if topic is None else topic.partition(index)
    if state is None:
        return ErrorCode.unknown_topic_or_partition
    if context.node.node_id not in state.replicas:
        return ErrorCode.replica_not_available
    if replicas.is_offline(name, index):
        return ErrorCode.kafka_storage_error
    return NONE
