"""Stories with three nodes, which are killed, stopped and cut off.

They extend the stories with one node (`tests.differential.story`). A story belongs to a scene, which is a list of acts
(actions on nodes, such as a kill). All stories of a scene share its acts: each story runs up to its first `yield`, then
the first act is performed once for all of them, and so on.

    @story("leadership", scene="killed")       # acts: node 1 is killed; it is started again
    def produce(s):
        t = s.topic([[1, 2, 3]])
        s.produce(t, s.batch(1), at=1)
        yield
        s.await_leader(t, 2)
        s.produce(t, s.batch(1), at=2)
        yield
        s.await_isr(t, {1, 2, 3})

The story places the replicas, so that both sides have the same leaders: node ids, epochs and offsets are compared as they
are. To wait for something, a story polls with requests that are not in the transcript.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from protocol.uuids import uuid_text
from tests.differential.normal import Normal
from tests.differential.story import Body, Pending, Story, Topic, Unanswered
from tests.support import raw
from tests.support.deadlines import Deadline

NODES = (1, 2, 3)
PORT_NAMES = {node_id: f"port of {node_id}" for node_id in NODES}
# Placement of the partitions of both internal topics, so that a story can choose any coordinator, and any successor of it.
PLACED = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), (2, 1, 3), (3, 2, 1))
LOADING = (14, 15, 16)
OFFSET_NOT_AVAILABLE = 78
CONTROL = 0x20
# One control record: key (version, type) and value (version, coordinator epoch).
MARKER = re.compile("20000000080000(000[01])0c0000([0-9a-f]{8})00")
MARKER_TYPES = {"0000": "ABORT", "0001": "COMMIT"}
UNORDERED = (
    "isr_nodes",
    "offline_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
    "partition_indexes",
)


class Side(Protocol):
    """A cluster for stories: Kafka's or ours."""

    host: str

    def port(self, node_id: int) -> int: ...

    def reachable(self) -> list[int]:
        """Nodes that run and are not paused."""
        ...

    def kill(self, node_id: int) -> None: ...

    def stop(self, node_id: int) -> None: ...

    def start(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def cut(self, one: int, other: int) -> None: ...

    def mend(self, one: int, other: int) -> None: ...

    def wait(self) -> None:
        """Called between two polls of a condition."""
        ...

    def hold(self, api: str, sender: int, receiver: int) -> None:
        """Delay the delivery of requests of this API from one node to another until `release`."""
        ...

    def release(self) -> None: ...

    def sent(self) -> list[Sent]:
        """Requests between nodes so far, in the order of arrival at each node."""
        ...


@dataclass(frozen=True)
class Sent:
    """A request of one node to another, with the response if there was one."""

    receiver: int
    api: str
    version: int
    client_id: str | None
    request: Body
    response: Body | None


@dataclass(frozen=True)
class Entry:
    area: str
    name: str
    run: Callable[[ClusterStory], Iterator[None] | None]
    scene: str

    @property
    def id(self) -> str:
        return f"{self.area}.{self.name}"


STORIES: dict[str, Entry] = {}


def story(
    area: str, scene: str = "calm"
) -> Callable[[Callable[[ClusterStory], Any]], Callable[[ClusterStory], Any]]:
    """Decorator: register a story, which runs with the other stories of its scene.

    The area gets the prefix "cluster-", to distinguish it from areas of stories with one node in docs/differences.md.
    """

    def register(run: Callable[[ClusterStory], Any]) -> Callable[[ClusterStory], Any]:
        entry = Entry(f"cluster-{area}", run.__name__, run, scene)
        assert entry.id not in STORIES, entry.id
        STORIES[entry.id] = entry
        return run

    return register


def java_hash(name: str) -> int:
    """The hash by which Kafka chooses a coordinator: ``Utils.abs(name.hashCode())``."""
    value = 0
    for char in name:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) if signed != -(1 << 31) else 0


