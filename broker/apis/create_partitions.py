"""CreatePartitions (KIP-195): increase the number of partitions of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.metadata import ApiError, MorePartitions
from broker.metadata.duplicates import split_duplicates
from broker.requests.api import api
from broker.requests.mutation_quotas import mutation_quota
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext


STRICT_QUOTA_SINCE: Final = 3
"""First version with a strict quota: clients of older versions do not know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


@api(key=37, versions=range(4))
async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    single, repeated = split_duplicates(request.topics, lambda topic: topic.name)
    answers = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.invalid_request, error_message="Duplicate topic name."
        )
        for name in repeated
    ]
    quota = mutation_quota(context, strict_since=STRICT_QUOTA_SINCE)
    wanted = []
    for topic in single:
        if context.authorize("ALTER", "TOPIC", topic.name):
            wanted.append(_more(topic))
        else:
            error = ErrorCode.topic_authorization_failed
            answers.append(CreatePartitionsTopicResult(name=topic.name, error_code=error))
    try:
        results = await context.node.metadata.replication_control.create_partitions(
            wanted, validate_only=request.validate_only, take=quota.take
        )
    except ApiError as failure:
        return CreatePartitionsResponse(
            throttle_time_ms=quota.throttle_ms,
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=failure.error, error_message=failure.message
                )
                for topic in request.topics
            ],
        )
    for more, refusal in zip(wanted, results, strict=True):
        answer = CreatePartitionsTopicResult(name=more.name)
        if refusal is not None:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        answers.append(answer)
    return CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms, results=answers)


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name, topic.count, None if assignments is None else [one.broker_ids for one in assignments]
    )
