"""ListConfigResources: the topics, brokers, groups and client metrics subscriptions that have settings (KIP-1142).

v1 can select resource types; v0 is KIP-714's ListClientMetricsResources, which lists only client metrics subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from broker.requests.config_changes import LOGGER_RESOURCE
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext

KINDS_SINCE: Final = 1
# In the order of Kafka's response.
_KINDS: Final = (GROUP_RESOURCE, METRICS_RESOURCE, LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


@api(key=74, versions=range(2))
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if not may_on_cluster(context, "DESCRIBE_CONFIGS"):
        return ListConfigResourcesResponse(error_code=ErrorCode.cluster_authorization_failed)
    supported = _KINDS if context.api_version >= KINDS_SINCE else (METRICS_RESOURCE,)
    wanted = request.resource_types or supported
    if any(kind not in supported for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.unsupported_version)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _KINDS
            if kind in wanted
            for name in _names(kind, context)
        ]
    )


def _names(kind: int, context: RequestContext) -> Iterable[str]:
    """Names of the resources of a type: all topics and live brokers, but only those groups and subscriptions that have
    settings of their own.
    """
    image = context.node.metadata.image
    if kind == TOPIC_RESOURCE:
        return image.topics
    if kind in (BROKER_RESOURCE, LOGGER_RESOURCE):
        return (str(node_id) for node_id, broker in sorted(image.brokers.items()) if not broker.fenced)
    return (name for resource, name in image.configs if resource == kind)
