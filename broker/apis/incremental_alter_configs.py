"""IncrementalAlterConfigs: change single settings of topics, brokers, groups, client metrics and loggers (KIP-339).

The versions differ in their encoding only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.patterns import full_match
from broker.metadata import ApiError
from broker.metadata.altering import ConfigChanges, Operation, Resource, altered
from broker.metadata.image import Image
from broker.metadata.values import BROKER_RESOURCE
from broker.requests.api import api
from broker.requests.config_changes import (
    KINDS,
    LOGGER_RESOURCE,
    Decision,
    Entry,
    Wanted,
    alter,
    check_broker,
)
from broker.requests.logger_changes import change_loggers
from protocol.errors import NONE, ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext


@api(key=44, versions=range(2))
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    wanted = [
        Wanted(
            Resource(each.resource_type, each.resource_name),
            [Entry(one.name, one.config_operation, one.value) for one in each.configs],
        )
        for each in request.resources
    ]

    def handled(each: Wanted) -> bool:
        """Change the log levels of a logger resource, and return True. Return False for other resources, whose
        settings are in the metadata. Raises `ApiError` for an unknown resource type."""
        if each.resource.kind == LOGGER_RESOURCE:
            change_loggers(each, context, validate_only=request.validate_only)
            return True
        if each.resource.kind not in KINDS:
            raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {each.resource.kind}")
        if each.resource.kind == BROKER_RESOURCE:
            check_broker(each, context, replaces=False)
        return False

    def decision(each: Wanted) -> Decision:
        return lambda image: _decide(image, each, context)

    results = await alter(wanted, context, decision, handled, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[_answer(each.resource, refusal) for each, refusal in zip(wanted, results, strict=True)]
    )


def _decide(image: Image, each: Wanted, context: RequestContext) -> ConfigChanges:
    operations = {entry.name: (Operation(entry.operation), entry.value) for entry in each.entries}
    return altered(image, context.node.config, each.resource, operations, full_match)


def _answer(resource: Resource, refusal: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource.kind,
        resource_name=resource.name,
    )
