"""EndTxn: the producer commits or aborts its transaction.

KIP-98. v2 may answer PRODUCER_FENCED (KIP-588); v3 is flexible; v4 knows TRANSACTION_ABORTABLE; from v5 on each end takes
the producer to its next epoch, which the answer carries (KIP-890).
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.transactions.error_compatibility import fenced_error_for
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_THAT_BUMPS = 5


@api(key=26, versions=range(6))
async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    has_authorizer = context.node.authorizer is not None
    if has_authorizer and not context.authorize("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.transactional_id_authorization_failed)
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.invalid_request)
    version = context.api_version
    outcome = await context.node.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        committed=request.committed,
        bumps_epoch=version >= FIRST_VERSION_THAT_BUMPS,
    )
    error = fenced_error_for(outcome.error, version, FIRST_VERSION_WITH_PRODUCER_FENCED)
    # Versions below 5 have no producer fields; the encoder leaves them out.
    return EndTxnResponse(error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
