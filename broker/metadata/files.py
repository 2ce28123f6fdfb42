"""The small files of a log directory: ``meta.properties`` with its identity, ``quorum-state`` with the node's last vote.

``meta.properties`` is a Java properties file of version 1 (`MetaProperties.java`); ``quorum-state`` has the format of
`FileQuorumStateStore`. Kafka can open a directory of this broker, and this broker can open Kafka's.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Final

from protocol.slotted import slotted
from protocol.uuids import parse_uuid, uuid_text
from storage.checkpoints import format_rows
from storage.checkpoints import write_partition_metadata as _write_partition_metadata
from storage.files import make_directory, replace_file

META_PROPERTIES: Final = "meta.properties"
FORMER_CLUSTER_ID: Final = "odradek.former.cluster.id"
LOG_DIRECTORY: Final = "__cluster_metadata-0"
QUORUM_STATE: Final = "quorum-state"
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
"""Kafka's fixed id of the metadata topic."""


class WrongDirectory(Exception):
    """This node must not open the log directory. The message tells the user why."""


@slotted(frozen=True)
class DirectoryIdentity:
    """The identity of a log directory: the contents of ``meta.properties``."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID
    former_cluster_id: str = ""
    """The cluster id before the last reset that replaced it. The broker may have died before it wrote all directories."""


def new_id(random: Random) -> uuid.UUID:
    """Create a random uuid. As in Kafka its text does not begin with a dash, which would look like a command-line option."""
    while True:
        candidate = uuid.UUID(int=random.getrandbits(128), version=4)
        if candidate.bytes[0] >> 2 != 0b111110:
            return candidate


def identify(
    directory: Path, node_id: int, *, cluster_id: str | None, new_id: Callable[[], uuid.UUID], now_ms: int
) -> DirectoryIdentity:
    """Read the identity of a directory; format the directory if it has none."""
    path = directory / META_PROPERTIES
    if not path.exists():
        make_directory(directory)
        logs = partition_folders(directory)
        if logs:
            raise WrongDirectory(
                f"No `{META_PROPERTIES}` found in {directory}, which contains logs ({logs[0]} and {len(logs) - 1} more): "
                "this file names the cluster and the node of the logs; restore it from a copy, or from another node's "
                "directory with this node's node.id and without directory.id"
            )
        identity = DirectoryIdentity(cluster_id or uuid_text(new_id()), node_id, new_id())
        write_identity(directory, identity, now_ms)
        return identity
    return _read_identity(path, node_id, new_id, now_ms)


def partition_folders(directory: Path) -> list[str]:
    """Names of the directories that contain a partition's log, including that of the cluster metadata."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if "-" in entry.name and entry.is_dir()]
    return sorted(
        name for name in names if name.rpartition("-")[2].isdecimal() and _holds_log(directory / name)
    )


def _holds_log(folder: Path) -> bool:
    return any(path.suffix in (".log", ".checkpoint", ".metadata") for path in folder.iterdir())


def _properties_of(path: Path) -> dict[str, str]:
    try:
        properties = parse_properties(path.read_text("utf-8").replace("\0", ""))
    except (OSError, UnicodeDecodeError) as error:
        raise WrongDirectory(f"{path} cannot be read: {error}") from error
    if not properties:
        raise WrongDirectory(
            f"{path} is empty: it must have version=1, the cluster.id and the node.id; restore it from a copy"
        )
    return properties


def _read_identity(
    path: Path, node_id: int, new_id: Callable[[], uuid.UUID], now_ms: int
) -> DirectoryIdentity:
    properties = _properties_of(path)
    version = properties.get("version", "0")
    if version != "1":
        raise WrongDirectory(
            f"{path} has version {version}: only version 1 (KRaft) can be opened, "
            "a directory of the ZooKeeper era must be migrated by Kafka 3.9 first"
        )
    for name in ("cluster.id", "node.id"):
        if name not in properties:
            raise WrongDirectory(f"{path} does not name the {name}: this is not a formatted log directory")
    if properties["node.id"] != str(node_id):
        raise WrongDirectory(
            f"{path.parent} belongs to node {properties['node.id']}, not to node {node_id}: "
            "use another directory or another node.id"
        )
    written = properties.get("directory.id")
    if written:
        try:
            return DirectoryIdentity(
                properties["cluster.id"], node_id, parse_uuid(written), properties.get(FORMER_CLUSTER_ID, "")
            )
        except ValueError as error:
            raise WrongDirectory(
                f"{path} has an invalid directory.id: {written!r}; without this line, a new id is created"
            ) from error
    # A directory that was formatted before Kafka 3.7 gets an id now, as in Kafka.
    identity = DirectoryIdentity(properties["cluster.id"], node_id, new_id())
    write_identity(path.parent, identity, now_ms)
    return identity


def write_identity(directory: Path, identity: DirectoryIdentity, now_ms: int) -> None:
    """Replace ``meta.properties``, and sync the file."""
    replace_file(directory / META_PROPERTIES, _properties_text(identity, now_ms))


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java properties as far as Kafka uses them in its own files: no escapes except of ``:`` and ``=``.

    >>> parse_properties("#\\nversion=1\\nnode.id = 1\\n")
    {'version': '1', 'node.id': '1'}
    """
    properties = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, _, value = stripped.partition("=")
        properties[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return properties


def _properties_text(identity: DirectoryIdentity, now_ms: int) -> bytes:
    moment = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    lines = (
        "#",
        f"#{moment}",
        f"node.id={identity.node_id}",
        f"directory.id={uuid_text(identity.directory_id)}",
        "version=1",
        f"cluster.id={identity.cluster_id}",
        *([f"{FORMER_CLUSTER_ID}={identity.former_cluster_id}"] if identity.former_cluster_id else ()),
    )
    return "".join(f"{line}\n" for line in lines).encode()


def write_partition_metadata(directory: Path) -> None:
    if not (directory / "partition.metadata").exists():
        _write_partition_metadata(directory, METADATA_TOPIC_ID)


def write_leader_epochs(directory: Path, epochs: Iterable[tuple[int, int]]) -> None:
    replace_file(directory / "leader-epoch-checkpoint", format_rows(epochs))


def voted_epoch(directory: Path) -> int:
    """Leader epoch in the file ``quorum-state``; 0 if the file does not exist."""
    path = directory / QUORUM_STATE
    if not path.exists():
        return 0
    try:
        return int(json.loads(path.read_text())["leaderEpoch"])
    except (ValueError, KeyError, TypeError) as error:
        raise WrongDirectory(f"{path} cannot be read: {error}") from None


def write_quorum_state(directory: Path, node_id: int, epoch: int) -> None:
    """Write the file ``quorum-state``: this node, the only voter of the quorum, leads in ``epoch``."""
    state = {
        "clusterId": "",
        "leaderId": node_id,
        "leaderEpoch": epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": node_id}],
        "data_version": 0,
    }
    replace_file(directory / QUORUM_STATE, json.dumps(state, separators=(",", ":")).encode())
