"""DeleteAcls: delete the ACLs that match filters. The response lists them.

v2 adds pattern types of resource names (KIP-290); v3 is flexible.
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.metadata.acls import Acl, AclFilter
from broker.node.context import RequestContext
from broker.requests.acls import NO_AUTHORIZER, refuse_unknown
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@api(key=31, versions=range(1, 4))
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    refuse_unknown(
        (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        for each in request.filters
    )
    refusal = cluster_refusal(context, "ALTER")
    if refusal is None and context.node.authorizer is None:
        refusal = ApiError(ErrorCode.security_disabled, NO_AUTHORIZER)
    results: list[ApiError | list[Acl]]
    if refusal is None:
        filters = [_filter(each) for each in request.filters]
        results = await context.node.metadata.acl_control.delete_acls(filters)
    else:
        results = [refusal for _ in request.filters]
    return DeleteAclsResponse(filter_results=[_result(each) for each in results])


def _filter(wanted: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _result(result: ApiError | list[Acl]) -> DeleteAclsFilterResult:
    if isinstance(result, ApiError):
        return DeleteAclsFilterResult(error_code=result.error, error_message=result.message)
    return DeleteAclsFilterResult(
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in result
        ]
    )
