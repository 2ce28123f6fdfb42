"""EndTxn: commit or abort the producer's transaction.

KIP-98. v2 may return PRODUCER_FENCED (KIP-588); v3 is flexible; v4 may return TRANSACTION_ABORTABLE; from v5 on the end of a
transaction bumps the producer epoch, and the response has the new producer id and epoch (KIP-890).
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
    # The encoder omits the producer fields in versions before 5.
    return EndTxnResponse(error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
