"""The examples, and manifests that users write, in a real cluster (`cluster.py` lists the variables that select it)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.security.tls.authority import Authority
from tests.kubernetes.cluster import (
    OPENSHIFT,
    PRIVILEGED,
    RESTRICTED,
    RUN,
    Namespace,
    as_user,
    await_probes,
    kubectl,
    namespace,
    node_address,
    volume,
)
from tests.kubernetes.manifests import (
    EXAMPLES,
    SIDECAR,
    VARIANTS,
    Manifest,
    broker_of,
    build,
    find,
    merged,
    name_of,
    read,
)
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S, LONG_TEST_S

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(LONG_TEST_S)]

CASES = Path(__file__).with_name("cases")
ROOT = Path(__file__).resolve().parents[2]
BROKER = "app.kubernetes.io/name=odradek"
TRANSACTIONS = 7550
TOKEN = "export ODRADEK_CONTROL_TOKEN=only-for-tests; "


def secrets(here: Namespace) -> None:
    """Create the Secrets that the variants need, and write the client's settings for them into its pod."""
    authority = Authority.create(datetime.now(UTC))
    issued = authority.issue("kafka", ["kafka", f"kafka.{here.name}.svc"])
    pair = {"tls.key": issued.key_pem().decode(), "tls.crt": issued.chain_pem().decode()}
    here.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": "kafka-tls"},
            "stringData": pair,
        }
    )
    here.ask("cat > /tmp/ca.pem", stdin=authority.certificate_pem().decode())
    tls = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/tmp/ca.pem\n"
    here.ask("cat > /tmp/tls", stdin=tls)
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";'
    sasl = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n"
    here.ask("cat > /tmp/sasl", stdin=sasl)


OPTIONS = {"tls": "--command-config /tmp/tls", "sasl": "--command-config /tmp/sasl"}


def variant(name: str) -> list[Manifest]:
    """The manifests of a variant as kubectl builds them, after checking that our own build gives the same."""
    found: list[Manifest] = [*yaml.safe_load_all(kubectl("kustomize", str(EXAMPLES / name)))]
    ours = build(EXAMPLES / name)
    if name != "sasl":  # kustomize appends a hash to the name of its Secret
        assert sorted(map(str, map(name_of, found))) == sorted(map(str, map(name_of, ours)))
        assert broker_of(found)["env"] == broker_of(ours)["env"]
    return found


def restarts(pod: Manifest) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


def is_ready(pod: Manifest) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


# ---- the examples


@pytest.mark.parametrize("security", [{}, OPENSHIFT], ids=["the image's user", "OpenShift's user"])
@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_serves_where_pod_security_is_restricted(name: str, security: Manifest) -> None:
    with namespace(RESTRICTED) as here, volume(here, "kafka-data") if name == "claim" else nullcontext():
        here.start_client()
        if name in OPTIONS:
            secrets(here)
        here.apply(*as_user(variant(name), security))
        here.roll_out()
        options = OPTIONS.get(name, "")
        here.ask(f"odradek produce orders paid shipped -x shop {options}")
        here.ask(f"odradek produce orders lost -x shop --abort {options}")
        assert here.values("orders", options) == ["paid", "shipped"]
        # Clients in another namespace use the advertised name, which contains the namespace.
        here.ask(f"odradek topic list -b kafka.{here.name}.svc:9092 {options}")
        assert "running" in here.ask("odradek node list")
        pod = here.broker()
        assert (is_ready(pod), restarts(pod)) == (True, 0)
        assert here.warnings(pod["metadata"]["name"]) == []


def test_the_sidecar_serves_its_test() -> None:
    with namespace(RESTRICTED) as here:
        here.apply(*read(SIDECAR))
        here.wait("job/test", "condition=Complete")


def test_a_fifth_of_a_core_and_128_mib_are_enough() -> None:
    with namespace(RESTRICTED) as here:
        here.start_client()
        manifests = variant("base")
        broker_of(manifests)["resources"] = {"limits": {"cpu": "200m", "memory": "128Mi"}}
        here.apply(*manifests)
        here.roll_out()
        here.ask("seq 20000 | odradek produce orders -x seed")
        here.ask("for each in $(seq 20); do odradek produce orders paid -x shop; done")
        await_probes(here, here.broker()["metadata"]["name"], "Liveness")
        pod = here.broker()
        assert (is_ready(pod), restarts(pod)) == (True, 0)


def quick_probes(manifests: list[Manifest], **more: Any) -> list[Manifest]:
    """The manifests with a probe each second and failureThreshold 1."""
    broker = broker_of(manifests)
    for each in ("readinessProbe", "livenessProbe"):
        broker[each] |= {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5} | more
    return manifests


