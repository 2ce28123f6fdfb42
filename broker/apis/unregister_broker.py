"""UnregisterBroker: remove the registration of a broker that will not return.

A node of this process that is stopped or killed stays registered, and registers again when it starts. A live node cannot be
unregistered (docs/differences.md).
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@api(key=64, versions=range(1))
async def unregister_broker(
    request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    denied = cluster_refusal(context, "ALTER")
    if denied is not None:
        return UnregisterBrokerResponse(error_code=denied.error, error_message=denied.message)
    try:
        await context.node.metadata.cluster_control.unregister(request.broker_id)
    except ApiError as refusal:
        return UnregisterBrokerResponse(error_code=refusal.error, error_message=refusal.message)
    return UnregisterBrokerResponse(error_message="")
