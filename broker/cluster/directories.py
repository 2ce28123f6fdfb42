"""Where the nodes of a cluster keep their logs: one node in the directory that was named, several in folders below it."""

from __future__ import annotations

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


def _is_in_use(directory: Path) -> bool:
    """Whether a node has it; one whose ``meta.properties`` is lost still has its logs."""
    return (directory / META_PROPERTIES).exists() or bool(partition_folders(directory))