@pytest.mark.parametrize(
    ("stage", "undo"),
    [
        ("odradek node kill 1", "odradek node start 1"),
        ("odradek node stop 1", "odradek node start 1"),
        ("odradek node pause 1", "odradek node resume 1"),
        ("odradek fault add 'ApiVersions -> drop'", "odradek fault clear"),
        ("odradek fault add '* -> hold'", "odradek fault clear"),
        ("odradek fault add 'full-disk'; ! odradek produce orders more -p 0", "odradek reset"),
    ],
)
def test_an_injected_fault_does_not_fail_the_liveness_probe(stage: str, undo: str) -> None:
    with namespace(RESTRICTED) as here:
        here.start_client()
        manifests = quick_probes(variant("base"))
        # Many manifests use the image's health check as liveness probe. Readiness stays an HTTP request.
        del broker_of(manifests)["livenessProbe"]["httpGet"]
        broker_of(manifests)["livenessProbe"]["exec"] = {"command": ["odradek", "health"]}
        here.apply(*manifests)
        here.roll_out()
        name = here.broker()["metadata"]["name"]
        here.ask(stage)
        for kind in ("Readiness", "Liveness"):
            await_probes(here, name, kind)
        pod = here.broker()
        assert (pod["metadata"]["name"], is_ready(pod), restarts(pod)) == (name, True, 0)
        here.ask(undo)
        here.ask("odradek produce orders paid -x shop")
        assert restarts(here.broker()) == 0


def test_the_control_port_is_reached_when_readiness_says_that_no_node_runs() -> None:
    """If the readiness probe is /ready, a killed node removes the pod from all Services except that of the control port."""
    with namespace(RESTRICTED) as here:
        here.start_client()
        manifests = variant("base")
        broker_of(manifests)["readinessProbe"]["httpGet"]["path"] = "/ready"
        here.apply(*quick_probes(manifests))
        here.roll_out()
        here.ask("odradek node kill 1")
        eventually(lambda: not is_ready(here.broker()), "the pod is not ready", within_s=HANG_S)
        here.ask("odradek node start 1")
        eventually(lambda: is_ready(here.broker()), "the pod is ready", within_s=HANG_S)
        assert restarts(here.broker()) == 0


