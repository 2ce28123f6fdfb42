"""What the handlers of the five requests to a share coordinator have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from broker.share.state import Outcome
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from broker.share.state_apis import ShareStateApi


def share_state(api: ShareStateApi, request: Any, context: RequestContext) -> Any:
    """Return the response of the share coordinator, or an error for each partition if the client is not authorized."""
    if not may_on_cluster(context, "CLUSTER_ACTION"):
        return api.refusal(request, Outcome(ErrorCode.cluster_authorization_failed, CLUSTER_REFUSED))
    return context.node.share_coordinator.handle(api, request)
