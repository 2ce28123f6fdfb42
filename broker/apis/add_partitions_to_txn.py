"""AddPartitionsToTxn: add partitions to a transaction before their first batch.

KIP-98. Clients send v0-v3, with one transaction; v2 may return PRODUCER_FENCED (KIP-588); v3 is flexible. Brokers send v4
and v5 (KIP-890), with many transactions; with ``verify_only`` the coordinator checks that the partitions were added, and
adds none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.loop.coroutines import fork
from broker.metadata.topics import is_internal
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster, unauthorized
from broker.transactions.error_compatibility import fenced_error_for
from broker.transactions.transaction import TopicPartition
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
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version < FIRST_BROKER_VERSION:
        return await _for_client(request, context)
    if not may_on_cluster(context, "CLUSTER_ACTION"):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.cluster_authorization_failed)
    return await _for_broker(request, context)


async def _for_client(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    errors = await _run(transaction, context)
    results = _topic_results(transaction.topics, errors)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _for_broker(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Add or verify the partitions of all transactions in a broker's request, concurrently."""
    life = context.node.life
    under_way = [fork(_run(transaction, context), life) for transaction in request.transactions]
    results = []
    for transaction, errors in zip(request.transactions, under_way, strict=True):
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, await errors),
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _run(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Errors:
    """Add or verify the partitions of one transaction. Returns an error code for each partition."""
    keys = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    is_client = context.api_version < FIRST_BROKER_VERSION
    transactional_id = transaction.transactional_id
    # v4 and later come from a broker, which has authorized its client.
    asks = is_client and context.node.authorizer is not None
    if asks and not context.authorize("WRITE", "TRANSACTIONAL_ID", transactional_id):
        return dict.fromkeys(keys, ErrorCode.transactional_id_authorization_failed)
    refused = _refused(keys, context)
    if refused:
        # All or nothing: the valid partitions get OPERATION_NOT_ATTEMPTED.
        return {key: refused.get(key, ErrorCode.operation_not_attempted) for key in keys}
    if not transactional_id:
        return dict.fromkeys(keys, ErrorCode.invalid_request)
    coordinator = context.node.transactions
    identity = (transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_partitions(*identity, keys)
    outcome = await coordinator.add_partitions(*identity, keys, 0 if is_client else 2)
    error = fenced_error_for(outcome.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED)
    return dict.fromkeys(keys, error)


def _refused(keys: Sequence[TopicPartition], context: RequestContext) -> Errors:
    """Return the errors of partitions that do not exist, or that the client may not add. Empty if there are none.

    A client needs WRITE on the topic, and may not add a partition of an internal topic: AddOffsetsToTxn adds those of
    __consumer_offsets. Requests of brokers are exempt from these two checks.
    """
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