class ClusterNormal(Normal):
    """Normalises responses. Node ids are compared as they are, except the controller's, which is random in Kafka."""

    def __init__(self, prefix: str, ports: dict[int, str], base_time: int) -> None:
        super().__init__(prefix, ports, base_time)
        self.names: dict[str, str] = {}
        """Symbols of transactional and group ids that were chosen to have certain coordinators."""

    def _string(self, value: str, field: str) -> str:
        for name, called in self.names.items():
            value = value.replace(name, called)
        return super()._string(value, field)

    def value(self, value: Any, field: str, sort: bool) -> Any:
        if isinstance(value, dict) and value.get("producer_id", -1) >= 0:
            value = self._with_coordinator_epochs(value)
        if isinstance(value, dict) and value.get("transaction_state") == "" and value["producer_id"] == 0:
            # The transactional id is unknown. In another story 0 may be a real producer id.
            value = value | {"producer_id": "0"}
        return super().value(value, field, sort)

    def _with_coordinator_epochs(self, value: dict[str, Any]) -> dict[str, Any]:
        """Number the coordinator epochs of each producer from 0: other stories of the scene may have raised them."""
        pid = value["producer_id"]
        if value.get("coordinator_epoch", -1) >= 0:
            return value | {"coordinator_epoch": self._coordinator_epoch(pid, value["coordinator_epoch"])}
        match value:
            case {"attributes": attributes, "records": [str(marker)]} if attributes & CONTROL:
                found = MARKER.fullmatch(marker)
                if found:
                    epoch = self._coordinator_epoch(pid, int(found[2], 16))
                    return value | {"records": [f"{MARKER_TYPES[found[1]]}, {epoch}"]}
        return value

    def _coordinator_epoch(self, pid: int, epoch: int) -> str:
        return self.symbol(f"epoch of the coordinator of {self.symbol('pid', pid)}", epoch)

    def _sort_key(self, value: dict[str, Any]) -> tuple[Any, ...]:
        """Sort key by symbols, not by values: nodes get blocks of producer ids in any order."""
        known = list(self.symbols)
        pid = ("pid", value.get("producer_id"))
        if pid in known:
            value = value | {"producer_id": known.index(pid)}
        return super()._sort_key(value)

    def _number(self, value: int, field: str) -> Any:
        if field == "controller_id" and value in NODES:
            return "node"
        return super()._number(value, field)

    def _list(self, values: list[Any], field: str, sort: bool) -> Any:
        if field in UNORDERED:
            return sorted(values)
        return super()._list(values, field, sort)


