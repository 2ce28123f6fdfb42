"""DescribeClientQuotas: the quotas of users, client ids and IP addresses that match a filter (KIP-546).

The versions differ in their encoding only.
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.metadata.client_quotas import Component, filter_of
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@api(key=48, versions=range(2))
def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    if not may_on_cluster(context, "DESCRIBE_CONFIGS"):
        return _refused(ApiError(ErrorCode.cluster_authorization_failed))
    components = (Component(each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        wanted = filter_of(components, strict=request.strict)
    except ApiError as refusal:
        return _refused(refusal)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in context.node.metadata.image.quotas.items()
        if wanted.finds(entity)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _refused(refusal: ApiError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=refusal.error, error_message=refusal.message, entries=None)
