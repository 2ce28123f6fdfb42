"""PushTelemetry: receive the metrics of a client, in OpenTelemetry's format (KIP-714).

ApiVersions lists this API only if a receiver of client metrics is configured. The API is always served, as on Kafka.
"""

from __future__ import annotations

from broker.client_metrics.instance import Push
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.client_metrics import client_parameters
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@api(key=72, versions=range(1))
def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    error = context.node.client_metrics.push(
        request.client_instance_id,
        context.connection_id,
        client_parameters(context),
        Push(
            request.subscription_id,
            request.terminating,
            request.compression_type,
            len(request.metrics or b""),
        ),
        request.metrics,
    )
    return PushTelemetryResponse(error_code=error)
