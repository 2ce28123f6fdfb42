"""DescribeConfigs: the settings of topics, brokers, loggers, groups and client metrics, and where they come from.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from broker.loop.slices import each
from broker.metadata import ApiError
from broker.metadata.configs import LOGGER_SOURCE, Setting
from broker.metadata.topics import invalid_topic_name
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from broker.requests.api import api
from broker.requests.config_changes import LOGGER_RESOURCE
from broker.requests.logger_changes import ROOT, shown_level
from broker.requests.metadata_views import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from storage.steps import Steps

if TYPE_CHECKING:
    from broker.node.context import RequestContext

_Describe = Callable[[str, "RequestContext"], Iterator[Setting]]


@api(key=32, versions=range(1, 5))
async def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    if any(resource.resource_type not in _KINDS for resource in request.resources):
        # One resource of an unknown type fails the whole request.
        return DescribeConfigsResponse(
            results=[_refused(one, ErrorCode.invalid_request, _MALFORMED) for one in request.resources]
        )
    return await context.node.slices.run(_answer(request, context))


def _answer(request: DescribeConfigsRequest, context: RequestContext) -> Steps[DescribeConfigsResponse]:
    described: list[DescribeConfigsResult] = []
    refused: list[DescribeConfigsResult] = []

    def describe(resource: DescribeConfigsResource) -> None:
        refusal = _refusal(resource, context)
        if refusal is None:
            described.append(_describe(resource, request, context))
        else:
            refused.append(refusal)

    yield from each(request.resources, describe)
    return DescribeConfigsResponse(results=[*described, *refused])


def _refusal(resource: DescribeConfigsResource, context: RequestContext) -> DescribeConfigsResult | None:
    """The authorization error of a resource, or None. Refused resources come last in the response, as in Kafka."""
    _, resource_type, unauthorized, message = _KINDS[resource.resource_type]
    subject = CLUSTER_NAME if resource_type == "CLUSTER" else resource.resource_name
    if context.authorize("DESCRIBE_CONFIGS", resource_type, subject):
        return None
    return _refused(resource, unauthorized, message)


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    describe = _KINDS[resource.resource_type][0]
    try:
        settings = list(describe(resource.resource_name, context))
    except ApiError as refusal:
        return _refused(resource, refusal.error, refusal.message or "")
    # An empty list of keys means all keys, as null does.
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_entry(one, request) for one in settings if not wanted or one.name in wanted],
    )


def _entry(setting: Setting, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    # Without documentation, Kafka sends "" for a logger, and null for a setting.
    documented = request.include_documentation or setting.source == LOGGER_SOURCE
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        synonyms=_synonyms(setting) if request.include_synonyms else (),
        config_type=setting.config_type,
        documentation=setting.documentation if documented else None,
    )


def _synonyms(setting: Setting) -> Sequence[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in setting.synonyms
    ]


def _refused(resource: DescribeConfigsResource, error: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _of_topic(name: str, context: RequestContext) -> Iterator[Setting]:
    invalid = invalid_topic_name(name)
    if invalid is not None:
        raise ApiError(ErrorCode.invalid_topic_exception, invalid)
    topic = context.node.metadata.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition)
    return context.node.settings.of_topic(topic.configs)


def _of_broker(name: str, context: RequestContext) -> Iterator[Setting]:
    settings = context.node.settings
    if not name:
        return settings.of_all_brokers()
    if _broker_id(name) != context.node.node_id:
        expected = f"{context.node.node_id} or empty string, but received {name}"
        raise ApiError(ErrorCode.invalid_request, f"Unexpected broker id, expected {expected}")
    return settings.of_broker()


def _of_loggers(name: str, context: RequestContext) -> Iterator[Setting]:
    """The log level of the root logger, which is the only logger."""
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Broker id must not be empty")
    if _broker_id(name) != context.node.node_id:
        expected = f"{context.node.node_id} but received {name}"
        raise ApiError(ErrorCode.invalid_request, f"Unexpected broker id, expected {expected}")
    return iter((Setting(ROOT, shown_level(), LOGGER_SOURCE),))


def _of_client_metrics(name: str, context: RequestContext) -> Iterator[Setting]:
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
    return context.node.settings.of_client_metrics(name)


def _of_group(name: str, context: RequestContext) -> Iterator[Setting]:
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Group name must not be empty")
    return context.node.settings.of_group(name)


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ApiError(
            ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}"
        ) from None


_CLUSTER: Final = ("CLUSTER", ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")

# By resource type: the function for its settings, and for authorization the resource type, error code and message.
_KINDS: Final[dict[int, tuple[_Describe, str, ErrorCode, str]]] = {
    TOPIC_RESOURCE: (
        _of_topic,
        "TOPIC",
        ErrorCode.topic_authorization_failed,
        "Topic authorization failed.",
    ),
    BROKER_RESOURCE: (_of_broker, *_CLUSTER),
    LOGGER_RESOURCE: (_of_loggers, *_CLUSTER),
    METRICS_RESOURCE: (_of_client_metrics, *_CLUSTER),
    GROUP_RESOURCE: (
        _of_group,
        "GROUP",
        ErrorCode.group_authorization_failed,
        "Group authorization failed.",
    ),
}

_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent "
    "to an incompatible broker. See the broker logs for more details."
)
