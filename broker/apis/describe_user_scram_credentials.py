"""DescribeUserScramCredentials: mechanisms and iteration counts of the users' SCRAM credentials (KIP-554)."""

from __future__ import annotations

from broker.metadata.scram_credentials import describe
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
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
    if not may_on_cluster(context, "DESCRIBE"):
        return _refused(request)
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


def _refused(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """The response to a refused request: an error entry for each requested user, without the user's name.

    Kafka sends no response at all to a refused request about all users, so its client times out (docs/differences.md).
    """
    error = ErrorCode.cluster_authorization_failed
    return DescribeUserScramCredentialsResponse(
        error_code=error,
        results=[
            DescribeUserScramCredentialsResult(user="", error_code=error, error_message=None)
            for _ in request.users or ()
        ],
    )
