"""UpdateFeatures (KIP-584): finalize a feature at another level, for the whole cluster.

v1 adds the upgrade type and validation without a change (KIP-778). v2 has one error for the request, since either all
updates happen or none (KIP-1022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.metadata import ApiError
from broker.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    RECORDS_FROM,
    SUPPORTED_FEATURES,
    metadata_version,
)
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import ErrorCode
from protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LAST_VERSION_WITH_RESULTS: Final = 1


@api(key=57, versions=range(3))
async def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    denied = cluster_refusal(context, "ALTER")
    if denied is not None:
        return UpdateFeaturesResponse(error_code=denied.error, error_message=denied.message)
    # If a feature is named twice, the last level counts, as in Kafka's map.
    wanted = {update.feature: update for update in request.feature_updates}
    try:
        for update in wanted.values():
            _check(update, context)
        if not request.validate_only and wanted:
            levels = {name: update.max_version_level for name, update in wanted.items()}
            await context.node.metadata.update_features(levels)
    except ApiError as refusal:
        message = (
            f"The update failed for all features since the following feature had an error: {refusal.message}"
        )
        return UpdateFeaturesResponse(error_code=refusal.error, error_message=message)
    results = [
        UpdatableFeatureResult(feature=update.feature, error_message="NONE")
        for update in request.feature_updates
    ]
    with_results = context.api_version <= LAST_VERSION_WITH_RESULTS
    return UpdateFeaturesResponse(results=results if with_results else ())


def _check(update: FeatureUpdateKey, context: RequestContext) -> None:
    """Validate an update as ``FeatureControlManager.updateFeature`` does, in the same order of checks."""
    name, level = update.feature, update.max_version_level
    kind = update.upgrade_type  # v0's allow_downgrade is ignored, in Kafka too
    current = context.node.metadata.features.get(name, 0)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(name, level, "A feature version cannot be less than 0.")
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None or not supported[0] <= level <= supported[1]:
        has = "does not support this feature."
        if supported is not None:
            has = "only supports versions {}-{}".format(*supported)
        raise _refused(name, level, f"Local controller {context.node.node_id} {has}")
    if level < current and kind == UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
        )
        raise _refused(name, level, f"{reason}unsafe downgrade.")
    if level > current and kind != UPGRADE:
        raise _refused(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION and level != current:
        _check_metadata_version(level, current, kind)
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > 0:
        known = metadata_version(context.node.metadata.features)
        if known < ELIGIBLE_LEADER_REPLICAS_FROM:
            reason = f"because it depends on {METADATA_VERSION} level {ELIGIBLE_LEADER_REPLICAS_FROM}"
            raise _refused(name, level, f"{name} could not be set to {level} {reason}")


def _check_metadata_version(level: int, current: int, kind: int) -> None:
    """Raise ApiError for a downgrade, and for an upgrade from a version without the records that we write.

    Kafka refuses these downgrades, too: each of its versions counts as a change of the metadata.
    """
    if level > current:
        if current >= RECORDS_FROM:
            return
        raise _refused(METADATA_VERSION, level, "Refusing to change the metadata.version of this broker.")
    reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    if kind == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    raise ApiError(
        ErrorCode.invalid_update_version,
        f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
    )


def _refused(name: str, level: int, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {reason}"
    )
