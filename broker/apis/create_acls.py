"""CreateAcls: add ACLs. Creating an ACL that exists already succeeds without an effect.

The versions differ in their encoding only.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.metadata import ApiError
from broker.metadata.acls import ANY, MATCH, Acl, check_resource
from broker.node.context import RequestContext
from broker.requests.acls import NO_AUTHORIZER, refuse_unknown
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import NONE, ErrorCode
from protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@api(key=30, versions=range(1, 4))
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    refuse_unknown(_codes(creation) for creation in request.creations)
    refusal = _refusal(request, context)
    if refusal is None:
        results = await _create([_acl(creation) for creation in request.creations], context)
    else:
        results = [refusal] * len(request.creations)
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=NONE if refusal is None else refusal.error,
                error_message="" if refusal is None else refusal.message,
            )
            for refusal in results
        ]
    )


def _refusal(request: CreateAclsRequest, context: RequestContext) -> ApiError | None:
    """The error that refuses the whole request; None if the ACLs are to be checked and created one by one."""
    refusal = cluster_refusal(context, "ALTER")
    if refusal is not None:
        return refusal
    if context.node.authorizer is None:
        return ApiError(ErrorCode.security_disabled, NO_AUTHORIZER)
    if any(_is_for_filters(creation) for creation in request.creations):
        # Kafka throws while it converts the request into its own objects.
        return ApiError(ErrorCode.unknown_server_error)
    return None


async def _create(acls: Sequence[Acl], context: RequestContext) -> list[ApiError | None]:
    """Check the resource of each ACL, and have the controller create those ACLs that pass. Returns an error or None for each
    ACL.
    """
    refused: dict[Acl, ApiError] = {}
    for acl in acls:
        try:
            check_resource(acl)
        except ApiError as refusal:
            refused[acl] = refusal
    wanted = [acl for acl in acls if acl not in refused]
    results = iter(await context.node.metadata.acl_control.create_acls(wanted))
    return [refused[acl] if acl in refused else next(results) for acl in acls]


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _codes(creation: AclCreation) -> tuple[int, int, int, int]:
    return (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


def _is_for_filters(creation: AclCreation) -> bool:
    """Whether a field of the ACL is ANY, or its pattern type is MATCH. Both values are allowed in filters only."""
    return ANY in _codes(creation) or creation.resource_pattern_type == MATCH
