"""Access to a real Kubernetes cluster, for tests that apply manifests.

| variable | |
| --- | --- |
| `ODRADEK_KUBECTL` | the command `kubectl`, with leading words if needed; without the variable the tests are skipped |
| `ODRADEK_KUBE_IMAGE` | the image, which the cluster has or can pull; `odradek:local` by default |
| `ODRADEK_KUBE_RUN` | a prefix for commands that connect to a NodePort, if this machine cannot reach the nodes directly |

KUBECONFIG selects the cluster. Each test creates its own namespace and removes it afterwards. If the cluster has no default
storage class, a claim gets a directory of the first node.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kubernetes.manifests import Manifest
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S, TEST_S

KUBECTL: Final = shlex.split(os.environ.get("ODRADEK_KUBECTL", ""))
IMAGE: Final = os.environ.get("ODRADEK_KUBE_IMAGE", "odradek:local")
RUN: Final = shlex.split(os.environ.get("ODRADEK_KUBE_RUN", ""))
IN_EXAMPLES: Final = "odradek:local"
RESTRICTED: Final = "restricted"
PRIVILEGED: Final = "privileged"
OPENSHIFT: Final = {"runAsUser": 1000650000, "runAsGroup": 0, "fsGroup": 1000650000}
"""The security context that OpenShift gives the pods of a namespace: any uid, group 0, and a group for volumes."""
FOLDERS: Final = "/var/tmp/odradek-tests"
_SAFE: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


class KubectlFailed(AssertionError):
    """kubectl failed. The message contains the command, its exit code and its output."""


def kubectl(*words: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(
        [*KUBECTL, *words], input=stdin, capture_output=True, text=True, timeout=TEST_S, check=False
    )
    if check and done.returncode:
        raise KubectlFailed(
            f"kubectl {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def with_image(manifests: Sequence[Manifest]) -> str:
    return yaml.safe_dump_all(manifests).replace(f"image: {IN_EXAMPLES}\n", f"image: {IMAGE}\n")


class Namespace:
    """One namespace. The pod ``client`` in it reaches the broker at ``kafka:9092``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *words: str, stdin: str = "", check: bool = True) -> str:
        return kubectl("-n", self.name, *words, stdin=stdin, check=check)

    # ---- Objects

    def apply(self, *manifests: Manifest) -> None:
        self("apply", "-f", "-", stdin=with_image(manifests))

    def apply_file(self, path: Path) -> None:
        self.apply(*(each for each in yaml.safe_load_all(path.read_text("utf-8")) if each is not None))

    def get(self, kind: str, name: str) -> Manifest:
        found: Manifest = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def pods(self, label: str = "") -> list[Manifest]:
        found: list[Manifest] = json.loads(self("get", "pods", "-l", label, "-o", "json"))["items"]
        return found

    def broker(self) -> Manifest:
        """The running pod of the examples' Deployment. There must be one, apart from pods that are terminating."""
        running = [
            each
            for each in self.pods("app.kubernetes.io/name=odradek")
            if "deletionTimestamp" not in each["metadata"]
        ]
        (found,) = running
        return found

    def roll_out(self, what: str = "deployment/odradek") -> None:
        self("rollout", "status", what, f"--timeout={HANG_S:.0f}s")

    def restart(self, what: str = "deployment/odradek") -> None:
        self("rollout", "restart", what)
        self.roll_out(what)

    def wait(self, what: str, condition: str) -> None:
        self("wait", what, f"--for={condition}", f"--timeout={HANG_S:.0f}s")

    def await_end(self, pod: str) -> Manifest:
        """Wait until the only container of a pod has terminated, and return its state."""

        def ended() -> Manifest | None:
            statuses = self.get("pod", pod)["status"].get("containerStatuses", [{}])
            found: Manifest | None = statuses[0].get("state", {}).get("terminated")
            return found

        state = eventually(ended, f"{pod} has ended", within_s=HANG_S)
        assert state is not None
        return state

    # ---- Logs

    def logs(self, pod: str, *words: str) -> list[dict[str, Any]]:
        """Lines of a broker's JSON log."""
        text = self("logs", pod, "-c", "broker", *words, check=False)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def warnings(self, pod: str, *words: str) -> list[str]:
        """Warnings and errors in a broker's log, without those about a late event loop, which a busy machine causes."""
        return [
            f"{line['event']}: {line.get('reason', '')}"
            for line in self.logs(pod, *words)
            if line["level"] in ("warning", "error") and "event loop is late" not in line["event"]
        ]

    def show(self) -> None:
        """Print pods, events and logs for the report of a failed test."""
        print(self("get", "pods,events", "-o", "wide", check=False))
        for pod in self.pods():
            name = pod["metadata"]["name"]
            for more in ("--previous=false", "--previous=true"):
                print(name, more, self("logs", name, "--all-containers", "--tail=20", more, check=False))

    # ---- Commands in the client's pod

    def start_client(self) -> None:
        """Start a pod with the commands of odradek in the namespace. The pod keeps running when the broker's pod ends."""
        container = {
            "name": "client",
            "image": IMAGE,
            "command": ["sleep", "infinity"],
            "securityContext": _SAFE,
        }
        pod = {
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": pod})
        self.wait("pod/client", "condition=Ready")

    def ask(self, command: str, *, stdin: str = "", check: bool = True) -> str:
        """Run a sh command in the client's pod, where variables name the Services of the broker and its control port."""
        given = (
            "export KAFKA_BOOTSTRAP_SERVERS=kafka:9092 ODRADEK_CONTROL=http://kafka-control:18092 "
            "ODRADEK_CONTROL_TOKEN=only-for-tests; "
        )
        return self("exec", "-i", "client", "--", "sh", "-euc", given + command, stdin=stdin, check=check)

    def values(self, topic: str, options: str = "") -> list[str]:
        return sorted(self.ask(f"odradek consume {topic} --format '%v\\n' {options}").split())


@contextmanager
def namespace(security: str = RESTRICTED) -> Iterator[Namespace]:
    """Create a namespace that enforces this Pod Security level, and remove it at the end."""
    found = Namespace(f"odradek-{uuid.uuid4().hex[:8]}")
    labels = {"pod-security.kubernetes.io/enforce": security}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.name, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    try:
        yield found
    except BaseException:
        found.show()
        raise
    finally:
        found("delete", "pods", "--all", "--grace-period=1", "--wait=false", check=False)
        kubectl("delete", "namespace", found.name, f"--timeout={HANG_S:.0f}s", check=False)


@contextmanager
def volume(of: Namespace, claim: str) -> Iterator[None]:
    """Provide a volume for a claim of this name: a new directory of the first node, if there is no default storage class."""
    classes = json.loads(kubectl("get", "storageclass", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    if any(each["metadata"].get("annotations", {}).get(default) == "true" for each in classes):
        yield
        return
    folder, name = f"{FOLDERS}/{of.name}-{claim}", f"{of.name}-{claim}"
    on_node(f"mkdir -p {folder}")
    (node, *_) = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    label = "kubernetes.io/hostname"
    here = {"key": label, "operator": "In", "values": [node["metadata"]["labels"][label]]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": of.name, "name": claim},
        "local": {"path": folder},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    try:
        yield
    finally:
        # Delete Deployments before pods: a Deployment would create its pods again.
        for kind in ("deployment", "pod"):
            of("delete", kind, "--all", "--cascade=foreground", f"--timeout={HANG_S:.0f}s", check=False)
        kubectl("delete", "persistentvolume", name, "--wait=false", check=False)
        on_node(f"rm -rf {folder}")


def on_node(command: str) -> None:
    """Run a sh command as root in the tests' directory of a node, which a pod mounts."""
    with namespace(PRIVILEGED) as here:
        spec = {
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 0},
            "containers": [
                {
                    "name": "sh",
                    "image": IMAGE,
                    "command": ["sh", "-euc", command],
                    "volumeMounts": [{"name": "folder", "mountPath": FOLDERS}],
                }
            ],
            "volumes": [{"name": "folder", "hostPath": {"path": FOLDERS, "type": "DirectoryOrCreate"}}],
        }
        here.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sh"}, "spec": spec})
        assert here.await_end("sh")["exitCode"] == 0


def as_user(manifests: Sequence[Manifest], security: Manifest) -> list[Manifest]:
    """The manifests with this security context added to the pods of their Deployments."""
    for each in manifests:
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"]["securityContext"] |= security
    return list(manifests)


def probes(of: Namespace, pod: str) -> dict[tuple[str, str], int]:
    """Number of probes of a pod that the kubelet has made, by (kind, result)."""
    (node, *_) = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    text = kubectl("get", "--raw", f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/probes")
    found: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        if (
            line.startswith("prober_probe_total{")
            and f'pod="{pod}"' in line
            and f'namespace="{of.name}"' in line
        ):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            key = labels["probe_type"], labels["result"]
            found[key] = found.get(key, 0) + int(float(line.rpartition(" ")[2]))
    return found


def await_probes(of: Namespace, pod: str, kind: str, count: int = 3) -> None:
    """Wait until the kubelet has made ``count`` more probes of a kind, with any result."""

    def made() -> int:
        return sum(number for (found, _), number in probes(of, pod).items() if found == kind)

    before = made()
    eventually(lambda: made() >= before + count, f"{count} more {kind} probes", within_s=HANG_S)


def node_address() -> str:
    """The address of a node, at which NodePorts are reachable."""
    (node, *_) = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    (found,) = (each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    return str(found)
