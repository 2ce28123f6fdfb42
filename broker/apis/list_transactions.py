"""ListTransactions: the transactional ids that this broker coordinates. Clients send the request to every broker (KIP-664).

v1 adds a filter by minimum duration (KIP-994), v2 a filter by a pattern of the transactional id (KIP-1152).
"""

from __future__ import annotations

from broker.config.patterns import InvalidPattern, Matches, full_match
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.transactions.transaction import NAMED_STATES, Transaction
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@api(key=66, versions=range(3))
def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    entries = context.node.transactions.all_entries()
    if isinstance(entries, ErrorCode):
        return ListTransactionsResponse(error_code=entries)
    matches = _matcher(request.transactional_id_pattern)
    if matches is None:
        return ListTransactionsResponse(error_code=ErrorCode.invalid_regular_expression)
    now_ms = context.node.clock.now_ms()
    listed = [
        TransactionState(
            transactional_id=entry.txn.transactional_id,
            producer_id=entry.txn.producer_id,
            transaction_state=entry.txn.state.wire_name,
        )
        for entry in entries
        if _is_wanted(entry.txn, request, now_ms)
        and matches(entry.txn.transactional_id)
        and context.authorize("DESCRIBE", "TRANSACTIONAL_ID", entry.txn.transactional_id, logs_denial=False)
    ]
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in NAMED_STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _is_wanted(txn: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    """Whether ``txn`` passes the filters by producer id, state and duration.

    A transactional id without a transaction has the start time -1, and so passes every duration filter.
    """
    if request.producer_id_filters and txn.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and txn.state.wire_name not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - txn.start_ms > request.duration_filter


def _matcher(pattern: str | None) -> Matches | None:
    """Return a function that matches the whole id; None for an invalid pattern. Null and the empty pattern match all ids."""
    if not pattern:
        return lambda transactional_id: True
    try:
        return full_match(pattern)
    except InvalidPattern:
        return None
