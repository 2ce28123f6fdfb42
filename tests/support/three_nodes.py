"""A broker of three nodes, for tests of clients while nodes fail and come back.

    with ThreeNodes(tmp_path, topics=["orders:1"]) as cluster:
        leader = cluster.leader("orders")
        cluster.nodes[leader].kill()
        cluster.await_leader("orders", other_than=leader)
        cluster.start_all()
        cluster.await_in_sync("orders")

`ThreeNodes` is an `odradek.Broker`, with the broker's faults, nodes, clock and trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from odradek import Broker
from tests.support.clients import PATIENCE, batches_of, eventually
from tests.support.content import Asked
from tests.support.deadlines import HANG_S

NODES = (1, 2, 3)
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    # Preferred leaders are elected only when a test asks for it.
    "auto.leader.rebalance.enable": "false",
}


class ThreeNodes(Broker):
    """A broker of three nodes. Every topic has a replica on each node, with min.insync.replicas=2."""

    def __init__(
        self,
        directory: Path,
        topics: Iterable[str] = (),
        settings: Mapping[str, object] | None = None,
        arguments: Iterable[str] = (),
    ) -> None:
        self.data_dir = directory / "data"
        super().__init__(
            3, topics, {**SETTINGS, **(settings or {})}, data_dir=self.data_dir, arguments=arguments
        )

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    # ---- leaders, replicas and coordinators

    def port(self, node: int) -> int:
        return self.process.port + node - 1

    def ask(self, node: int) -> Asked:
        """A connection to one node for raw requests."""
        return Asked("127.0.0.1", self.port(node))

    def _partition(self, topic: str, partition: int) -> Any:
        found = self._admin.list_topics(topic, timeout=HANG_S).topics[topic]
        return found.partitions[partition]

    @property
    def _admin(self) -> AdminClient:
        # A new client for each call: an old one may have outdated metadata about nodes that have ended.
        return AdminClient({**PATIENCE, "bootstrap.servers": self.bootstrap_servers})

    def leader(self, topic: str, partition: int = 0) -> int:
        """Id of the partition's leader, -1 if there is none."""
        return int(self._partition(topic, partition).leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._partition(topic, partition).isrs)

    def preferred(self, topic: str, partition: int = 0) -> int:
        """Id of the preferred leader."""
        return int(self._partition(topic, partition).replicas[0])

    def coordinator(self, key: str, kind: int) -> int:
        """Id of the node that coordinates a group or a transactional id."""
        with self.ask(next(iter(self.running()))) as ask:
            return int(ask("find_coordinator", 3, key=key, key_type=kind)["node_id"])

    def running(self) -> Iterator[int]:
        return (each["node_id"] for each in self.nodes.show() if each["state"] == "running")

    # ---- actions and waiting

    def await_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """Wait for a leader and return its id."""

        def new_leader() -> int:
            leader = self.leader(topic, partition)
            return leader if leader not in (-1, other_than) else 0

        return eventually(new_leader, f"{topic}-{partition} has a leader other than {other_than}")

    def await_in_sync(self, topic: str, partition: int = 0, nodes: Iterable[int] = NODES) -> None:
        wanted = set(nodes)
        eventually(lambda: self.in_sync(topic, partition) == wanted, f"{topic}-{partition}: {wanted} in sync")

    def start_all(self) -> None:
        """Start the nodes that are down."""
        for node in set(NODES) - set(self.running()):
            self.nodes[node].start()

    def lead(self, node: int, topic: str, partition: int = 0) -> None:
        """Make a node the leader of a partition: make it the first replica, and elect the preferred leader."""
        others = [each for each in NODES if each != node]
        assigned = {"partition_index": partition, "replicas": [node, *others]}
        with self.ask(next(self.running())) as ask:
            ask(
                "alter_partition_reassignments",
                0,
                timeout=10_000,
                topics=[{"name": topic, "partitions": [assigned]}],
            )
            elected = {"topic": topic, "partitions": [partition]}
            ask.any("elect_leaders", 2, election_type=0, topic_partitions=[elected], timeout=10_000)
        eventually(lambda: self.leader(topic, partition) == node, f"{topic}-{partition} is led by {node}")

    def heard(self, error: str, **filters: Any) -> int:
        """Number of responses with this error, from the trace. The filters are those of ``trace.entries``."""
        return sum(error in _errors(each["answer"]) for each in self.trace.entries(limit=10_000, **filters))

    # ---- files

    def batches(self, node: int, topic: str, partition: int = 0) -> list[Any]:
        return batches_of(self.data_dir / f"node-{node}", topic, partition)


def _errors(answer: Any) -> Iterator[str]:
    """Every error name in a decoded response."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error" or name.endswith("_error"):
                yield str(value)
            else:
                yield from _errors(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _errors(each)
