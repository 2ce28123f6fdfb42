"""AddPartitionsToTxn: partitions join a transaction before their first batch.

KIP-98. v0-v3 are the clients' (one transaction); v2 may answer PRODUCER_FENCED (KIP-588); v3 is flexible. v4 and v5 are
the brokers' (KIP-890): many transactions, ``verify_only`` to ask without adding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from broker.loop.deferred import Deferred
from broker.metadata.topics import is_internal
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster, unauthorized
from broker.transactions.error_compatibility import fenced_error_for
from broker.transactions.transaction import Answer, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_BROKER_VERSION = 4

Errors = dict[TopicPartition, ErrorCode]


@api(key=24, versions=range(6))
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if context.api_version < FIRST_BROKER_VERSION:
        return _for_client(request, context)
    if not may_on_cluster(context, "CLUSTER_ACTION"):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.cluster_authorization_failed)
    return _for_broker(request, context)


def _for_client(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    answer: Deferred[AddPartitionsToTxnResponse] = Deferred()

    def done(errors: Errors) -> None:
        results = _topic_results(transaction.topics, errors)
        answer.resolve(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    _run(transaction, context, done)
    return answer.outcome()


def _for_broker(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    answer: Deferred[AddPartitionsToTxnResponse] = Deferred()
    results: list[AddPartitionsToTxnResult | None] = [None] * len(request.transactions)

    def answer_if_complete() -> None:
        finished = [result for result in results if result is not None]
        if len(finished) == len(results):
            answer.resolve(AddPartitionsToTxnResponse(results_by_transaction=finished))

    def collect(position: int, transaction: AddPartitionsToTxnTransaction) -> Callable[[Errors], None]:
        def done(errors: Errors) -> None:
            results[position] = AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, errors),
            )
            answer_if_complete()

        return done

    for position, transaction in enumerate(request.transactions):
        _run(transaction, context, collect(position, transaction))
    answer_if_complete()
    return answer.outcome()


def _run(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext, done: Callable[[Errors], None]
) -> None:
    """One transaction; ``done`` gets an error for each of its partitions."""
    keys = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    is_client = context.api_version < FIRST_BROKER_VERSION
    transactional_id = transaction.transactional_id
    asks = is_client and context.node.authorizer is not None  # a broker has asked about its client already
    if asks and not context.authorize("WRITE", "TRANSACTIONAL_ID", transactional_id):
        done(dict.fromkeys(keys, ErrorCode.transactional_id_authorization_failed))
        return
    refused = _refused(keys, context)
    if refused:
        # All or nothing: the others are told that nothing was tried.
        done({key: refused.get(key, ErrorCode.operation_not_attempted) for key in keys})
        return
    if not transactional_id:
        done(dict.fromkeys(keys, ErrorCode.invalid_request))
        return
    coordinator = context.node.transactions
    identity = (transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        done(coordinator.verify_partitions(*identity, keys))
        return

    def added(outcome: Answer) -> None:
        error = fenced_error_for(outcome.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        done(dict.fromkeys(keys, error))

    client_version = 0 if is_client else 2
    coordinator.add_partitions(*identity, keys, client_version, added)


def _refused(keys: Sequence[TopicPartition], context: RequestContext) -> Errors:
    """Partitions that do not exist, and topics that a client may not write to: internal ones it may never add (offsets
    have AddOffsetsToTxn)."""
    refused: Errors = {}
    from_client = context.api_version < FIRST_BROKER_VERSION
    denied: Collection[str] = ()
    if from_client and context.node.authorizer is not None:
        denied = unauthorized(context, "WRITE", "TOPIC", [name for name, _ in keys if not is_internal(name)])
    for name, index in keys:
        topic = context.node.metadata.topic(name)
        if from_client and (is_internal(name) or name in denied):
            refused[name, index] = ErrorCode.topic_authorization_failed
        elif topic is None or topic.partition(index) is None:
            refused[name, index] = ErrorCode.unknown_topic_or_partition
    return refused


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Errors
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
