"""DescribeCluster: the brokers, fenced brokers on request, and permissions."""

from __future__ import annotations

import pytest

from broker.apis.describe_cluster import describe_cluster
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.metadata.world import away, context_of


def ask(cluster, version, **fields):
    options = {"denied": fields.pop("denied", ())}
    response = describe_cluster(DescribeClusterRequest(**fields), context_of(cluster, version, **options))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(60, version).encode(response))
    return client_codec(60, version).decode(encoded, 0)


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster(cluster, version):
    answer = ask(cluster, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (cluster.cluster_id, 1)
    assert answer.cluster_authorized_operations == -(2**31)
    [broker] = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced) == (
        1,
        "broker.example",
        19092,
        None,
        False,
    )
    assert (
        ask(cluster, version, include_cluster_authorized_operations=True).cluster_authorized_operations
        == 8096
    )


async def test_fenced_brokers_are_listed_on_request(cluster):
    away(cluster, 2, fenced=True)
    assert [one.broker_id for one in ask(cluster, 2).brokers] == [1]
    found = ask(cluster, 2, include_fenced_brokers=True).brokers
    assert [(one.broker_id, one.is_fenced) for one in found] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (
            2,
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (7, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 7"),
    ],
)
async def test_controllers_are_not_served_here(cluster, endpoint_type, error, message):
    answer = ask(cluster, 1, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.error_message) == (error, message)
    assert (answer.cluster_id, answer.controller_id, list(answer.brokers)) == ("", -1, [])


async def test_rights(cluster):
    answer = ask(
        cluster,
        2,
        include_cluster_authorized_operations=True,
        denied={("DESCRIBE", "CLUSTER", "kafka-cluster")},
    )
    assert answer.cluster_authorized_operations == 0
