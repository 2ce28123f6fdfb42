"""Authorization checks that several handlers share, with Kafka's error messages (``AuthHelper``).

A handler that checks a single resource calls `RequestContext.authorize` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.metadata import ApiError
from broker.requests.metadata_views import CLUSTER_NAME, authorized_operations
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from broker.node.context import RequestContext
    from protocol.messages.produce import TopicProduceData


def unauthorized(
    context: RequestContext, operation: str, resource_type: str, names: Iterable[str]
) -> frozenset[str]:
    """Names of the resources on which the principal lacks the operation. Each name is checked once."""
    if context.node.authorizer is None:
        return frozenset()
    return frozenset(
        name for name in dict.fromkeys(names) if not context.authorize(operation, resource_type, name)
    )


def unwritable_topics(
    context: RequestContext, topics: Iterable[TopicProduceData], *, by_id: bool
) -> frozenset[tuple[str, UUID | None]]:
    """Topics of a Produce request that the principal may not write to, existing or not. Unknown topic ids are left out."""
    refused: set[tuple[str, UUID | None]] = set()
    for topic in topics:
        name: str | None = topic.name
        if by_id:
            found = context.node.metadata.topic_by_id(topic.topic_id)
            name = None if found is None else found.name
        if name is not None and not context.authorize("WRITE", "TOPIC", name):
            refused.add((topic.name, topic.topic_id))
    return frozenset(refused)


def may_write_transactions(context: RequestContext, transactional_id: str) -> bool:
    """Whether the principal may produce with this transactional id."""
    return context.authorize("WRITE", "TRANSACTIONAL_ID", transactional_id)


def describable_topics(context: RequestContext) -> Callable[[str], bool] | None:
    """Return a predicate: whether the principal may describe a topic. None if there is no authorizer."""
    if context.node.authorizer is None:
        return None
    return lambda name: context.authorize("DESCRIBE", "TOPIC", name, logs_denial=False)


def may_on_cluster(context: RequestContext, operation: str, *, logs_denial: bool = True) -> bool:
    """Whether the principal has this operation on the cluster."""
    return context.authorize(operation, "CLUSTER", CLUSTER_NAME, logs_denial=logs_denial)


def authorized_cluster_operations(context: RequestContext) -> int:
    """Operations on the cluster that the principal has, as a bit mask; 0 if it lacks DESCRIBE on the cluster."""
    if not may_on_cluster(context, "DESCRIBE", logs_denial=False):
        return 0
    return authorized_operations(context, "CLUSTER", CLUSTER_NAME)


def cluster_refusal(context: RequestContext, operation: str) -> ApiError | None:
    """Return the error that Kafka's ``authorizeClusterOperation`` throws, or None if the principal has the operation.

    Some APIs put the exception's message into the response. The others use the error code's message (`CLUSTER_REFUSED`).
    """
    if may_on_cluster(context, operation):
        return None
    message = f"Request {_in_words(context)} needs {operation} permission."
    return ApiError(ErrorCode.cluster_authorization_failed, message)


CLUSTER_REFUSED: Final = "Cluster authorization failed."
"""Message of ``Errors.CLUSTER_AUTHORIZATION_FAILED``."""


def _in_words(context: RequestContext) -> str:
    """Format the request as ``RequestChannel.Request.toString`` does. Clients show this text, and scripts parse it."""
    listener = context.listener
    connection = (
        f"{listener.advertised_host}:{listener.port}-{context.peer[1:]}:{context.client.port}"
        f"-{context.node.node_id}-{context.connection_id}"
    )
    return (
        f"Request(processor=0, connectionId={connection}, "
        f"session=org.apache.kafka.network.Session@{context.connection_id:08x}, "
        f"listenerName=ListenerName({listener.name}), securityProtocol={listener.security_protocol}, "
        "buffer=null, envelope=None)"
    )
