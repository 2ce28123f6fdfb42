"""AddRaftVoter: always refused, since the quorum is static with one voter (kraft.version 0, KIP-853)."""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

CONTROLLER_LISTENER: Final = "CONTROLLER"


@api(key=80, versions=range(2))
def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    if not may_on_cluster(context, "ALTER"):
        return _refused(ErrorCode.cluster_authorization_failed, CLUSTER_REFUSED)
    cluster_id = context.node.metadata.cluster_id
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return _refused(
            ErrorCode.inconsistent_cluster_id,
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    if request.voter_id < 0 or request.voter_directory_id is None:
        message = "Add voter request didn't include a valid voter"
        return _refused(ErrorCode.invalid_request, message)
    if not any(each.name == CONTROLLER_LISTENER for each in request.listeners):
        return _refused(
            ErrorCode.invalid_request,
            f"Add voter request didn't include the endpoint for the default listener {CONTROLLER_LISTENER}",
        )
    return _refused(
        ErrorCode.unsupported_version,
        "Cluster doesn't support adding voter because the kraft.version feature is 0",
    )


def _refused(error: ErrorCode, message: str) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=error, error_message=message)
