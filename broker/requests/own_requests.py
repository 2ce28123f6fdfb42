"""Requests that the broker sends to its own nodes, without a connection: interceptors, quotas and ACLs do not apply.

Produce and the transactional APIs are used in their last version that has topic names instead of ids, and in which the
client adds partitions to its transaction explicitly.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, cast

from broker.loop.coroutines import start
from broker.node import Listener, Node
from broker.node.context import RequestContext
from broker.requests.api import discover
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Api = tuple[int, int]
"""API key and version."""
Producer = tuple[int, int]
"""Producer id and epoch."""
PRODUCE: Final[Api] = (0, 11)
INIT_PRODUCER_ID: Final[Api] = (22, 5)
ADD_PARTITIONS: Final[Api] = (24, 3)
END_TXN: Final[Api] = (26, 4)


class _OwnContext(RequestContext):
    """The context of a request of the broker itself, which has no principal and is always authorized."""

    __slots__ = ()

    def authorize(self, *_: object, **__: object) -> bool:
        return True

    def authorize_by_resource_type(self, *_: object) -> bool:
        return True


def handle(node: Node, listener: Listener, api: Api, request: object, client_id: str) -> Any:
    """Call the node's handler for the API. Returns the response, or an awaitable of the response."""
    key, version = api
    context = _OwnContext(node, listener, key, version, client_id, "/127.0.0.1")
    outcome = discover()[key].handler(request, context)
    if hasattr(outcome, "send"):  # a coroutine
        return start(cast("Coroutine[Any, Any, object]", outcome), node.life)
    return outcome


def init_producer_id(transactional_id: str, timeout_ms: int) -> InitProducerIdRequest:
    """InitProducerId request of a new producer, which has no producer id yet."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )


def add_partitions(
    transactional_id: str, producer: Producer, partitions: Mapping[str, Sequence[int]]
) -> AddPartitionsToTxnRequest:
    """AddPartitionsToTxn request that adds ``partitions`` (topic -> partition indexes) to the transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in partitions.items()
        ],
    )


def end_txn(transactional_id: str, producer: Producer, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )


def produce(
    topic: str, index: int, batch: bytes, transactional_id: str | None, timeout_ms: int
) -> ProduceRequest:
    """Produce request with one batch for one partition, with acks=all."""
    data = PartitionProduceData(index=index, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
