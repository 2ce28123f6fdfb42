"""Which rights a request needs, and Kafka's words where the client lacks one (``AuthHelper``).

A handler that asks about one resource calls `RequestContext.authorize` itself.
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
    """Those of the resources that the principal may not do this to; each is asked about once."""
    if context.node.authorizer is None:
        return frozenset()
    return frozenset(
        name for name in dict.fromkeys(names) if not context.authorize(operation, resource_type, name)
    )


def unwritable_topics(
    context: RequestContext, topics: Iterable[TopicProduceData], *, by_id: bool
) -> frozenset[tuple[str, UUID | None]]:
    """Topics of a Produce that the principal may not write to, there or not; an id without a topic is not among them."""
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
    """May the principal produce with this transactional id?"""
    return context.authorize("WRITE", "TRANSACTIONAL_ID", transactional_id)


def describable_topics(context: RequestContext) -> Callable[[str], bool] | None:
    """Asks whether the principal may know of a topic; None where it may know of all."""
    if context.node.authorizer is None:
        return None
    return lambda name: context.authorize("DESCRIBE", "TOPIC", name, logs_denial=False)


def may_on_cluster(context: RequestContext, operation: str, *, logs_denial: bool = True) -> bool:
    """May the principal do this to the cluster?"""
    return context.authorize(operation, "CLUSTER", CLUSTER_NAME, logs_denial=logs_denial)


def authorized_cluster_operations(context: RequestContext) -> int:
    """What the principal may do to the cluster, as bits; nothing for one that may not know of it."""
    if not may_on_cluster(context, "DESCRIBE", logs_denial=False):
        return 0
    return authorized_operations(context, "CLUSTER", CLUSTER_NAME)


def cluster_refusal(context: RequestContext, operation: str) -> ApiError | None:
    """The exception in which Kafka's ``authorizeClusterOperation`` ends; None if the principal has the right.

    APIs that repeat the words of an exception show this one's. The others have the words of the code (`CLUSTER_REFUSED`).
    """
    if may_on_cluster(context, operation):
        return None
    message = f"Request {_in_words(context)} needs {operation} permission."
    return ApiError(ErrorCode.cluster_authorization_failed, message)


CLUSTER_REFUSED: Final = "Cluster authorization failed."
"""What ``Errors.CLUSTER_AUTHORIZATION_FAILED`` says."""


def _in_words(context: RequestContext) -> str:
    """``RequestChannel.Request.toString``: clients show it, and what reads their output knows its form."""
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