@dataclass
class ClusterStory(Story):
    """A story on a cluster. `at` is the id of the node that gets a request."""

    side: Side = field(kw_only=True)
    home: int = field(default=3, kw_only=True)
    """Node that gets preparing requests, and requests that any node may answer."""
    normal: ClusterNormal = field(init=False)
    is_over: bool = field(default=False, init=False)
    keeps_topics: bool = field(default=False, init=False)
    """Do not delete the story's topics at the end. Apache Kafka 4.4.0 cannot register a broker after an unclean shutdown if
    the broker was an eligible leader replica of a topic that was deleted after a change of its min.insync.replicas."""

    def _normal(self) -> ClusterNormal:
        return ClusterNormal(
            self.prefix, {self.side.port(node_id): PORT_NAMES[node_id] for node_id in NODES}, self.t0
        )

    # -- connections ---------------------------------------------------------------------------------------------

    def wire(self, on: str = "main") -> raw.Wire:
        if on not in self.wires:
            self.wires[on] = raw.Wire(self.side.host, self.side.port(int(on.split()[0])))
        return self.wires[on]

    def forget(self, node_id: int) -> None:
        """Close the connections to a node that has ended."""
        for on in [each for each in self.wires if each.split()[0] == str(node_id)]:
            self.close(on)

    def _on(self, at: int | None, on: str) -> str:
        if on[:1].isdigit():
            return on
        return f"{at or self.home} {on}".strip()

    def send(self, api: str, version: int, /, *, at: int | None = None, on: str = "", **body: Any) -> Pending:
        return super().send(api, version, on=self._on(at, on), **body)

    def ask(self, api: str, version: int, /, *, at: int | None = None, on: str = "", **body: Any) -> Body:
        return super().ask(api, version, on=self._on(at, on), **body)

    def _label(self, api: str, version: int, on: str, note: str) -> str:
        return f"{super()._label(api, version, on, note)} at {on}"

    # -- names ---------------------------------------------------------------------------------------------------

    def coordinated(self, by: Sequence[int], suffix: str = "tx") -> str:
        """A transactional or group id whose partition has its replicas on these nodes, in this order."""
        index = PLACED.index(tuple(by))
        number = 0
        while java_hash(name := self.name(f"{suffix}{number}")) % len(PLACED) != index:
            number += 1
        self.normal.names[name] = f"~-{suffix}"
        return name

    def share_coordinated(
        self, topic: Topic, by: Sequence[Sequence[int]], share_coordinator: Sequence[Sequence[int]]
    ) -> str:
        """A group id, for which partition 0 of the topic has a share coordinator.

        The group's partition and the one of the share partition's state have their replicas on one of these each.
        """
        names = (self.name(f"g{number}") for number in count())
        places = [{PLACED.index(tuple(each)) for each in nodes} for nodes in (by, share_coordinator)]

        def are_placed(name: str) -> bool:
            keys = (name, f"{name}:{uuid_text(topic.id)}:0")
            return all(java_hash(key) % len(PLACED) in place for key, place in zip(keys, places, strict=True))

        name = next(filter(are_placed, names))
        self.normal.names[name] = "~-g"
        return name

    def topic(self, replicas: Sequence[Sequence[int]] = ((1, 2, 3),), **configs: str) -> Topic:
        """Create a topic with its replicas on these nodes, and wait until all of them lead or follow."""
        self.topics += 1
        name = self.name(f"t{self.topics}")
        row = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments(replicas),
            "configs": [{"name": k.replace("__", "."), "value": v} for k, v in configs.items()],
        }
        answer = self.quiet("create_topics", 7, retry=(), topics=[row], timeout=30_000)["topics"][0]
        if answer["error_code"]:
            raise Unanswered(f"{name} not created: {answer['error_code']} {answer['error_message']}")
        self.normal.symbol("topic", answer["topic_id"])
        topic = Topic(name, answer["topic_id"])
        self.settled(topic)
        return topic

    # -- waiting -------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = Deadline()
        while not condition():
            deadline.check(f"{self.entry.id}: {what}")
            self.side.wait()

    def look(self, at: int, api: str, version: int, **body: Any) -> Body:
        """Send one request that is not in the transcript."""
        return self.quiet(api, version, retry=(), at=at, on="look", **body)

    def partitions(self, topic: Topic | str, at: int) -> dict[int, Body]:
        """Partitions of a topic in a node's metadata, by index; empty if the node does not have the topic."""
        name = topic if isinstance(topic, str) else topic.name
        answer = self.look(at, "metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        return {row["partition_index"]: row for row in answer["topics"][0]["partitions"]}

    def settled(self, topic: Topic | str) -> None:
        """Wait until all nodes have the same metadata of a topic, and have applied it."""
        self.until(lambda: self._is_settled(topic), f"{topic} is settled")

    def _is_settled(self, topic: Topic | str) -> bool:
        nodes = self.side.reachable()
        told = [self.partitions(topic, at) for at in nodes]
        keys = ("leader_id", "leader_epoch", "replica_nodes")
        views = [{index: [row[key] for key in keys] for index, row in each.items()} for each in told]
        if not views[0] or any(view != views[0] for view in views):
            return False
        name = topic if isinstance(topic, str) else topic.name
        return all(
            self._role_code(name, index, epoch, at) == (0 if at == leader else 6)
            for index, (leader, epoch, replicas) in views[0].items()
            for at in replicas
            if at in nodes and leader in (*nodes, -1)
        )

    def _role_code(self, name: str, index: int, epoch: int, at: int) -> int:
        row = {"partition": index, "current_leader_epoch": epoch, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": name, "partitions": [row]}]}
        answer = self.look(at, "offset_for_leader_epoch", 3, **body)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def await_readable(self, topic: Topic, partition: int = 0) -> None:
        """Wait until the leader has a valid high watermark, which it does not have right after its election."""

        def code() -> int:
            row = {"partition_index": partition, "timestamp": -1}
            body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [row]}]}
            leader = self.partitions(topic, self.home)[partition]["leader_id"]
            if leader < 0:
                return 0
            answer = self.look(leader, "list_offsets", 5, **body)
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        self.until(lambda: code() != OFFSET_NOT_AVAILABLE, f"{topic}-{partition} can be read")

    def await_leader(
        self, topic: Topic | str, leader: int, partition: int = 0, readable: bool = True
    ) -> None:
        """Wait until all nodes have this leader in their metadata, with ``readable`` also for its high watermark."""
        self.until(
            lambda: all(
                self.partitions(topic, at).get(partition, {}).get("leader_id") == leader
                for at in self.side.reachable()
            ),
            f"{topic}-{partition} is led by {leader}",
        )
        self.settled(topic)
        if readable and isinstance(topic, Topic):
            self.await_readable(topic, partition)

    def await_isr(self, topic: Topic | str, isr: set[int], partition: int = 0) -> None:
        """Wait until all nodes have this ISR in their metadata."""
        self.until(
            lambda: all(
                set(self.partitions(topic, at).get(partition, {}).get("isr_nodes", ())) == isr
                for at in self.side.reachable()
            ),
            f"{topic}-{partition} has {isr} in sync",
        )
        self.settled(topic)

    def await_replicated(
        self, topic: Topic, high_watermark: int, at: Sequence[int], partition: int = 0
    ) -> None:
        """Wait until these replicas have this high watermark."""
        self.until(
            lambda: all(self.high_watermark(topic, each, partition) >= high_watermark for each in at),
            f"{topic}-{partition} has {high_watermark} committed on {at}",
        )

    def log_start(self, topic: Topic, at: int, partition: int = 0) -> int:
        """Log start offset of a replica, leader or follower."""
        row = {"partition_index": partition, "timestamp": -2}
        body = self.look(
            at, "list_offsets", 5, replica_id=-2, topics=[{"name": topic.name, "partitions": [row]}]
        )
        return int(body["topics"][0]["partitions"][0]["offset"])

    def high_watermark(self, topic: Topic, at: int, partition: int = 0) -> int:
        """High watermark of a replica, leader or follower, -1 if it has none."""
        found = self._read(topic, partition, at)
        return -1 if found["error_code"] not in (0, 1) else int(found["high_watermark"])

    def stable(self, topic: Topic, at: int, partition: int = 0) -> int:
        """Last stable offset of a replica."""
        return int(self._read(topic, partition, at)["last_stable_offset"])

    def _read(self, topic: Topic, partition: int, at: int) -> Body:
        start = max(0, self.log_start(topic, at, partition))
        row = {"partition": partition, "fetch_offset": start, "partition_max_bytes": 1}
        body = self.look(at, "fetch", 11, **(LOOK | {"topics": [{"topic": topic.name, "partitions": [row]}]}))
        return body["responses"][0]["partitions"][0]

    def await_known(self, nodes: set[int]) -> None:
        """Wait until the metadata of all running nodes lists exactly these nodes."""
        self.until(
            lambda: all(
                {row["broker_id"] for row in self.look(at, "describe_cluster", 0)["brokers"]} == nodes
                for at in self.side.reachable()
            ),
            f"the brokers are {nodes}",
        )

    def await_coordinator(self, name: str, kind: int, node: int) -> None:
        """Wait until a node is the coordinator of a group (kind 0) or a transactional id (1)."""
        self.until(
            lambda: self._coordination_code(name, kind, node) not in LOADING, f"{node} coordinates {name}"
        )

    def _coordination_code(self, name: str, kind: int, at: int) -> int:
        if kind:
            body = self.look(at, "describe_transactions", 0, transactional_ids=[name])
            return int(body["transaction_states"][0]["error_code"])
        body = self.look(at, "heartbeat", 0, group_id=name, generation_id=0, member_id="")
        return int(body["error_code"])

    def await_transaction(self, name: str, state: str, at: int) -> None:
        """Wait until the coordinator has a transactional id in this state."""

        def is_there() -> bool:
            row = self.look(at, "describe_transactions", 0, transactional_ids=[name])["transaction_states"][0]
            return row["error_code"] == 0 and row["transaction_state"] == state

        self.until(is_there, f"{name} is {state}")


LOOK = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 0,
    "max_bytes": 1,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
}


def assignments(replicas: Sequence[Sequence[int]]) -> list[Body]:
    return [{"partition_index": index, "broker_ids": list(nodes)} for index, nodes in enumerate(replicas)]
