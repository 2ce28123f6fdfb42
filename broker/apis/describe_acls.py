"""DescribeAcls, without an authorizer: SECURITY_DISABLED.

v2 knows patterns of names (KIP-290); v3 is flexible.
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@api(key=29, versions=range(1, 4))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
    )
