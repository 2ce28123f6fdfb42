"""ApiVersions: what is served here, in which versions, at which feature levels. The first request of a connection.

v3 (KIP-511) names the client's software, and is flexible in its body only: the response's header stays at version 0.
v3 leaves out supported features whose lowest level is 0, which clients of that time refuse; v4 lists them (KIP-1022).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from broker.metadata.features import SUPPORTED_FEATURES
from broker.requests.api import APIS, api
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
VERSIONS: Final = range(5)
CLIENT_METRICS_KEYS: Final = (71, 72)
"""Clients push metrics as soon as these are announced."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


@api(key=KEY, versions=VERSIONS, allow_before_authentication=True)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    names_software = context.api_version >= 3
    if names_software and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.invalid_request)
    if names_software:
        context.client.software_name = request.client_software_name
        context.client.software_version = request.client_software_version
    if context.client.authentication is not None:
        context.client.authentication.heard_versions()
    metadata = context.node.metadata
    hidden = () if context.node.client_metrics.is_announced else CLIENT_METRICS_KEYS
    return ApiVersionsResponse(
        api_keys=[_announced(key) for key in sorted(APIS) if key not in hidden],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=metadata.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in metadata.features.items()
            # A directory of Kafka's may hold levels of things that are not served here.
            if level > 0 and name in SUPPORTED_FEATURES
        ],
    )


def _announced(key: int) -> ApiVersion:
    versions = APIS[key].announced
    return ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
