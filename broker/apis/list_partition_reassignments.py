"""ListPartitionReassignments: the partition reassignments in progress (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable

from broker.metadata import ApiError, PartitionState, Topic
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@api(key=46, versions=range(1))
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    denied = cluster_refusal(context, "DESCRIBE")
    if denied is not None:
        return _refused(request, denied)
    topics = context.node.metadata.topics
    asked: Iterable[tuple[Topic, Iterable[PartitionState | None]]]
    if request.topics is None:
        asked = [(topic, topic.partitions) for topic in topics.values()]
    else:
        asked = [
            (topics[each.name], map(topics[each.name].partition, each.partition_indexes))
            for each in request.topics
            if each.name in topics
        ]
    moving = [_moving(topic, states) for topic, states in asked]
    return ListPartitionReassignmentsResponse(topics=[topic for topic in moving if topic.partitions])


def _refused(
    request: ListPartitionReassignmentsRequest, refusal: ApiError
) -> ListPartitionReassignmentsResponse:
    """The response to a refused request: the error, and the requested partitions without their replicas, as in Kafka."""
    return ListPartitionReassignmentsResponse(
        error_code=refusal.error,
        error_message=refusal.message,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _moving(topic: Topic, states: Iterable[PartitionState | None]) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=state.index,
                replicas=state.replicas,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
            )
            for state in states
            if state is not None and (state.adding_replicas or state.removing_replicas)
        ],
    )
