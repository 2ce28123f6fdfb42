"""CreateTopics (KIP-4), with a result for each topic. The response is sent once Metadata responses contain the topics.

v4: -1 as the number of partitions or replicas means the broker's default. v5: the response has partition counts and settings
(KIP-525). v7: topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.metadata import ApiError, CreatedTopic, NewTopic
from broker.metadata.duplicates import split_duplicates
from broker.metadata.topics import CLUSTER_METADATA
from broker.requests.api import api
from broker.requests.metadata_views import CLUSTER_NAME
from broker.requests.mutation_quotas import mutation_quota
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext
from broker.logging import get_logger

log = get_logger()


STRICT_QUOTA_SINCE: Final = 6
"""First version with a strict quota: clients of older versions do not know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


@api(key=19, versions=range(2, 8))
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    single, repeated = split_duplicates(request.topics, lambda topic: topic.name)
    anywhere = context.authorize("CREATE", "CLUSTER", CLUSTER_NAME, logs_denial=False)
    quota = mutation_quota(context, strict_since=STRICT_QUOTA_SINCE)
    wanted, refused = [], []
    for topic in single:
        if topic.name == CLUSTER_METADATA:
            message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            refused.append(_refused(topic.name, ErrorCode.invalid_request, message, context))
        elif anywhere or context.authorize("CREATE", "TOPIC", topic.name):
            wanted.append(_new_topic(topic))
        else:
            error = ErrorCode.topic_authorization_failed
            refused.append(_refused(topic.name, error, "Authorization failed.", context))
    try:
        results = await context.node.metadata.replication_control.create_topics(
            wanted, validate_only=request.validate_only, take=quota.take
        )
    except ApiError as refusal:
        # Over the limit of one request: no topic is created.
        return CreateTopicsResponse(
            topics=[_refused(topic.name, refusal.error, refusal.message, context) for topic in request.topics]
        )
    answers = [
        _refused(new.name, result.error, result.message, context)
        if isinstance(result, ApiError)
        else _created(result, context)
        for new, result in zip(wanted, results, strict=True)
    ]
    duplicates = [
        _refused(name, ErrorCode.invalid_request, "Duplicate topic name.", context) for name in repeated
    ]
    return CreateTopicsResponse(throttle_time_ms=quota.throttle_ms, topics=[*answers, *duplicates, *refused])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(one.partition_index, one.broker_ids) for one in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: int, message: str | None, context: RequestContext) -> CreatableTopicResult:
    log.info(
        "topic not created",
        topic=name,
        error=ErrorCode(error).name,
        reason=message,
        connection=context.connection_id,
    )
    return CreatableTopicResult(name=name, error_code=error, error_message=message)


def _created(topic: CreatedTopic, context: RequestContext) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name, topic_id=topic.topic_id)
    if not context.authorize("DESCRIBE_CONFIGS", "TOPIC", topic.name, logs_denial=False):
        result.topic_config_error_code = ErrorCode.topic_authorization_failed
        return result
    result.num_partitions = topic.partitions
    result.replication_factor = topic.replication_factor
    if context.api_version >= 5:
        result.configs = [
            CreatableTopicConfigs(
                name=one.name,
                value=one.value,
                read_only=one.read_only,
                config_source=one.source,
                is_sensitive=one.sensitive,
            )
            for one in context.node.settings.of_new_topic(topic.configs)
        ]
    return result
