"""UnregisterController: remove the registration of a controller that will not return (KAFKA-20395).

The only controller of the process is active, so it cannot be unregistered. A data directory that Apache Kafka has
written may have registrations of other controllers.
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import ErrorCode
from protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


@api(key=94, versions=range(1))
async def unregister_controller(
    request: UnregisterControllerRequest, context: RequestContext
) -> UnregisterControllerResponse:
    denied = cluster_refusal(context, "ALTER")
    if denied is not None:
        return UnregisterControllerResponse(error_code=denied.error, error_message=denied.message)
    metadata = context.node.metadata
    try:
        if request.controller_id == metadata.identity.node_id:
            raise ApiError(
                ErrorCode.invalid_request, "Controller cannot unregister itself while it is active."
            )
        await metadata.cluster_control.unregister_controller(request.controller_id)
    except ApiError as refusal:
        return UnregisterControllerResponse(error_code=refusal.error, error_message=refusal.message)
    return UnregisterControllerResponse()
