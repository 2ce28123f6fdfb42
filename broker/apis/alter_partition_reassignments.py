"""AlterPartitionReassignments: move partitions to other brokers, or cancel such a move (KIP-455).

v1 can require that the number of replicas stays the same (KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@api(key=45, versions=range(2))
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    denied = cluster_refusal(context, "ALTER")
    if denied is not None:
        return _refused(request, denied)
    if not request.topics:
        # Kafka responds with the schema's default "" here, and with null in all other responses without an error.
        return AlterPartitionReassignmentsResponse(error_message="")
    wanted = [
        ((topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    keeps_factor = not request.allow_replication_factor_change
    try:
        results = iter(
            await context.node.metadata.replication_control.reassign(wanted, keeps_factor=keeps_factor)
        )
    except ApiError as refusal:
        return _refused(request, refusal)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=_phrase(request, results),
    )


def _refused(
    request: AlterPartitionReassignmentsRequest, refusal: ApiError
) -> AlterPartitionReassignmentsResponse:
    count = sum(len(topic.partitions) for topic in request.topics)
    return AlterPartitionReassignmentsResponse(
        error_code=refusal.error,
        error_message=refusal.message,
        responses=_phrase(request, iter([refusal] * count)),
    )


def _phrase(
    request: AlterPartitionReassignmentsRequest, results: Iterator[ApiError | None]
) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[_result(each.partition_index, next(results)) for each in topic.partitions],
        )
        for topic in request.topics
    ]


def _result(index: int, refusal: ApiError | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(partition_index=index)
    return ReassignablePartitionResponse(
        partition_index=index, error_code=refusal.error, error_message=refusal.message
    )
