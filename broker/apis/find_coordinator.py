"""FindCoordinator: the broker that coordinates a group or a transactional id.

v1 adds transactional ids, v4 several keys in one request (KIP-699), v6 share partitions (KIP-932).
The request creates the internal topic if it is missing and waits for it, so COORDINATOR_NOT_AVAILABLE means that the
coordinator's broker is not available, or that the topic cannot be created.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from broker.logging import get_logger
from broker.loop.slices import each
from broker.metadata import ApiError, Topic
from broker.metadata.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from broker.requests.api import api
from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from broker.requests.metadata_views import NOWHERE, Address, address_of
from broker.share.state import share_partition_key
from protocol.errors import NONE, ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.named_tuple import NamedTuple
from storage.steps import Steps

if TYPE_CHECKING:
    from broker.node import Node
    from broker.node.context import RequestContext


log = get_logger()


class _Kind(NamedTuple):
    """A kind of key, such as a group: the internal topic with its coordinators, the resource type for authorization, and the
    error if the client is not authorized.
    """

    topic: str
    resource_type: str
    unauthorized: ErrorCode


_SHARE_KIND: Final = _Kind(SHARE_GROUP_STATE, "CLUSTER", ErrorCode.cluster_authorization_failed)
_KINDS: Final = {
    0: _Kind(CONSUMER_OFFSETS, "GROUP", ErrorCode.group_authorization_failed),
    1: _Kind(TRANSACTION_STATE, "TRANSACTIONAL_ID", ErrorCode.transactional_id_authorization_failed),
}

SHARE: Final = 2
"""Key type of share partitions, which only brokers use."""
SHARE_SINCE: Final = 6
MANY_KEYS_SINCE: Final = 4

_Found = tuple[ErrorCode, Address]


@api(key=10, versions=range(7))
async def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    kind = _KINDS.get(request.key_type)
    if request.key_type == SHARE and context.api_version >= SHARE_SINCE:
        kind = _SHARE_KIND
    if kind is None or (kind is _SHARE_KIND and not may_on_cluster(context, "CLUSTER_ACTION")):
        return _refused_kind(request, context, kind)
    if context.node.metadata.topic(kind.topic) is None and _finds_any(request, context, kind):
        # With fewer brokers than the replication factor the topic cannot be created: COORDINATOR_NOT_AVAILABLE, as on Kafka.
        with contextlib.suppress(ApiError):
            await context.node.metadata.auto_topic_creation.ensure_internal_topic(kind.topic)
    return await context.node.slices.run(_answer(request, context, kind))


def _refused_kind(
    request: FindCoordinatorRequest, context: RequestContext, kind: _Kind | None
) -> FindCoordinatorResponse:
    """The response to a key type that the version lacks, or that the client may not use (``kind`` is then not None)."""
    error = ErrorCode.invalid_request if kind is None else kind.unauthorized
    message = _MESSAGES[error]
    if context.api_version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, port=-1)
    # Kafka sends a message with an exception only. It rejects a share key in an old version without an exception.
    words = "" if request.key_type == SHARE and kind is None else message
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, error_code=error, error_message=words, node_id=-1, port=-1)
            for key in request.coordinator_keys
        ]
    )


def _finds_any(request: FindCoordinatorRequest, context: RequestContext, kind: _Kind) -> bool:
    """Whether the client may describe at least one of the keys. If not, the internal topic is not created."""
    if kind is _SHARE_KIND:
        return any(_is_share_partition(key) for key in request.coordinator_keys)
    keys = request.coordinator_keys if context.api_version >= MANY_KEYS_SINCE else (request.key,)
    return any(context.authorize("DESCRIBE", kind.resource_type, key) for key in keys)


def _answer(
    request: FindCoordinatorRequest, context: RequestContext, kind: _Kind
) -> Steps[FindCoordinatorResponse]:
    if context.api_version < MANY_KEYS_SINCE:
        error, address = _find(context, kind, request.key)
        return FindCoordinatorResponse(
            error_code=error,
            error_message=_MESSAGES[error],
            node_id=address.node_id,
            host=address.host,
            port=address.port,
        )

    def find(key: str) -> Coordinator:
        error, address = _find(context, kind, key)
        return Coordinator(
            key=key,
            error_code=error,
            error_message="",
            node_id=address.node_id,
            host=address.host,
            port=address.port,
        )

    coordinators = yield from each(request.coordinator_keys, find)
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(context: RequestContext, kind: _Kind, key: str) -> _Found:
    if kind is _SHARE_KIND:
        if not _is_share_partition(key):
            return ErrorCode.invalid_request, NOWHERE
    elif not context.authorize("DESCRIBE", kind.resource_type, key):
        return kind.unauthorized, NOWHERE
    topic = context.node.metadata.topic(kind.topic)
    address = _leader(context, topic, kind, key) if topic is not None else None
    if address is None:
        return ErrorCode.coordinator_not_available, NOWHERE
    return NONE, address


def _leader(context: RequestContext, topic: Topic, kind: _Kind, key: str) -> Address | None:
    node = context.node
    partition = topic.partition(_partition_for(node, kind, key))
    if partition is None:
        return None  # the topic was recreated with fewer partitions than the coordinator has counted
    if partition.leader == node.node_id and node.replicas.is_offline(topic.name, partition.index):
        return None  # checked for this node only; for other nodes the metadata decides
    return address_of(context, partition.leader)


def _partition_for(node: Node, kind: _Kind, key: str) -> int:
    if kind is _SHARE_KIND:
        found = share_partition_key(key)
        assert found is not None
        return node.share_coordinator.partition_for(found.coordinator_key)
    coordinator = node.groups if kind.topic == CONSUMER_OFFSETS else node.transactions
    return coordinator.partition_for(key)


def _is_share_partition(key: str) -> bool:
    return share_partition_key(key) is not None


# Messages of Kafka's ``Errors``.
_MESSAGES: Final = {
    NONE: "NONE",
    ErrorCode.coordinator_not_available: "The coordinator is not available.",
    ErrorCode.invalid_request: (
        "This most likely occurs because of a request being malformed by the client library or the message was "
        "sent to an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.cluster_authorization_failed: CLUSTER_REFUSED,
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}
