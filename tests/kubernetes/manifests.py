"""Build the manifests of examples/kubernetes like `kubectl kustomize`, for tests without kubectl.

It supports only the features that these files use: `resources`, `patches` from files, and `secretGenerator` with literals.
The soak tests compare the result with kubectl's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
VARIANTS: Final = ("base", "claim", "tls", "sasl", "three-nodes", "node-port")
ONE_FILE: Final = EXAMPLES / "base" / "odradek.yaml"
SIDECAR: Final = EXAMPLES / "sidecar" / "job.yaml"
POD_KINDS: Final = ("Deployment", "StatefulSet", "Job")


def read(path: Path) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each is not None]


def build(folder: Path) -> list[Manifest]:
    """The manifests of a directory with a kustomization.yaml."""
    (wanted,) = read(folder / "kustomization.yaml")
    found: list[Manifest] = []
    for each in wanted["resources"]:
        path = folder / each
        found += build(path.resolve()) if path.is_dir() else read(path)
    for patch in wanted.get("patches", ()):
        for change in read(folder / patch["path"]):
            (at,) = (at for at, each in enumerate(found) if name_of(each) == name_of(change))
            found[at] = merged(found[at], change)
    for secret in wanted.get("secretGenerator", ()):
        values = dict(literal.split("=", 1) for literal in secret["literals"])
        found.append({"kind": "Secret", "metadata": {"name": secret["name"]}, "stringData": values})
    return found


def name_of(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def merged(old: Any, new: Any) -> Any:
    """Strategic merge: None removes a key, lists of named entries are merged by name, other lists are replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        kept = {key: value for key, value in old.items() if key not in new}
        return kept | {key: merged(old.get(key), value) for key, value in new.items() if value is not None}
    if isinstance(old, list) and isinstance(new, list) and all("name" in each for each in new):
        # Kustomize puts the variables of a patch in front of the others.
        kept = {each["name"]: each for each in old}
        names = [each["name"] for each in new]
        return [merged(kept.get(each["name"], {}), each) for each in new] + [
            each for each in old if each["name"] not in names
        ]
    return new


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (each for each in manifests if name_of(each) == (kind, name))
    return found


def pod_specs(manifests: list[Manifest]) -> Iterator[Manifest]:
    for each in manifests:
        if each["kind"] in POD_KINDS:
            yield each["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def broker_of(manifests: list[Manifest]) -> Manifest:
    (found,) = (each for pod in pod_specs(manifests) for each in containers(pod) if each["name"] == "broker")
    return found


def environment(container: Manifest, secrets: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """The container's variables in a namespace named shop. The keys of ``secrets`` are (Secret, key)."""
    found: dict[str, str] = {}
    for each in container.get("env", ()):
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.namespace"
            value = "shop"
        elif source:
            value = secrets[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        else:
            value = each["value"]
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
        found[each["name"]] = value
    return found


def secrets_of(manifests: list[Manifest]) -> dict[tuple[str, str], str]:
    return {
        (each["metadata"]["name"], key): value
        for each in manifests
        if each["kind"] == "Secret"
        for key, value in each["stringData"].items()
    }
