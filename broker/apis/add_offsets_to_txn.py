"""AddOffsetsToTxn: add the __consumer_offsets partition of a group to the transaction.

KIP-98. v2 may return PRODUCER_FENCED (KIP-588); v3 is flexible. Clients of transaction version 2 do not send this request.
"""

from __future__ import annotations

from broker.metadata.topics import CONSUMER_OFFSETS
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.transactions.error_compatibility import fenced_error_for
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


@api(key=25, versions=range(5))
async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    if context.node.authorizer is not None:
        if not context.authorize("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.transactional_id_authorization_failed)
        if not context.authorize("READ", "GROUP", request.group_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.group_authorization_failed)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.invalid_request)
    outcome = await context.node.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(CONSUMER_OFFSETS, context.node.groups.partition_for(request.group_id))],
        0,
    )
    error = fenced_error_for(outcome.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED)
    return AddOffsetsToTxnResponse(error_code=error)
