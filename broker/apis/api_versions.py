"""ApiVersions: the served APIs with their versions, and the feature levels. The first request of a connection.

The v3 request (KIP-511) has the name and version of the client's software. Bodies are flexible from v3 on, but the
response header stays at version 0. v3 omits supported features with the minimum level 0, since clients that send
v3 reject them; v4 lists them (KIP-1022). The v5 request has the ids of the cluster and node that the client
expects at this address (KIP-1242).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.metadata.features import SUPPORTED_FEATURES
from broker.requests.api import APIS, UNSTABLE_VERSIONS, api
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext

KEY: Final = 18
VERSIONS: Final = range(6)
NO_NODE: Final = -1
CLIENT_METRICS_KEYS: Final = (71, 72)
"""GetTelemetrySubscriptions and PushTelemetry. Clients push metrics as soon as ApiVersions lists these APIs."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


@api(key=KEY, versions=VERSIONS, allow_before_authentication=True)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    names_software = context.api_version >= 3
    if names_software and not _is_valid(request):
        return ApiVersionsResponse(error_code=ErrorCode.invalid_request)
    authentication = context.client.authentication
    own_ids = (context.node.metadata.cluster_id, context.node.node_id)
    # Before authentication Kafka does not compare the ids (``SaslServerAuthenticator``).
    compares_ids = request.cluster_id is not None and (authentication is None or authentication.is_complete)
    if compares_ids and (request.cluster_id, request.node_id) != own_ids:
        return ApiVersionsResponse(error_code=ErrorCode.rebootstrap_required)
    if names_software:
        context.client.software_name = request.client_software_name
        context.client.software_version = request.client_software_version
    if authentication is not None:
        authentication.note_api_versions()
    metadata = context.node.metadata
    hidden = () if context.node.client_metrics.is_announced else CLIENT_METRICS_KEYS
    unstable = UNSTABLE_VERSIONS if context.node.config.unstable_api_versions_enable else {}
    return ApiVersionsResponse(
        api_keys=[_announced(key, unstable) for key in sorted(APIS) if key not in hidden],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=metadata.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in metadata.features.items()
            # A log directory written by Kafka may contain features that this broker does not support.
            if level > 0 and name in SUPPORTED_FEATURES
        ],
    )


def _is_valid(request: ApiVersionsRequest) -> bool:
    """Whether the software has a valid name and version, and the request has both a cluster id and a node id, or neither."""
    return (
        _SOFTWARE.fullmatch(request.client_software_name) is not None
        and _SOFTWARE.fullmatch(request.client_software_version) is not None
        and (request.cluster_id is None) == (request.node_id == NO_NODE)
    )


def _announced(key: int, unstable: Mapping[int, int]) -> ApiVersion:
    versions = APIS[key].announced
    return ApiVersion(api_key=key, min_version=versions[0], max_version=unstable.get(key, versions[-1]))
