"""DeleteTopics (KIP-4): by name, and from v6 on by id (KIP-516). When the response is sent, the names can be reused.

v5 adds error messages.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from broker.metadata import ApiError, Topic
from broker.metadata.duplicates import split_duplicates
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from broker.requests.mutation_quotas import mutation_quota
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext


STRICT_QUOTA_SINCE: Final = 5
"""First version with a strict quota: clients of older versions do not know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


@api(key=20, versions=range(1, 7))
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    entries = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    if not context.node.config.delete_topic_enable:
        return DeleteTopicsResponse(responses=[_disabled(entry, context) for entry in entries])
    answers: list[DeletableTopicResult] = []
    doomed = _doomed(entries, context, answers)
    quota = mutation_quota(context, strict_since=STRICT_QUOTA_SINCE)
    try:
        results = await context.node.metadata.replication_control.delete_topics(list(doomed), take=quota.take)
    except ApiError as failure:
        results = [failure] * len(doomed)
    for topic, refusal in zip(doomed.values(), results, strict=True):
        answer = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        if refusal is not None:
            answer.error_code, answer.error_message = refusal.error, refusal.message
        answers.append(answer)
    return DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms, responses=answers)


def _doomed(
    entries: list[DeleteTopicState], context: RequestContext, answers: list[DeletableTopicResult]
) -> dict[uuid.UUID, Topic]:
    """The topics to delete, by id. Appends an error to ``answers`` for each entry that cannot be deleted."""
    by_name, by_id = [], []
    for entry in entries:
        if entry.name is not None and entry.topic_id is not None:
            message = "You may not specify both topic name and topic id."
            answers.append(_answer(entry.name, entry.topic_id, ErrorCode.invalid_request, message))
        elif entry.name is not None:
            by_name.append(entry.name)
        elif entry.topic_id is not None:
            by_id.append(entry.topic_id)
        else:
            message = "Neither topic name nor id were specified."
            answers.append(_answer(None, None, ErrorCode.invalid_request, message))
    names, repeated_names = split_duplicates(by_name, str)
    ids, repeated_ids = split_duplicates(by_id, lambda topic_id: topic_id)
    refused = ErrorCode.invalid_request
    answers += [_answer(name, None, refused, "Duplicate topic name.") for name in repeated_names]
    answers += [_answer(None, topic_id, refused, "Duplicate topic id.") for topic_id in repeated_ids]
    doomed = {topic.topic_id: topic for topic in (_by_id(one, context, answers) for one in ids) if topic}
    for topic in (_by_name(name, context, answers) for name in names):
        if topic is None:
            continue
        if topic.topic_id in doomed or topic.topic_id in repeated_ids:
            message = "The provided topic name maps to an ID that was already supplied."
            answers.append(_answer(topic.name, topic.topic_id, refused, message))
            doomed.pop(topic.topic_id, None)
        else:
            doomed[topic.topic_id] = topic
    return doomed


def _by_id(topic_id: uuid.UUID, context: RequestContext, answers: list[DeletableTopicResult]) -> Topic | None:
    topic = context.node.metadata.topic_by_id(topic_id)
    if topic is None:
        answers.append(_answer(None, topic_id, ErrorCode.unknown_topic_id))
        return None
    if not _may(context, "DELETE", topic.name):
        # A client that may not describe the topic does not learn its name.
        name = topic.name if _may(context, "DESCRIBE", topic.name) else None
        answers.append(_answer(name, topic_id, ErrorCode.topic_authorization_failed))
        return None
    return topic


def _by_name(name: str, context: RequestContext, answers: list[DeletableTopicResult]) -> Topic | None:
    if not _may(context, "DESCRIBE", name):
        answers.append(_answer(name, None, ErrorCode.topic_authorization_failed))
        return None
    topic = context.node.metadata.topic(name)
    if topic is None:
        answers.append(_answer(name, None, ErrorCode.unknown_topic_or_partition))
    elif not _may(context, "DELETE", name):
        answers.append(_answer(name, None, ErrorCode.topic_authorization_failed))
        return None
    return topic


def _may(context: RequestContext, operation: str, name: str) -> bool:
    return may_on_cluster(context, "DELETE", logs_denial=False) or context.authorize(operation, "TOPIC", name)


# Messages of Kafka's ``Errors``.
_MESSAGES: Final = {
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
}


def _answer(
    name: str | None, topic_id: uuid.UUID | None, error: ErrorCode, message: str | None = None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=message or _MESSAGES.get(error)
    )


def _disabled(entry: DeleteTopicState, context: RequestContext) -> DeletableTopicResult:
    old = context.api_version < 3
    return DeletableTopicResult(
        name=entry.name,
        topic_id=entry.topic_id,
        error_code=ErrorCode.invalid_request if old else ErrorCode.topic_deletion_disabled,
    )
