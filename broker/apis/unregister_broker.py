"""UnregisterBroker: forget a broker that will not come back.

A broker of this process that is stopped or killed is registered until then, and registers anew when it starts. One that is
alive is not forgotten (docs/differences.md).
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.metadata_views import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(key=64, versions=range(1))
async def unregister_broker(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    if not context.authorize("ALTER", "CLUSTER", CLUSTER_NAME):
        return UnregisterBrokerResponse(error_code=ErrorCode.cluster_authorization_failed)
    try:
        await context.node.metadata.cluster_control.unregister(request.broker_id)
    except ApiError as refusal:
        return UnregisterBrokerResponse(error_code=refusal.error, error_message=refusal.message)
    return UnregisterBrokerResponse(error_message="")
