"""ApiVersions lists exactly the APIs and versions that the listener serves."""

from __future__ import annotations

import pytest

from broker.apis.api_versions import CLIENT_METRICS_KEYS, api_versions
from broker.metadata.features import INITIAL_LEVELS, METADATA_VERSION, STREAMS_VERSION
from broker.requests.api import APIS, discover
from broker.requests.error_answers import unsupported_version_response
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.world import context_of


def request(name: str = "client", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", range(6))
async def test_the_served_apis_are_listed_in_order(cluster, version):
    discover()
    response = api_versions(request(), context_of(cluster, version))
    assert response.error_code == 0
    announced = {key: one for key, one in APIS.items() if key not in CLIENT_METRICS_KEYS}
    assert [one.api_key for one in response.api_keys] == sorted(announced)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert ranges[18] == (0, 5)
    assert ranges[3] == (0, 13)
    assert ranges == {key: (one.announced[0], one.announced[-1]) for key, one in announced.items()}
    encoded = b"".join(bytes(chunk) for chunk in request_codec(18, version).encode(response))
    again = client_codec(18, version).decode(encoded, 0)
    assert len(again.api_keys) == len(announced)


@pytest.mark.parametrize(("enabled", "last"), [("true", 6), ("false", 5)])
async def test_unstable_versions_are_listed_if_they_are_enabled(cluster, enabled, last):
    discover()
    context = context_of(cluster, 4, unstable_api_versions_enable=enabled)
    listed = {one.api_key: one.max_version for one in api_versions(request(), context).api_keys}
    changed = {key: one for key, one in listed.items() if one != APIS[key].announced[-1]}
    assert (listed[22], changed) == (last, {22: 6} if last == 6 else {})


async def test_client_metrics_are_listed_if_an_exporter_is_configured(cluster):
    discover()
    context = context_of(cluster, 4, odradek_client_telemetry_exporter="log")
    keys = {one.api_key for one in api_versions(request(), context).api_keys}
    assert keys == set(APIS)
    assert keys.issuperset(CLIENT_METRICS_KEYS)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        (3, [("metadata.version", 7, 33)]),
        (
            4,
            [
                ("metadata.version", 7, 33),
                ("eligible.leader.replicas.version", 0, 1),
                ("group.version", 0, 1),
                ("share.version", 0, 2),
                ("transaction.version", 0, 2),
            ],
        ),
    ],
)
async def test_features_that_may_be_absent_are_kept_from_old_clients(cluster, version, supported):
    response = api_versions(request(), context_of(cluster, version))
    found = [(one.name, one.min_version, one.max_version) for one in response.supported_features]
    assert found == supported
    assert [
        (one.name, one.min_version_level, one.max_version_level) for one in response.finalized_features
    ] == [
        ("metadata.version", 33, 33),
        ("eligible.leader.replicas.version", 1, 1),
        ("group.version", 1, 1),
        ("share.version", 2, 2),
        ("transaction.version", 2, 2),
    ]
    assert response.finalized_features_epoch == cluster.epoch
    assert response.zk_migration_ready is False


async def test_levels_of_features_that_are_not_implemented_are_not_listed(cluster):
    await cluster.update_features(dict.fromkeys(INITIAL_LEVELS.keys() - {METADATA_VERSION}, 0))
    await cluster._writer.commit([schema.FeatureLevelRecord(name=STREAMS_VERSION, feature_level=1)])
    response = api_versions(request(), context_of(cluster, 4))
    assert [one.name for one in response.finalized_features] == ["metadata.version"]


@pytest.mark.parametrize("bad", ["", "-a", "a-", "a b", "1+2", ".", "é", "a\n"])
@pytest.mark.parametrize("version", [3, 4, 5])
async def test_software_without_a_name_is_refused(cluster, bad, version):
    for asked in (request(name=bad), request(version=bad)):
        response = api_versions(asked, context_of(cluster, version))
        assert (response.error_code, list(response.api_keys)) == (ErrorCode.invalid_request, [])
        assert list(response.finalized_features) == []


@pytest.mark.parametrize("good", ["a", "A9", "1.0-SNAPSHOT", "apache-kafka-java"])
async def test_good_names(cluster, good):
    assert api_versions(request(good, good), context_of(cluster, 3)).error_code == 0


async def test_old_versions_have_no_software(cluster):
    assert api_versions(request("", ""), context_of(cluster, 2)).error_code == 0


async def test_the_ids_of_this_cluster_and_node_are_accepted(cluster):
    asked = expecting(cluster.cluster_id, 1)
    assert api_versions(asked, context_of(cluster, 5)).error_code == 0


@pytest.mark.parametrize("node_id", [2, -2, 0])
async def test_a_client_of_another_node_must_bootstrap_again(cluster, node_id):
    response = api_versions(expecting(cluster.cluster_id, node_id), context_of(cluster, 5))
    assert in_bytes(response) == "0081 01 00000000 00"


@pytest.mark.parametrize("cluster_id", ["", "another"])
async def test_a_client_of_another_cluster_must_bootstrap_again(cluster, cluster_id):
    response = api_versions(expecting(cluster_id, 1), context_of(cluster, 5))
    assert response.error_code == ErrorCode.rebootstrap_required


@pytest.mark.parametrize(("cluster_id", "node_id"), [("", -1), ("another", -1), (None, 1), (None, -2)])
async def test_a_cluster_id_without_a_node_id_is_refused(cluster, cluster_id, node_id):
    response = api_versions(expecting(cluster_id, node_id), context_of(cluster, 5))
    assert in_bytes(response) == "002a 01 00000000 00"


def expecting(cluster_id: str | None, node_id: int) -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name="client",
        client_software_version="1.0",
        cluster_id=cluster_id,
        node_id=node_id,
    )


def in_bytes(response: ApiVersionsResponse) -> str:
    encoded = b"".join(bytes(chunk) for chunk in request_codec(18, 5).encode(response))
    return f"{encoded[:2].hex()} {encoded[2:3].hex()} {encoded[3:7].hex()} {encoded[7:].hex()}"


def test_a_request_of_an_unknown_version_gets_the_supported_versions():
    response = unsupported_version_response()
    assert b"".join(bytes(chunk) for chunk in request_codec(18, 0).encode(response)) == bytes.fromhex(
        "0023 00000001 0012 0000 0005"
    )
