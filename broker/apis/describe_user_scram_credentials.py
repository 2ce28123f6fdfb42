"""DescribeUserScramCredentials: which mechanisms users have credentials for, and of how many iterations (KIP-554)."""

from __future__ import annotations

from broker.metadata.scram_credentials import describe
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.metadata_views import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@api(key=50, versions=range(1))
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    if not context.authorize("DESCRIBE", "CLUSTER", CLUSTER_NAME):
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.cluster_authorization_failed)
    users = [each.name for each in request.users or ()]
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[
            DescribeUserScramCredentialsResult(
                user=found.user,
                error_code=found.error,
                error_message=found.message or "",
                credential_infos=[
                    CredentialInfo(mechanism=mechanism, iterations=iterations)
                    for mechanism, iterations in found.credentials
                ],
            )
            for found in describe(context.node.metadata.image.credentials, users)
        ],
    )