def test_a_crash_restarts_the_container_and_keeps_the_data() -> None:
    with namespace(RESTRICTED) as here:
        here.start_client()
        here.apply(*variant("base"))
        here.roll_out()
        here.ask("odradek produce orders before -x shop")
        here.ask("odradek fault add 'Produce -> crash'")
        here.ask("odradek produce orders more -x shop", check=False)
        eventually(lambda: restarts(here.broker()) == 1, "the container has started again", within_s=HANG_S)
        ended = here.broker()["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert ended["exitCode"] == 137
        here.roll_out()
        here.ask("odradek produce orders after -x shop")
        # The command that triggered the crash has either retried its record or failed.
        assert {*here.values("orders")} - {"more"} == {"after", "before"}


@pytest.mark.parametrize(
    "probe", [{"tcpSocket": {"port": 9092}}, {"exec": {"command": ["odradek", "health"]}}]
)
def test_a_probe_of_a_port_with_tls_leaves_no_line(probe: Manifest) -> None:
    with namespace(RESTRICTED) as here:
        here.start_client()
        secrets(here)
        manifests = variant("tls")
        broker_of(manifests)["readinessProbe"] = probe | {"periodSeconds": 1, "timeoutSeconds": 5}
        here.apply(*manifests)
        here.roll_out()
        name = here.broker()["metadata"]["name"]
        await_probes(here, name, "Readiness")
        assert here.warnings(name) == []


# ---- claims


def test_a_restart_with_a_claim_ends_and_loses_nothing() -> None:
    with namespace(RESTRICTED) as here, volume(here, "kafka-data"):
        here.start_client()
        here.apply(*variant("claim"))
        here.roll_out()
        for count in range(3):
            here.ask(f"odradek produce orders {count} -x shop")
            here.restart()
        assert here.values("orders") == ["0", "1", "2"]


def test_the_second_broker_of_a_claim_says_what_to_change() -> None:
    """With a Deployment's default strategy a second broker starts on the claim, and its log says which strategy to use."""
    with namespace(RESTRICTED) as here, volume(here, "kafka-data"):
        manifests = variant("claim")
        find(manifests, "Deployment", "odradek")["spec"]["strategy"] = {"type": "RollingUpdate"}
        here.apply(*manifests)
        here.roll_out()
        old = here.broker()["metadata"]["name"]
        here("rollout", "restart", "deployment/odradek")

        def refused() -> list[str]:
            new = [each["metadata"]["name"] for each in here.pods(BROKER) if each["metadata"]["name"] != old]
            return [
                line for each in new for line in here.warnings(each) if "in use by another broker" in line
            ]

        (line, *_) = eventually(refused, "the second broker has said why", within_s=HANG_S)
        assert "strategy: Recreate" in line


@pytest.mark.parametrize("policy", ["OnRootMismatch", "Always"])
def test_a_claim_is_used_by_the_next_user_of_its_group(policy: str) -> None:
    """On a claim that moves to another project of OpenShift, a new user of the same group can write."""
    with namespace(RESTRICTED) as here, volume(here, "kafka-data"):
        here.start_client()
        for number, user in enumerate((1000650000, 1000660000, 1000650000)):
            security = {
                "runAsUser": user,
                "runAsGroup": 0,
                "fsGroup": 1000650000,
                "fsGroupChangePolicy": policy,
            }
            here.apply(*as_user(variant("claim"), security))
            here.roll_out()
            here.ask(f"odradek produce orders {number} -x shop")
        assert here.values("orders") == ["0", "1", "2"]


def test_the_error_for_a_claim_of_another_user_names_the_group() -> None:
    with namespace(RESTRICTED) as here, volume(here, "kafka-data"):
        manifests = variant("claim")
        given = find(manifests, "Deployment", "odradek")["spec"]["template"]["spec"]["securityContext"]
        del given["fsGroup"], given["fsGroupChangePolicy"]
        here.apply(*manifests)

        def refused() -> list[str]:
            return [line for each in here.pods(BROKER) for line in here.warnings(each["metadata"]["name"])]

        (line, *_) = eventually(refused, "the broker has said why", within_s=HANG_S)
        assert "fsGroup" in line
        assert "docker" not in line


# ---- manifests of users


def test_a_service_may_have_any_name() -> None:
    with namespace(PRIVILEGED) as here:
        here.apply_file(CASES / "services.yaml")
        here.apply_file(CASES / "beside-services.yaml")
        for pod in ("plain", "own-port"):
            eventually(partial(here.logs, pod), f"{pod} has started", within_s=HANG_S)
            assert "odradek-control" in here(
                "exec", pod, "--", "odradek", "topic", "create", "odradek-control"
            )
            assert here.warnings(pod) == []
            assert restarts(here.get("pod", pod)) == 0
        ended = here.await_end("command")
        said = here("logs", "command")
        assert "tcp://" not in said
        assert ended["exitCode"] in (0, 3), said


@pytest.mark.parametrize("pod", ["mounted", "read-only", "over-the-images-file"])
def test_settings_from_a_configmap_leave_the_data_where_they_are(pod: str) -> None:
    with namespace(PRIVILEGED) as here:
        manifests = read(CASES / "configmap.yaml")
        here.apply(*(each for each in manifests if each["metadata"]["name"] in ("settings", pod)))
        here.wait(f"pod/{pod}", "condition=Ready")

        def inside(command: str, *, check: bool = True) -> str:
            return here("exec", pod, "--", "sh", "-euc", TOKEN + command, check=check)

        address = here.get("pod", pod)["status"]["podIP"]
        eventually(lambda: inside("odradek topic create orders", check=False), "orders", within_s=HANG_S)
        assert "orders  4" in " ".join(inside("odradek topic list").split(" ")).replace("       ", "  ")
        inside("odradek produce orders paid shipped -x shop")
        inside(f"odradek health --bootstrap {address}:9092")
        inside("kill 1")
        eventually(lambda: restarts(here.get("pod", pod)) == 1, "a second start", within_s=HANG_S)

        def values() -> list[str]:
            return sorted(inside("odradek consume orders --format '%v\\n'", check=False).split())

        assert eventually(values, "records", within_s=HANG_S) == ["paid", "shipped"]


def restarts_of(here: Any, pod: str) -> Any:
    return restarts(here.get("pod", pod))


def test_three_pods_with_a_quorum_are_refused() -> None:
    with namespace(PRIVILEGED) as here:
        here.apply_file(CASES / "kraft-statefulset.yaml")
        for pod in ("kafka-0", "kafka-1", "kafka-2"):
            eventually(partial(restarts_of, here, pod), "it ends", within_s=HANG_S)
            said = here("logs", pod, "--previous")
            assert "controller.quorum.voters" in said
            assert "--nodes 3" in said
            assert not is_ready(here.get("pod", pod))


def test_a_broker_at_the_address_of_its_pod_is_ready() -> None:
    with namespace(PRIVILEGED) as here:
        here.start_client()
        here.apply_file(CASES / "pod-ip.yaml")
        here.wait("pod/broker", "condition=Ready")
        here.ask("odradek produce orders paid -x shop")
        assert here.values("orders") == ["paid"]


def test_the_health_check_fits_into_the_second_of_a_probe() -> None:
    with namespace(PRIVILEGED) as here:
        here.apply_file(CASES / "exec-probes.yaml")
        here.wait("pod/broker", "condition=Ready")
        await_probes(here, "broker", "Liveness")
        pod = here.get("pod", "broker")
        assert (is_ready(pod), restarts(pod)) == (True, 0)
        assert here.warnings("broker") == []


def test_any_user_starts_without_a_volume() -> None:
    with namespace(PRIVILEGED) as here:
        here.apply_file(CASES / "uid-no-volume.yaml")
        here.wait("pod/broker", "condition=Ready")
        eventually(
            lambda: here("exec", "broker", "--", "odradek", "health", check=False), "healthy", within_s=HANG_S
        )
        assert restarts(here.get("pod", "broker")) == 0


def test_a_pod_that_is_deleted_at_its_start_ends_at_once() -> None:
    """A pod that is deleted at its start ends at once. A lost SIGTERM would cost the grace period of one hour."""
    with namespace(PRIVILEGED) as here:
        here.apply_file(CASES / "early.yaml")

        def runs() -> bool:
            statuses = here.get("pod", "early")["status"].get("containerStatuses", [{}])
            return "running" in statuses[0].get("state", {})

        eventually(runs, "the container runs", within_s=HANG_S)
        here("delete", "pod", "early", f"--timeout={HANG_S:.0f}s")


# ---- a job during rollouts and kills


def with_claim_and_settings(manifests: list[Manifest], partitions: int) -> list[Manifest]:
    """The node-port variant on a claim, with a settings file from a ConfigMap."""
    (change,) = read(EXAMPLES / "claim" / "deployment.yaml")
    found = [merged(each, change) if name_of(each) == name_of(change) else each for each in manifests]
    found += read(EXAMPLES / "claim" / "claim.yaml")
    data = {"server.properties": f"num.partitions={partitions}\n"}
    found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data})
    pod = find(found, "Deployment", "odradek")["spec"]["template"]["spec"]
    pod["volumes"].append({"name": "settings", "configMap": {"name": "settings"}})
    broker = broker_of(found)
    broker["volumeMounts"].append({"name": "settings", "mountPath": "/mnt/shared/config"})
    broker["args"] = ["--topic", "orders:4", "--topic", "invoices:4"]
    for each in broker["env"]:
        if each["name"] == "KAFKA_ADVERTISED_LISTENERS":
            each["value"] = each["value"].replace("localhost:30094", f"{node_address()}:30094")
    return found


