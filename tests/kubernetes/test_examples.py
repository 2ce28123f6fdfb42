"""The manifests of examples/kubernetes without a cluster: the broker accepts their settings, and they are consistent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from broker.config.settings import Settings
from broker.security.tls.authority import Authority
from lab.control.operations import discover
from server.options import parse
from tests.docs.blocks import ROOT, blocks
from tests.kubernetes.manifests import (
    EXAMPLES,
    ONE_FILE,
    SIDECAR,
    VARIANTS,
    Manifest,
    broker_of,
    build,
    containers,
    environment,
    find,
    merged,
    pod_specs,
    read,
    secrets_of,
)

ALL = [*VARIANTS, "sidecar"]


def manifests(name: str) -> list[Manifest]:
    return read(SIDECAR) if name == "sidecar" else build(EXAMPLES / name)


def settings_of(found: list[Manifest]) -> Settings:
    issued = Authority.create(datetime.now(UTC)).issue("kafka", ["kafka.shop.svc"])
    # Secrets that exist in the namespace before the manifests are applied.
    secrets = {
        ("kafka-tls", "tls.key"): issued.key_pem().decode(),
        ("kafka-tls", "tls.crt"): issued.chain_pem().decode(),
    }
    broker = broker_of(found)
    return parse(
        broker["args"], environment(broker, secrets | secrets_of(found)) | {"ODRADEK_CONTROL_HOST": "0.0.0.0"}
    )


def test_every_example_is_tested() -> None:
    assert {each.name for each in EXAMPLES.iterdir()} == set(ALL)
    assert read(ONE_FILE) == build(EXAMPLES / "base")


@pytest.mark.parametrize("name", ALL)
def test_its_options_and_variables_start_a_broker_without_a_warning(name: str) -> None:
    settings = settings_of(manifests(name))
    assert settings.warnings == ()
    assert [topic.name for topic in settings.topics] == ["orders"]
    assert settings.control is not None


@pytest.mark.parametrize("name", ALL)
def test_each_pod_may_run_where_pod_security_is_restricted(name: str) -> None:
    """The rules are those of the `restricted` standard. No manifest sets a uid, so that a namespace can have its own."""
    for pod in pod_specs(manifests(name)):
        given = pod["securityContext"]
        assert given["runAsNonRoot"] is True
        assert given["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"runAsUser", "runAsGroup"} & given.keys()
        for each in containers(pod):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        assert all(not {"hostPath"} & volume.keys() for volume in pod["volumes"])


@pytest.mark.parametrize("name", ALL)
def test_no_variable_of_a_service_reaches_the_broker(name: str) -> None:
    assert [pod["enableServiceLinks"] for pod in pod_specs(manifests(name))] == [False]


@pytest.mark.parametrize("name", ALL)
def test_each_probe_uses_a_path_that_needs_no_token(name: str) -> None:
    operations = discover()
    for each in (each for pod in pod_specs(manifests(name)) for each in containers(pod)):
        ports = {port["name"]: port["containerPort"] for port in each.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in each:
                asked = each[probe]["httpGet"]
                assert operations["GET", asked["path"]].open_to_all
                assert ports.get(asked["port"], asked["port"]) == 18092
                # An injected fault must not restart the pod: /ready is 503 while no node runs.
                assert asked["path"] == ("/ready" if probe == "startupProbe" else "/health")


@pytest.mark.parametrize("name", VARIANTS)
def test_two_brokers_never_run_at_once(name: str) -> None:
    deployment = find(manifests(name), "Deployment", "odradek")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("name", VARIANTS)
def test_each_service_leads_to_a_port_at_which_the_broker_listens(name: str) -> None:
    found = manifests(name)
    settings = settings_of(found)
    labels = find(found, "Deployment", "odradek")["spec"]["template"]["metadata"]["labels"]
    listens = {each.port for node in settings.nodes for each in node.listeners}
    services = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "Service"}
    for service in services.values():
        assert service["selector"].items() <= labels.items()
    ports = {name: [port["port"] for port in each["ports"]] for name, each in services.items()}
    assert ports.pop("kafka-control") == [18092]
    assert services["kafka-control"]["publishNotReadyAddresses"] is True
    assert {port for each in ports.values() for port in each} == listens


def test_the_advertised_name_contains_the_namespace() -> None:
    for name in VARIANTS:
        for node in settings_of(manifests(name)).nodes:
            assert node.advertised_listeners[0].host == "kafka.shop.svc"


def test_the_page_links_to_every_example() -> None:
    page = "docs/kubernetes.md"
    text = (ROOT / page).read_text("utf-8")
    for name in ALL:
        assert f"| [{name}](../examples/kubernetes/{name}/" in text
    words = [word for block in blocks(page) for word in block.text.split() if word.startswith("examples/")]
    assert words == ["examples/kubernetes/base/odradek.yaml", "examples/kubernetes/claim"]


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": 1, "b": 2}, {"b": None}, {"a": 1}),
        (
            [{"name": "a", "value": 1}],
            [{"name": "b"}, {"name": "a", "value": 2}],
            [{"name": "b"}, {"name": "a", "value": 2}],
        ),
        (["x"], ["y"], ["y"]),
    ],
)
def test_a_strategic_merge(old: Any, new: Any, result: Any) -> None:
    assert merged(old, new) == result
