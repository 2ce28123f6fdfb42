"""The log directories of a cluster's nodes: the data directory for a single node, subdirectories of it for several."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from broker.metadata.files import (
    META_PROPERTIES,
    WrongDirectory,
    identify,
    new_id,
    partition_folders,
    write_identity,
)
from storage.directory import DirectoryInUse
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.cluster.runtime import NodeRuntime
    from broker.metadata import ClusterMetadata
    from broker.metadata.values import BrokerRegistration


class WrongNodes(Exception):
    """The data directory belongs to a cluster with another number of nodes. The text is an error message for the user."""


def node_directories(root: Path, node_ids: Sequence[int]) -> dict[int, Path]:
    """The log directory of each node. Raises ``WrongNodes`` if the data directory has logs of another number of nodes."""
    made = sorted(path.name for path in root.glob("node-*") if path.is_dir() and _is_in_use(path))
    if len(node_ids) == 1:
        if made:
            raise WrongNodes(
                f"{root} holds a cluster of {len(made)} nodes: start it with --nodes {len(made)}"
            )
        return {node_ids[0]: root}
    if root.is_dir() and _is_in_use(root):
        raise WrongNodes(f"{root} is the directory of a single node: start it without --nodes")
    wanted = sorted(f"node-{node_id}" for node_id in node_ids)
    if made and made != wanted:
        raise WrongNodes(
            f"{root} holds a cluster of {len(made)} nodes ({', '.join(made)}), not of {len(node_ids)} "
            f"({', '.join(wanted)}): start it with --nodes {len(made)}"
        )
    return {node_id: root / f"node-{node_id}" for node_id in node_ids}


def start_refusal(error: Exception) -> str:
    """Error message for a failed start. For a file without write permission, the message also says what to do."""
    if isinstance(error, DirectoryInUse) and _is_in_a_pod():
        return (
            f"{error}. A Deployment with a PersistentVolumeClaim needs `strategy: Recreate`: with the default "
            "strategy, the new pod starts while the old pod still runs"
        )
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if not isinstance(cause, OSError) or not isinstance(cause.filename, str):
        return str(error)
    path = Path(cause.filename)
    if cause.errno == errno.EROFS:
        return f"{path}: the file system is read-only. {_volume(path)}"
    if not isinstance(cause, PermissionError):
        return str(error)
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    owner, ours = there.lstat(), f"{os.geteuid()}:{os.getegid()}"
    if owner.st_uid == os.geteuid():
        return (
            f"{path}: permission denied, although {there} belongs to the broker's user: "
            f"its mode is {owner.st_mode & 0o7777:o}"
        )
    whose = f"{there} belongs to user {owner.st_uid}:{owner.st_gid}, and the broker runs as {ours}"
    folder = path.parent if there == path and not path.is_dir() else path
    cure = _volume(path) if _is_the_system_s(there) else _rights(owner, folder if folder.is_dir() else there)
    return f"{path}: permission denied; {whose}. {cure}"


def _is_the_system_s(folder: Path) -> bool:
    """Whether the directory belongs to the system, such as `/` or `/var/lib`, so that its owner should not be changed."""
    return len(folder.parts) <= 3 and not (len(folder.parts) > 1 and os.path.ismount(folder))


def _rights(owner: os.stat_result, folder: Path) -> str:
    """Advice for an error message about a directory that does not belong to the user as which the broker runs."""
    if _is_in_a_pod():
        group = owner.st_gid or os.getegid() or os.geteuid()
        return (
            f"Give the pod securityContext.fsGroup: {group}, without fsGroupChangePolicy: OnRootMismatch, or "
            f"runAsUser: {owner.st_uid}"
        )
    ours, theirs = f"{os.geteuid()}:{os.getegid()}", f"{owner.st_uid}:{owner.st_gid}"
    return (
        f"Run the broker as that user (docker run --user {theirs}), or give it the directory "
        f"(chown -R {ours} {folder})"
    )


def _volume(path: Path) -> str:
    folder = path.parent if path.name.startswith(".") or path.suffix else path
    if _is_in_a_pod():
        return f"Give the pod a volume at {folder}: an emptyDir is enough where records may go with the pod"
    return f"Mount a directory of the broker's user there (docker run -v), or a tmpfs (docker run --tmpfs {folder})"


def _is_in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _is_in_use(directory: Path) -> bool:
    """Whether the directory has data of a node, even if its ``meta.properties`` is lost."""
    return (directory / META_PROPERTIES).exists() or bool(partition_folders(directory))


def introduce(
    metadata: ClusterMetadata, runtime: NodeRuntime, random: Random, now_ms: int
) -> BrokerRegistration:
    """Return the registration of a node that starts.

    Raises `WrongDirectory` if the node's directory belongs to another node or cluster.
    """
    identity = identify(
        runtime.data_dir,
        runtime.node_id,
        cluster_id=metadata.cluster_id,
        new_id=lambda: new_id(random),
        now_ms=now_ms,
    )
    if identity.cluster_id == metadata.identity.former_cluster_id:
        identity = replace(identity, cluster_id=metadata.cluster_id)
        write_identity(runtime.data_dir, identity, now_ms)
    if identity.cluster_id != metadata.cluster_id:
        raise WrongDirectory(
            f"{runtime.data_dir} belongs to cluster {identity.cluster_id}, "
            f"not to {metadata.cluster_id} as the first node's directory does"
        )
    return metadata.new_registration(
        runtime.node_id,
        runtime.endpoints,
        runtime.config.broker_rack,
        identity.directory_id,
        runtime.directory.previous_epoch,
    )
