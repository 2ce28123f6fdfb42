"""The cluster of a run: its interface, and the implementation as our own broker, which is restored from a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Protocol

from odradek.assertions import read_decided
from odradek.broker import Broker
from odradek.certify.plans.faults import Reach
from odradek.certify.runs.seeding import configure, with_aborted, write
from odradek.certify.workload import Workload
from odradek.handle import Handle
from odradek.topics import Record
from odradek.words import Isolation

QUICK: Final = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}
"""Settings with which a member of a share group gets its partitions at once, and not with a heartbeat five seconds later."""


class Cluster(Protocol):
    """A cluster in which each run begins with the same input, without outputs and groups."""

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """The parts of the system in which faults can be injected: requests, the job's processes, the broker."""
        ...

    @property
    def moves_time(self) -> bool:
        """Whether the clock can be advanced. Otherwise a timeout takes real time."""
        ...

    @property
    def handle(self) -> Handle:
        """The cluster's faults, trace and transactions."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for the job."""
        ...

    @property
    def control_url(self) -> str: ...

    def start(self) -> None:
        """Start the cluster and write the input."""
        ...

    def close(self) -> None: ...

    def restore(self) -> None:
        """Return the cluster to the state after ``start``."""
        ...

    def revive(self) -> None:
        """Start all nodes that a fault has killed."""
        ...

    def groups(self) -> list[dict[str, Any]]:
        """The groups with their committed offsets, in the form of ``GET /v1/views/groups``."""
        ...

    def records(self, topics: Collection[str], isolation: Isolation = "read_committed") -> list[Record]: ...

    def open_transactions(self, topics: Collection[str]) -> list[str]:
        """A sentence for each open transaction that holds back consumers of these topics."""
        ...

    def reach(self, topics: Collection[str]) -> int:
        """Sum of the topics' high watermarks and last stable offsets, which grows with each record and each commit."""
        ...


class Ours:
    """One of our own brokers, which keeps running between runs."""

    reaches: Final = tuple(Reach)
    moves_time: Final = True

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.handle: Final = Broker(
            nodes=workload.nodes,
            topics=workload.topics,
            settings={**QUICK, **workload.settings},
        )

    @property
    def bootstrap_servers(self) -> str:
        return self.handle.bootstrap_servers

    @property
    def control_url(self) -> str:
        return self.handle.control_url

    def start(self) -> None:
        self.handle.start()
        write(self.bootstrap_servers, with_aborted(self._workload.seeds))
        configure(self.bootstrap_servers, self._workload.group_configs)
        self._snapshot = self.handle.snapshot()

    def close(self) -> None:
        self.handle.close()

    def restore(self) -> None:
        self._snapshot.restore()

    def revive(self) -> None:
        for node in self.handle.nodes.values():
            if node.state in ("killed", "stopped"):
                node.start()

    def groups(self) -> list[dict[str, Any]]:
        return groups_of(self.handle)

    def records(self, topics: Collection[str], isolation: Isolation = "read_committed") -> list[Record]:
        """The records of the topics, without a warning about hidden records: `open_transactions` reports the reason."""
        client = self.handle._control.client
        return [record for topic in topics for record in read_decided(client, topic, isolation)[0].records]

    def open_transactions(self, topics: Collection[str]) -> list[str]:
        return [sentence for topic in self._shown(topics) for sentence in _sentences(topic)]

    def reach(self, topics: Collection[str]) -> int:
        names = ("high_watermark", "last_stable_offset")
        found = [each for topic in self._shown(topics) for each in topic["partitions"]]
        return sum(max(0, each[name]) for each in found for name in names)

    def _shown(self, topics: Collection[str]) -> list[dict[str, Any]]:
        shown = self.handle._control.client.get("/v1/topics")["topics"]
        return [each for each in shown if each["name"] in topics]


def groups_of(handle: Handle) -> list[dict[str, Any]]:
    """The groups with their committed offsets, from the control port of a broker or a proxy."""
    found: list[dict[str, Any]] = handle._control.client.get("/v1/views/groups")["groups"]
    return found


def _sentences(topic: dict[str, Any]) -> Iterator[str]:
    for each in topic["partitions"]:
        for one in each["open_transactions"]:
            yield held_up(topic["name"], each["partition"], each["last_stable_offset"], one)


def held_up(topic: str, partition: int, last_stable: int, transaction: dict[str, Any]) -> str:
    """The sentence about a transaction that holds back consumers of a partition.

    >>> held_up("out", 0, 7, {"transactional_id": "copier", "producer_id": None})
    'out-0: consumers stop at offset 7: transactional_id copier'
    """
    said = ", ".join(f"{name} {value}" for name, value in transaction.items() if value is not None)
    return f"{topic}-{partition}: consumers stop at offset {last_stable}: {said}"
