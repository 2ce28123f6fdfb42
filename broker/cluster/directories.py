"""Where the nodes of a cluster keep their logs: one node in the directory that was named, several in folders below it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from broker.metadata.files import META_PROPERTIES, partition_folders


class WrongNodes(Exception):
    """The directory was made for another number of nodes; the text is for the person who started the broker."""


def node_directories(root: Path, node_ids: Sequence[int]) -> dict[int, Path]:
    """The log directory of each node. ``WrongNodes`` if there are logs of a cluster of another size."""
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
    """Why a start failed; of a file of another user, as a mounted volume often is, also what to do."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return str(error)
    path = Path(error.filename)
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    owner, ours = there.lstat(), f"{os.geteuid()}:{os.getegid()}"
    theirs = f"{owner.st_uid}:{owner.st_gid}"
    if owner.st_uid == os.geteuid():
        return f"{path}: permission denied, and {there} is the broker's own: its mode is {owner.st_mode & 0o7777:o}"
    return (
        f"{path}: permission denied; {there} belongs to user {theirs}, and the broker runs as {ours}. "
        f"Run the broker as that user (docker run --user {theirs}), or give it the directory "
        f"(chown -R {ours} {there})"
    )


def _is_in_use(directory: Path) -> bool:
    """Whether a node has it; one whose ``meta.properties`` is lost still has its logs."""
    return (directory / META_PROPERTIES).exists() or bool(partition_folders(directory))
