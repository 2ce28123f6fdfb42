"""AlterConfigs: replace all settings of topics, brokers, groups and client metrics. A setting that is not in the request is
removed.

IncrementalAlterConfigs, which changes single settings, has superseded this API. The versions differ in their encoding only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.patterns import full_match
from broker.metadata import ApiError
from broker.metadata.altering import Operation, Resource, replaced
from broker.metadata.values import BROKER_RESOURCE
from broker.requests.api import api
from broker.requests.config_changes import KINDS, Decision, Entry, Wanted, alter, check_broker
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext


@api(key=33, versions=range(3))
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    wanted = [
        Wanted(
            Resource(each.resource_type, each.resource_name),
            [Entry(one.name, Operation.SET, one.value) for one in each.configs],
        )
        for each in request.resources
    ]

    def handled(each: Wanted) -> bool:
        if each.resource.kind not in KINDS:
            raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {each.resource.kind}")
        if each.resource.kind == BROKER_RESOURCE:
            check_broker(each, context, replaces=True)
        return False

    def decision(each: Wanted) -> Decision:
        values = {entry.name: entry.value for entry in each.entries if entry.value is not None}
        return lambda image: replaced(image, context.node.config, each.resource, values, full_match)

    results = await alter(wanted, context, decision, handled, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
                resource_type=each.resource.kind,
                resource_name=each.resource.name,
            )
            for each, refusal in zip(wanted, results, strict=True)
        ]
    )