def kill(here: Namespace) -> None:
    """Crash the broker with SIGKILL, and wait until the container has restarted."""
    before = restarts(here.broker())
    # The broker may crash before the command has its response.
    here.ask("odradek fault add 'Produce nth=1 -> crash'", check=False)
    eventually(lambda: restarts(here.broker()) > before, "it starts again", within_s=HANG_S)
    here.roll_out()


def delete_by_force(here: Namespace) -> None:
    here("delete", "pod", here.broker()["metadata"]["name"], "--force", "--grace-period=0")
    here.roll_out()


def change_settings(here: Namespace) -> None:
    here.apply(*with_claim_and_settings(variant("node-port"), 6))
    here.restart()


def kill_the_node(here: Namespace) -> None:
    here.ask("odradek node kill 1; odradek node start 1")


STEPS: list[Callable[[Namespace], object]] = [
    Namespace.restart,
    kill,
    delete_by_force,
    change_settings,
    kill_the_node,
    kill,
    Namespace.restart,
    delete_by_force,
]


def test_no_record_is_lost_or_duplicated_through_rollouts_and_kills() -> None:
    with namespace(RESTRICTED) as here, volume(here, "kafka-data"):
        here.start_client()
        here.apply(*with_claim_and_settings(variant("node-port"), 4))
        here.roll_out()
        command = [*RUN, sys.executable, "-m", "tests.kubernetes.transactions"]
        arguments = [f"{node_address()}:30094", str(TRANSACTIONS)]
        line: dict[str, Any] = {}
        steps = iter(enumerate(STEPS, 1))
        at, step = next(steps)
        with subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as job:
            try:
                assert job.stdout is not None
                for text in job.stdout:
                    line = json.loads(text)
                    if (
                        line.get("committed", 0) * (len(STEPS) + 1) >= at * TRANSACTIONS
                        and "moved" not in line
                    ):
                        step(here)
                        at, step = next(steps, (len(STEPS) + 1, step))
            finally:
                job.kill()
        print(line)
        assert at == len(STEPS) + 1, line
        assert (line["lost"], line["duplicated"], line["moved"]) == ([], [], TRANSACTIONS), line
        here.ask("odradek topic create audit")
        assert "6" in here.ask("odradek topic list | grep audit").split()
