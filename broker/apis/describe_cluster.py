"""DescribeCluster (KIP-700): brokers, controller and cluster id.

v1: the request states whether the client expects endpoints of brokers or of controllers (KIP-919). v2: the response can
include fenced brokers (KIP-1073).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.requests.api import api
from broker.requests.authorization import authorized_cluster_operations
from broker.requests.metadata_views import NO_NODE, addresses
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2


@api(key=60, versions=range(3))
def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.mismatched_endpoint_type,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.unsupported_endpoint_type,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    known = list(addresses(context, fenced=request.include_fenced_brokers))
    response = DescribeClusterResponse(
        cluster_id=context.node.metadata.cluster_id,
        controller_id=min((one.node_id for one in known if not one.fenced), default=NO_NODE),
        brokers=[
            DescribeClusterBroker(
                broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack, is_fenced=one.fenced
            )
            for one in known
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_cluster_operations(context)
    return response
