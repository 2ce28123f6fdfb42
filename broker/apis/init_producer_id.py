"""InitProducerId: assign a producer id and epoch; for a transactional id, bump its epoch.

KIP-98. v2 is flexible; in v3 a producer can send its current id and epoch, to request an epoch bump (KIP-360); v4 may return
PRODUCER_FENCED (KIP-588) where older versions return INVALID_PRODUCER_EPOCH; v6 (two-phase commit) is not announced, as on
Kafka 4.3.
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.metadata_views import CLUSTER_NAME
from broker.transactions.error_compatibility import fenced_error_for
from broker.transactions.fresh_ids import fresh_producer_id
from protocol.errors import NONE, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


@api(key=22, versions=range(6))
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if context.node.authorizer is not None:
        refusal = _refusal(request, context)
        if refusal is not NONE:
            return _failure(refusal)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _failure(ErrorCode.invalid_request)
    if request.transactional_id is None:
        return await _fresh_id(context)
    if request.transactional_id == "":
        return _failure(ErrorCode.invalid_request)
    timeout_max_ms = context.node.config.transaction_max_timeout_ms
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        return _failure(ErrorCode.invalid_transaction_timeout)
    outcome = await context.node.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    if outcome.error is NONE:
        return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
    return _failure(fenced_error_for(outcome.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED))


def _refusal(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
    """The authorization error, or NONE. An idempotent producer needs IDEMPOTENT_WRITE, or WRITE on any topic (KIP-679)."""
    if request.transactional_id is not None:
        if context.authorize("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            return NONE
        return ErrorCode.transactional_id_authorization_failed
    if context.authorize("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER_NAME, logs_denial=False):
        return NONE
    if context.authorize_by_resource_type("WRITE", "TOPIC"):
        return NONE
    return ErrorCode.cluster_authorization_failed


async def _fresh_id(context: RequestContext) -> InitProducerIdResponse:
    """Allocate a producer id for an idempotent producer, that is, one without a transactional id."""
    allocated = await fresh_producer_id(context.node.metadata, context.node.node_id)
    if allocated is None:
        return _failure(ErrorCode.coordinator_load_in_progress)
    return InitProducerIdResponse(producer_id=allocated, producer_epoch=0)


def _failure(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
