"""DescribeAcls: the ACLs that match a filter, grouped by resource pattern.

v2 adds pattern types of resource names (KIP-290); v3 is flexible.
"""

from __future__ import annotations

from broker.metadata.acls import AclFilter, describe
from broker.node.context import RequestContext
from broker.requests.acls import refuse_unknown
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@api(key=29, versions=range(1, 4))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    codes = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type)
    refuse_unknown([codes])
    refusal = cluster_refusal(context, "DESCRIBE")
    if refusal is not None:
        return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message)
    if context.node.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.security_disabled,
            error_message="No Authorizer is configured on the broker",
        )
    found = describe(context.node.metadata.image.acls, wanted)
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=resource_name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, resource_name, pattern_type), acls in found.items()
        ],
    )
