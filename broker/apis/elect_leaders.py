"""ElectLeaders: elect the preferred replica as leader, or, if no replica is in sync, any live one (unclean election).

KIP-183; v1 adds the unclean election and a top-level error code (KIP-460), v2 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata import ApiError
from broker.metadata.partition_change import Election
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@api(key=43, versions=range(3))
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    denied = cluster_refusal(context, "ALTER")
    if denied is not None:
        return _refused(request, denied)
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse()
    try:
        kind = Election(request.election_type)
    except ValueError:
        message = f"Unknown election type {request.election_type}"
        return _refused(request, ApiError(ErrorCode.invalid_request, message))
    if request.topic_partitions is None:
        return await _elect_everywhere(kind, context)
    wanted = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    try:
        results = iter(await context.node.metadata.replication_control.elect(wanted, kind))
    except ApiError as refusal:
        return _refused(request, refusal)
    return ElectLeadersResponse(replica_election_results=_phrase(request, results))


async def _elect_everywhere(kind: Election, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders of all partitions. The response has each topic, with the partitions whose leader changed or whose
    election failed.
    """
    topics = context.node.metadata.topics
    wanted = [(name, state.index) for name, topic in topics.items() for state in topic.partitions]
    rows: dict[str, list[PartitionResult]] = {name: [] for name in topics}
    try:
        results = await context.node.metadata.replication_control.elect(wanted, kind)
    except ApiError as refusal:
        return ElectLeadersResponse(error_code=refusal.error)
    for (name, index), result in zip(wanted, results, strict=True):
        if result is None or result.error is not ErrorCode.election_not_needed:
            rows[name].append(_result(index, result))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partitions)
            for name, partitions in rows.items()
        ]
    )


def _refused(request: ElectLeadersRequest, refusal: ApiError) -> ElectLeadersResponse:
    """The response to a refused request. Each partition has the error as well, since v0 has no top-level error code."""
    count = sum(len(topic.partitions) for topic in request.topic_partitions or ())
    return ElectLeadersResponse(
        error_code=refusal.error, replica_election_results=_phrase(request, iter([refusal] * count))
    )


def _phrase(request: ElectLeadersRequest, results: Iterator[ApiError | None]) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(
            topic=topic.topic, partition_result=[_result(index, next(results)) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]


def _result(index: int, refusal: ApiError | None) -> PartitionResult:
    if refusal is None:
        return PartitionResult(partition_id=index)
    return PartitionResult(partition_id=index, error_code=refusal.error, error_message=refusal.message)
