"""AlterClientQuotas: set and remove quotas of users, client ids and IP addresses (KIP-546).

The versions differ in their encoding only.
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.metadata.client_quotas import Alteration, Operation, QuotaEntity, entity_of
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)


@api(key=49, versions=range(2))
async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    alterations = [
        Alteration(
            entity_of((part.entity_type, part.entity_name) for part in entry.entity),
            [Operation(each.key, None if each.remove else each.value) for each in entry.ops],
        )
        for entry in request.entries
    ]
    if not may_on_cluster(context, "ALTER_CONFIGS"):
        return _refused(request)
    control = context.node.metadata.client_control
    results: dict[QuotaEntity, ApiError | None] = await control.alter_quotas(
        alterations, validate_only=request.validate_only
    )
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
                entity=[ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, refusal in results.items()
        ]
    )


def _refused(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """The response to a request that is not authorized: it has one entry with the error for each entry of the request, also
    for an entity that is repeated.
    """
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=ErrorCode.cluster_authorization_failed,
                error_message=CLUSTER_REFUSED,
                entity=[
                    ResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
