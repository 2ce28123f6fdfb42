"""DescribeTransactions: states of transactions, from the coordinator of their transactional ids (KIP-664).

The response lists the partitions that still need a marker. The list grows while a transaction is open, and shrinks while the
transaction ends. ``kafka-transactions.sh find-hanging`` reports an open transaction if this list lacks its partition.
"""

from __future__ import annotations

from broker.loop.slices import each
from broker.metadata.topics import by_topic
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.transactions.entry import Entry
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from storage.steps import Steps


@api(key=65, versions=range(1))
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return await context.node.slices.run(_answer(request, context))


def _answer(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Steps[DescribeTransactionsResponse]:
    states = yield from each(request.transactional_ids, lambda name: _describe(name, context))
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    if not context.authorize("DESCRIBE", "TRANSACTIONAL_ID", transactional_id):
        found: Entry | ErrorCode = ErrorCode.transactional_id_authorization_failed
    elif not transactional_id:
        found = ErrorCode.invalid_request
    else:
        found = context.node.transactions.find(transactional_id)
    if isinstance(found, ErrorCode):
        return TransactionState(error_code=found, transactional_id=transactional_id)
    txn = found.txn
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=txn.state.wire_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=_topics(found, context),
    )


def _topics(entry: Entry, context: RequestContext) -> list[TopicData]:
    """The partitions of the transaction, by topic, without the topics that the client may not describe."""
    return [
        TopicData(topic=name, partitions=indexes)
        for name, indexes in by_topic(sorted(entry.unmarked)).items()
        if context.authorize("DESCRIBE", "TOPIC", name, logs_denial=False)
    ]
