"""InitProducerId: assign a producer id and epoch; for a transactional id, bump its epoch.

KIP-98. v2 is flexible; in v3 a producer can send its current id and epoch, to request an epoch bump (KIP-360); v4 may return
PRODUCER_FENCED (KIP-588) where older versions return INVALID_PRODUCER_EPOCH. v6 (KIP-939, two-phase commit) is served with
``unstable.api.versions.enable`` (`UNSTABLE_VERSIONS`), as far as Kafka 4.4 has it: the transactions of a producer with
``enable2_pc`` do not time out, and ``keep_prepared_txn`` is refused. Kafka's Java client 4.4.0 sends neither flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.metadata_views import CLUSTER_NAME
from broker.transactions.error_compatibility import fenced_error_for
from broker.transactions.fresh_ids import fresh_producer_id
from protocol.errors import NONE, ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.transaction_log import TIMEOUT_NEVER_MS

if TYPE_CHECKING:
    from broker.config import BrokerConfig

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
    config = context.node.config
    if request.enable2_pc or request.keep_prepared_txn:
        refusal = _unsupported(request, config)
        if refusal is not NONE:
            return _failure(refusal)
    elif not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        return _failure(ErrorCode.invalid_transaction_timeout)
    outcome = await context.node.transactions.init_producer_id(
        request.transactional_id,
        TIMEOUT_NEVER_MS if request.enable2_pc else request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    if outcome.error is NONE:
        return InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
    return _failure(fenced_error_for(outcome.error, context.api_version, FIRST_VERSION_WITH_PRODUCER_FENCED))


def _refusal(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
    """The authorization error, or NONE.

    An idempotent producer needs IDEMPOTENT_WRITE, or WRITE on any topic (KIP-679). A transactional producer needs
    WRITE on its transactional id; with two-phase commit TWO_PHASE_COMMIT as well (KIP-939).
    """
    if request.transactional_id is not None:
        operations = ("WRITE", "TWO_PHASE_COMMIT") if request.enable2_pc else ("WRITE",)
        for operation in operations:
            if not context.authorize(operation, "TRANSACTIONAL_ID", request.transactional_id):
                return ErrorCode.transactional_id_authorization_failed
        return NONE
    if context.authorize("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER_NAME, logs_denial=False):
        return NONE
    if context.authorize_by_resource_type("WRITE", "TOPIC"):
        return NONE
    return ErrorCode.cluster_authorization_failed


def _unsupported(request: InitProducerIdRequest, config: BrokerConfig) -> ErrorCode:
    """The error for a request with a flag of two-phase commit, whose timeout is not checked, or NONE."""
    if request.enable2_pc and not config.transaction_two_phase_commit_enable:
        return ErrorCode.transactional_id_authorization_failed
    return ErrorCode.unsupported_version if request.keep_prepared_txn else NONE


async def _fresh_id(context: RequestContext) -> InitProducerIdResponse:
    """Allocate a producer id for an idempotent producer, that is, one without a transactional id."""
    allocated = await fresh_producer_id(context.node.metadata, context.node.node_id)
    if allocated is None:
        return _failure(ErrorCode.coordinator_load_in_progress)
    return InitProducerIdResponse(producer_id=allocated, producer_epoch=0)


def _failure(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
