"""The nodes of a running broker and their partitions, through the control port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from odradek.asynchronous import asynchronous
from odradek.control_client import ControlClient, in_path
from odradek.errors import HIDDEN_IN_TRACEBACKS, NotFound
from odradek.words import Damage, NodeState

__tracebackhide__ = HIDDEN_IN_TRACEBACKS


class Nodes(Mapping[int, "Node"]):
    """The nodes of the cluster by id, including stopped and killed ones."""

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
    def state(self) -> NodeState:
        """``starting``, ``running``, ``paused``, ``stopping``, ``stopped`` or ``killed``."""
        state: NodeState = self.show()["state"]
        return state

    @property
    def leads(self) -> dict[str, list[int]]:
        """The partitions that this node leads, by topic."""
        return dict(self.show()["leads"])

    def kill(self) -> None:
        """Kill the node: its connections are reset, it writes nothing more, and other nodes take over."""
        self.client.post(f"/v1/nodes/{self.node_id}/kill")

    def stop(self) -> None:
        """Stop the node with a controlled shutdown: other nodes take over its leaderships first."""
        self.client.post(f"/v1/nodes/{self.node_id}/stop")

    def start(self) -> None:
        """Start the node again: it recovers its logs and follows the current leaders."""
        self.client.post(f"/v1/nodes/{self.node_id}/start")

    def pause(self) -> None:
        """Pause the node as SIGSTOP does: it reads and sends nothing, and its connections stay open."""
        self.client.post(f"/v1/nodes/{self.node_id}/pause")

    def resume(self) -> None:
        """Resume the paused node: it handles the requests that clients sent in the meantime."""
        self.client.post(f"/v1/nodes/{self.node_id}/resume")

    def lose_power(self) -> None:
        """Kill the node and truncate its logs to what was last flushed to disk (fsync), as a power failure would."""
        self.client.post(f"/v1/nodes/{self.node_id}/lose-power")

    def damage(self, topic: str, partition: int, *, offset: int, how: Damage = "flip") -> dict[str, Any]:
        """Damage the batch that contains this offset in the node's files. The node must not be running.

        ``flip`` changes one byte of the batch, ``tear`` truncates the file in the middle of the batch. Returns ``file``,
        ``position`` and ``bytes`` of the batch, its ``first_offset`` and ``last_offset``.
        """
        body = {"topic": topic, "partition": partition, "offset": offset, "how": how}
        return dict(self.client.post(f"/v1/nodes/{self.node_id}/damage", body))

    def skew(self, by: str | int | timedelta) -> None:
        """Set the node's clock ahead of the cluster's: ``"5m"``, milliseconds, or a timedelta. ``"-30s"`` sets it behind.

        0 removes the skew, and so does a reset of the broker. The skew persists when the node is killed and started again.
        """
        if isinstance(by, timedelta):
            by = by // timedelta(milliseconds=1)
        body = {"by": by} if isinstance(by, str) else {"by_ms": by}
        self.client.post(f"/v1/nodes/{self.node_id}/skew", body)

    @property
    def skew_ms(self) -> int:
        """How far the node's clock is ahead of the cluster's, in ms; negative if it is behind."""
        return int(self.show()["skew_ms"])

    def misroute(self, to: int) -> None:
        """Let node ``to`` serve the connections that clients open to this node from now on. Open connections stay.

        To end that, call this method with the node's own id. A reset of the broker ends it, too.
        """
        self.client.post(f"/v1/nodes/{self.node_id}/misroute", {"to": to})

    @property
    def misrouted_to(self) -> int | None:
        """The node that serves new connections to this node; None: the node itself."""
        node_id: int | None = self.show()["misrouted_to"]
        return node_id

    def show(self) -> dict[str, Any]:
        for each in self.client.get("/v1/cluster")["nodes"]:
            if each["node_id"] == self.node_id:
                return dict(each)
        raise NotFound(404, f"there is no node {self.node_id}")

    kill_async = asynchronous(kill)
    stop_async = asynchronous(stop)
    start_async = asynchronous(start)


# -- partitions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a partition."""

    node: int
    state: str
    """``leading``, ``following``, ``offline`` (its files cannot be used), or the state of a node that does not run."""
    in_sync: bool
    log_start: int | None
    """Log start offset. This and ``log_end`` are None if the node does not run."""
    log_end: int | None
    leader_epoch: int | None
    """The leader epoch of the last batch in the replica's log; -1 if the log is empty."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition with its replicas."""

    topic: str
    partition: int
    leader: int | None
    """Node id of the leader; None if no replica in the ISR runs."""
    leader_epoch: int
    isr: tuple[int, ...]
    high_watermark: int | None
    """The leader's high watermark. ``high_watermark`` and ``last_stable_offset`` are None without a leader."""
    last_stable_offset: int | None
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Consecutive records of one producer that replicas had and the leader no longer has (docs/faults.md)."""

    time_ms: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    """Producer id of the records; -1 for a producer without idempotence."""
    producer_epoch: int
    acknowledged: str
    """How the leader had acknowledged the records: ``committed``, ``perhaps committed`` or ``acks=1``."""
    written_epoch: int
    leader: int
    leader_epoch: int
    nodes: tuple[int, ...]
    """Ids of the nodes whose replicas had the records."""


def losses(client: ControlClient) -> list[Loss]:
    found = client.get("/v1/losses")["losses"]
    return [Loss(**{**each, "nodes": tuple(each["nodes"])}) for each in found]


def partitions(client: ControlClient, topic: str | None, *, internal: bool) -> list[Partition]:
    query = {} if topic is None else {"topic": topic}
    found = client.get("/v1/partitions", {**query, "internal": internal})["partitions"]
    return [_partition(each) for each in found]


def move_leader(client: ControlClient, topic: str, partition: int, to: int) -> Partition:
    path = f"/v1/partitions/{in_path(topic)}/{partition}/move"
    return _partition(client.post(path, {"to": to}))


def move_coordinator(
    client: ControlClient, transactional_id: str | None, group: str | None, to: int
) -> Partition:
    said = {"transactional_id": transactional_id, "group": group}
    named = {name: value for name, value in said.items() if value is not None}
    return _partition(client.post("/v1/coordinators/move", {**named, "to": to}))


def _partition(view: Mapping[str, Any]) -> Partition:
    replicas = tuple(Replica(**each) for each in view["replicas"])
    return Partition(**{**view, "isr": tuple(view["isr"]), "replicas": replicas})
