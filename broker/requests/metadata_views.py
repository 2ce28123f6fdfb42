"""Views of the metadata image for one request: addresses on its listener, operations of its principal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from broker.metadata.values import BrokerRegistration, PartitionState, Topic
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from broker.node import Node
    from broker.node.context import RequestContext

E = TypeVar("E")
NO_NODE: Final = -1
NOT_ASKED: Final = -(1 << 31)
"""Value of the authorized operations for a client that did not request them."""

# Codes of AclOperation, which are also the bit numbers; below, Kafka's ``AclEntry.supportedOperations``.
_OPERATIONS: Final = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
_SUPPORTED: Final = {
    "TOPIC": (
        "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    ),
    "CLUSTER": (
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE",
    ),
    "GROUP": ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
}  # fmt: skip
CLUSTER_NAME: Final = "kafka-cluster"


class Address(NamedTuple):
    """The address at which clients of the request's listener reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


NOWHERE: Final = Address(NO_NODE, "", -1, None, False)


def address_of(context: RequestContext, node_id: int) -> Address | None:
    """The address of an unfenced broker; None if it is fenced, unknown, or does not have the request's listener."""
    broker = context.node.metadata.brokers.get(node_id)
    if broker is None or broker.fenced:
        return None
    return _address(context, broker)


def endpoints_of(context: RequestContext, endpoint: Callable[..., E], leaders: Iterable[int]) -> list[E]:
    """The node endpoints of a response that names ``leaders`` (KIP-951), made by its class ``endpoint``."""
    found = (address_of(context, node_id) for node_id in sorted(set(leaders)))
    return [
        endpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in found
        if each is not None
    ]


def topic_name(node: Node, topic_id: UUID | None) -> str | None:
    topic = node.metadata.topic_by_id(topic_id) if topic_id is not None else None
    return topic.name if topic is not None else None


def addresses(context: RequestContext, *, fenced: bool = False) -> Iterator[Address]:
    """The addresses of all brokers that have the request's listener, in the order of their ids. Fenced brokers are included
    if ``fenced`` is true.
    """
    brokers = context.node.metadata.brokers
    for node_id in sorted(brokers):
        broker = brokers[node_id]
        address = _address(context, broker) if fenced or not broker.fenced else None
        if address is not None:
            yield address


def _address(context: RequestContext, broker: BrokerRegistration) -> Address | None:
    listener = context.listener
    if broker.node_id == context.node.node_id:
        host, port = listener.advertised_host, listener.advertised_port
        return Address(broker.node_id, host, port, broker.rack, broker.fenced)
    endpoint = broker.endpoint(listener.name)
    if endpoint is None:
        return None
    return Address(broker.node_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


Live = Mapping[int, Address]
"""Broker id -> address on the request's listener, of all unfenced brokers; built once for each response."""


def live_brokers(context: RequestContext) -> dict[int, Address]:
    return {address.node_id: address for address in addresses(context)}


def leader_and_offline(
    context: RequestContext, live: Live, topic: Topic, partition: PartitionState
) -> tuple[int, list[int]]:
    """(leader id or ``NO_NODE``, offline replicas: those whose broker is not live or whose log directory failed)."""
    leader, is_offline_on = partition.leader, context.node.replicas.is_offline_on
    offline = [
        node_id
        for node_id in partition.replicas
        if node_id not in live or is_offline_on(node_id, topic.name, partition.index)
    ]
    # A replica in a failed log directory loses its leadership (KIP-858).
    return (leader if leader in live and leader not in offline else NO_NODE), offline


def authorized_operations(context: RequestContext, resource_type: str, name: str) -> int:
    """Operations on the resource that the principal has, as a mask of AclOperation codes."""
    mask = 0
    for operation in _SUPPORTED[resource_type]:
        if context.authorize(operation, resource_type, name, logs_denial=False):
            mask |= 1 << _OPERATIONS[operation]
    return mask
