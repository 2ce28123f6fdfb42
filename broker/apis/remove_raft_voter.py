"""RemoveRaftVoter: always refused, since the quorum is static with one voter (kraft.version 0, KIP-853)."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@api(key=81, versions=range(1))
def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    if not may_on_cluster(context, "ALTER"):
        return _refused(ErrorCode.cluster_authorization_failed, CLUSTER_REFUSED)
    cluster_id = context.node.metadata.cluster_id
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return _refused(
            ErrorCode.inconsistent_cluster_id,
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    if request.voter_id < 0 or request.voter_directory_id is None:
        message = "Remove voter request didn't include a valid voter"
        return _refused(ErrorCode.invalid_request, message)
    return _refused(
        ErrorCode.unsupported_version,
        "Cluster doesn't support removing voter because the kraft.version feature is 0",
    )


def _refused(error: ErrorCode, message: str) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=error, error_message=message)
