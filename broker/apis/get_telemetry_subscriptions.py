"""GetTelemetrySubscriptions: the metrics that this client should push (KIP-714).

ApiVersions lists this API only if a receiver of client metrics is configured. The API is always served, as on Kafka.
"""

from __future__ import annotations

from typing import Final

from broker.client_metrics.instance import COMPRESSION_TYPES
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.client_metrics import client_parameters
from protocol.errors import NONE
from protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

KEY: Final = 71


@api(key=KEY, versions=range(1))
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    manager = context.node.client_metrics
    error, instance_id, requested = manager.get(
        request.client_instance_id, context.connection_id, client_parameters(context)
    )
    if error != NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=requested.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=requested.push_interval_ms,
        telemetry_max_bytes=manager.bytes_max,
        delta_temporality=True,
        requested_metrics=list(requested.metrics),
    )
