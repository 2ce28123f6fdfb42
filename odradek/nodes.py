"""The nodes of a running broker, by its control port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.control_client import ControlClient
from odradek.errors import NotFound


class Nodes(Mapping[int, "Node"]):
    """The nodes of the cluster by their ids, stopped and killed ones included."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client

    def __getitem__(self, node_id: int) -> Node:
        return Node(self.client, node_id)

    def __iter__(self) -> Iterator[int]:
        return iter([each["node_id"] for each in self.show()])

    def __len__(self) -> int:
        return len(self.show())

    def show(self) -> list[dict[str, Any]]:
        """All nodes as the control port returns them."""
        return list(self.client.get("/v1/cluster")["nodes"])


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster."""

    client: ControlClient = field(repr=False)
    node_id: int

    @property
    def state(self) -> str:
        """starting, running, stopping, stopped or killed"""
        return str(self.show()["state"])

    @property
    def leads(self) -> dict[str, list[int]]:
        """The partitions that it leads, by topic."""
        return dict(self.show()["leads"])

    def kill(self) -> None:
        """Kill the node: it resets its connections and writes nothing more; other nodes take over."""
        self.client.post(f"/v1/nodes/{self.node_id}/kill")

    def stop(self) -> None:
        """Stop the node by a controlled shutdown: other nodes take over its leaderships first."""
        self.client.post(f"/v1/nodes/{self.node_id}/stop")

    def start(self) -> None:
        """The node recovers its logs, and follows the current leaders."""
        self.client.post(f"/v1/nodes/{self.node_id}/start")

    def show(self) -> dict[str, Any]:
        for each in self.client.get("/v1/cluster")["nodes"]:
            if each["node_id"] == self.node_id:
                return dict(each)
        raise NotFound(404, f"there is no node {self.node_id}")
