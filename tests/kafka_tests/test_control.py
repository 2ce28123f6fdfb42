"""Tests of the clusters that the runner starts for the stand-ins of Kafka's test kits."""

from __future__ import annotations

from pathlib import Path

from tests.kafka_tests.control import STAND_IN, Cluster
from tests.support.kafka_oracle import ask
from tests.support.raw import Wire

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listeners": "BROKER://localhost:0,CLIENT://localhost:0",
    "principal.builder.class": "kafka.api.AbstractAuthorizerIntegrationTest$PrincipalBuilder",
    "super.users": "User:broker",
}


def test_each_listener_has_the_principal_of_the_tests_principal_builder(tmp_path: Path):
    """Super users may describe ACLs, and the client may not. Features have the levels of the test."""
    cluster = Cluster()
    cluster.do(
        {
            "do": "configure",
            "directory": str(tmp_path / "logs"),
            "cluster_id": "XcZZOzUqS4yHOjhMQB6JLQ",
            "features": {
                "transaction.version": 2,
                "group.version": 0,
                "eligible.leader.replicas.version": 0,
                "share.version": 0,
            },
            "login_config": "",
            "users": [],
            "principals": {"BROKER": "User:broker", "CLIENT": "User:client"},
            "nodes": [{"id": 0, "settings": SETTINGS}],
        }
    )
    try:
        ports = cluster.do({"do": "start"})["ports"]["0"]
        assert [_described_acls(ports[name]) for name in ("BROKER", "CLIENT", STAND_IN)] == [0, 31, 0]
        assert _features(ports["CLIENT"]) == {"metadata.version", "transaction.version"}
    finally:
        cluster.close()


def _described_acls(port: int) -> int:
    wire = Wire("localhost", port)
    try:
        anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        response = ask(
            wire,
            "describe_acls",
            3,
            **anything,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        )
        return int(response["error_code"])
    finally:
        wire.close()


def _features(port: int) -> set[str]:
    """Features whose finalized level is above 0."""
    wire = Wire("localhost", port)
    try:
        client = {"client_software_name": "test", "client_software_version": "1"}
        return {row["name"] for row in ask(wire, "api_versions", 3, **client)["finalized_features"]}
    finally:
        wire.close()
