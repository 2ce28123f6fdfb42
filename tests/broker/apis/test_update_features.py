"""UpdateFeatures: rejected updates, with Kafka's messages, which kafka-features prints."""

from __future__ import annotations

import pytest

from broker.apis.update_features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features
from protocol.errors import ErrorCode
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.metadata.world import context_of, open_cluster

INVALID = "Invalid update version {1} for feature {0}. "
UNSUPPORTED = "Unsupported metadata.version downgrade from 33 to {1}. "


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("streams.version", 1, UPGRADE, INVALID + "Local controller 1 does not support this feature."),
        ("group.version", 2, UPGRADE, INVALID + "Local controller 1 only supports versions 0-1"),
        (
            "metadata.version",
            29,
            SAFE_DOWNGRADE,
            UNSUPPORTED
            + "Refusing to perform the requested downgrade because it might delete metadata information.",
        ),
        (
            "metadata.version",
            29,
            UNSAFE_DOWNGRADE,
            UNSUPPORTED + "Unsafe metadata downgrade is not supported in this version.",
        ),
    ],
)
async def test_errors_have_kafka_s_messages(cluster, name, level, kind, reason):
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    answer = await update_features(UpdateFeaturesRequest(feature_updates=(update,)), context_of(cluster, 2))
    assert answer.error_code == ErrorCode.invalid_update_version
    assert answer.error_message == (
        "The update failed for all features since the following feature had an error: "
        + reason.format(name, level)
    )


async def test_eligible_leader_replicas_need_a_metadata_version_that_has_them(tmp_path):
    cluster = open_cluster(tmp_path, features={"metadata.version": 22})
    update = FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=UPGRADE
    )
    answer = await update_features(UpdateFeaturesRequest(feature_updates=(update,)), context_of(cluster, 2))
    assert answer.error_code == ErrorCode.invalid_update_version
    assert answer.error_message is not None
    assert answer.error_message.endswith(
        "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23"
    )
    await cluster.close()
