"""A simulated cluster with the operations of the control port, without HTTP, and the checks after all faults are
undone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from broker.clock.virtual import VirtualClock
from broker.cluster import BrokerEnding, Cluster
from broker.cluster.runtime import NodeState
from broker.cluster.snapshot_files import SNAPSHOTS
from lab.control.errors import HttpError
from lab.control.operations import arguments, call, discover
from lab.control.wiring import control_of
from protocol.batch import RecordBatch, build_batch
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from server.options import parse
from tests.simulation.ledger import Broken
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.producers import PRODUCE
from tests.simulation.watermarks import Watermarks
from tests.simulation.wire import NONE, Facts, Gone, Wire

TOPIC: Final = "orders"
PARTITIONS: Final = 2
TIME_TO_SETTLE_S: Final = 5.0
WRITES_MAX: Final = 200
"""Number of attempts to write one record after which the check fails. A healthy cluster needs fewer: by then it
has elected leaders, restored the ISR and loaded its logs."""
ENDING: Final = "the broker is stopping"
_DEAD: Final = (NodeState.STOPPED, NodeState.KILLED)
_NOT_RUNNING: Final = r"node \d is (starting|stopping|stopped|killed), not running"
_FAILED: Final = r"node \d was killed while it started|--topic orders: .+"
REFUSALS: Final = {
    "start": r"node \d is (starting|running|stopping), not stopped or killed"
    rf"|node \d cannot start: ({_FAILED})",
    "stop": rf"{_NOT_RUNNING}|node \d was killed while it stopped|node \d is paused: resume it, or kill it",
    "kill": r"node \d is (stopped|killed), not running or starting or stopping",
    "pause": rf"{_NOT_RUNNING}|node \d is paused already",
    "resume": rf"{_NOT_RUNNING}|node \d is running, not paused",
    "reset": rf"the broker cannot be reset: ({_FAILED})(; ({_FAILED}))*",
    "snapshot": r"node \d is (starting|stopping): wait for it",
    "restore": rf"there is no snapshot \d+|the snapshot cannot be restored: ({_FAILED})(; ({_FAILED}))*",
    "remove": r"there is no snapshot \d+",
    "topic": r".+: (Topic '.+' already exists\.|Unable to replicate the partition .+|.*fenced.*)",
}
"""Operation -> regular expression for the error messages that docs/control.md documents."""
_PATHS: Final = {
    "start": "/v1/nodes/{node_id}/start",
    "stop": "/v1/nodes/{node_id}/stop",
    "kill": "/v1/nodes/{node_id}/kill",
    "pause": "/v1/nodes/{node_id}/pause",
    "resume": "/v1/nodes/{node_id}/resume",
    "skew": "/v1/nodes/{node_id}/skew",
    "reset": "/v1/reset",
    "snapshot": "/v1/snapshots",
    "restore": "/v1/snapshots/{snapshot_id}/restore",
    "remove": "/v1/snapshots/{snapshot_id}",
    "advance": "/v1/clock/advance",
    "topic": "/v1/topics",
}


class Answer(NamedTuple):
    """Result of an operation. ``refusal``: the error message, "" for a success; ``view``: the returned value."""

    refusal: str
    view: Any = None


class Controlled:
    """One broker process with its data directory. ``say`` writes a line of the trace."""

    def __init__(
        self, loop: SimLoop, directory: Path, *, seed: object, nodes: int, say: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._say = say
        self._random = Random(f"{seed}/controlled")
        self._nodes = nodes
        arguments = ["--port", "9092", "--nodes", str(nodes), "--data-dir", str(directory)]
        arguments += ["--topic", f"{TOPIC}:{PARTITIONS}", "--set", f"default.replication.factor={nodes}"]
        arguments += ["--set", f"min.insync.replicas={min(2, nodes)}"]
        self._settings = parse(arguments, {})

    async def open(self) -> None:
        self.cluster = Cluster(
            self._settings,
            clock=VirtualClock(SimClock(self._loop)),
            random=self._random,
            bind=self._loop.network.bind,
        )
        await self.cluster.start()
        self.control = control_of(self.cluster)

    def wire(self, name: str) -> Wire:
        ports = [runtime.listeners[0].port for runtime in self.cluster.nodes.values()]
        facts = Facts(self.cluster, Watermarks())
        random, now_ms = Random(f"{self._random.random()}"), SimClock(self._loop).now_ms
        return Wire(name, self._loop.network, ports, random, self._say, now_ms, facts)

    async def ask(self, act: str, params: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """Call the operation ``act`` (``shutdown``, or a key of ``_PATHS``) and return its value or error message.

        Raises ``Broken`` for an error message that docs/control.md does not document.
        """
        if act == "shutdown":
            await self.cluster.stop()
            return Answer("")
        method = "DELETE" if act == "remove" else "POST"
        operation = discover()[method, _PATHS[act]]
        try:
            return Answer("", await call(operation, self.control, arguments(operation, params or {}, body)))
        except BrokerEnding as ending:
            return Answer(str(ending))
        except HttpError as refused:
            if re.fullmatch(REFUSALS.get(act, ""), refused.sentence) is None:
                raise Broken(
                    f"the operation '{act}' fails with status {refused.status}: {refused.sentence}"
                ) from refused
            return Answer(refused.sentence)

    async def write(self, wire: Wire, index: int, value: bytes) -> bool:
        """Try once to write a record with acks=all, and return whether it was acknowledged."""
        batch = build_batch([(wire.now_ms(), None, value)])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        try:
            answer = await wire.ask_leader(TOPIC, index, PRODUCE, 9, request)
        except Gone:
            return False
        if answer.responses[0].partition_responses[0].error_code == NONE:
            return True
        wire.forget_leader(TOPIC, index)
        return False

    def values(self, index: int) -> list[bytes]:
        """Values of the records at the leader of a partition of ``TOPIC``. Raises ``Broken`` if there is no leader."""
        state = self.cluster.metadata.topics[TOPIC].partitions[index]
        node = self.cluster.running(state.leader)
        partition = None if node is None else node.replicas.get(TOPIC, index)
        if partition is None:
            raise Broken(f"{TOPIC}-{index} has no leader")
        records = (record for batch in partition.log.batches() for record in batch.records())
        return [bytes(record.value or b"") for record in records]

    @staticmethod
    async def pass_time(seconds: float) -> None:
        """Wait for this number of seconds of virtual time. Pending work continues meanwhile."""
        await asyncio.sleep(seconds)

    # -- after faults -------------------------------------------------------------------------------------------

    async def mend(self) -> None:
        """Start or resume all nodes. Raises ``Broken`` if one of these calls fails."""
        for node_id, runtime in tuple(self.cluster.nodes.items()):
            act = "resume" if runtime.is_paused else "start" if runtime.state in _DEAD else None
            if act is not None:
                answer = await self.ask(act, {"node_id": str(node_id)})
                if answer.refusal:
                    raise Broken(f"the operation '{act}' fails in a cluster without faults: {answer.refusal}")
        await asyncio.sleep(TIME_TO_SETTLE_S)

    async def check(self) -> None:
        """Raise ``Broken`` if the cluster is not healthy although all nodes run without faults."""
        cluster = self.cluster
        if not cluster.lifecycle.is_at_rest:
            raise Broken("a control call has not ended")
        for node_id, runtime in cluster.nodes.items():
            if runtime.state is not NodeState.RUNNING or runtime.is_paused or runtime.lifecycle_lock.locked():
                raise Broken(f"node {node_id} is not ready: its state is {runtime.shown_state}")
        topic = cluster.metadata.topic(TOPIC)
        if topic is None or len(topic.partitions) != PARTITIONS:
            raise Broken(f"the topic of --topic is missing, or has another number of partitions: {topic}")
        self._check_partitions()
        self._check_folders()
        wire = self.wire("checker")
        for index in range(PARTITIONS):
            value = f"check {self._loop.now}".encode()
            for _ in range(WRITES_MAX):
                if await self.write(wire, index, value):
                    break
                await wire.back_off()
            else:
                raise Broken(f"{TOPIC}-{index} accepts no records")
            if self.values(index)[-1] != value:
                raise Broken(f"{TOPIC}-{index} does not end with the last acknowledged record")
        wire.close()

    def _check_partitions(self) -> None:
        for topic in self.cluster.metadata.topics.values():
            for state in topic.partitions:
                name = f"{topic.name}-{state.index}"
                if state.leader < 0 or set(state.isr) != set(state.replicas):
                    raise Broken(f"{name} lacks a leader or in-sync replicas: {state}")
                logs = set()
                for node_id in state.replicas:
                    partition = self.cluster.nodes[node_id].node.replicas.get(topic.name, state.index)
                    if partition is None or partition.offline is not None:
                        raise Broken(f"{name} is offline on node {node_id}")
                    logs.add(tuple(map(_bytes, partition.log.batches())))
                if len(logs) > 1:
                    raise Broken(f"the replicas of {name} differ")

    def _check_folders(self) -> None:
        for node_id, runtime in self.cluster.nodes.items():
            known = {
                f"{topic.name}-{state.index}"
                for topic in self.cluster.metadata.topics.values()
                for state in topic.partitions
                if node_id in state.replicas
            }
            folders = {path.name for path in runtime.data_dir.iterdir() if path.is_dir()}
            strays = folders - known - {"__cluster_metadata-0", SNAPSHOTS}
            if strays:
                raise Broken(f"node {node_id} has folders that belong to no partition: {sorted(strays)}")
        root = self.cluster.data_dir / SNAPSHOTS
        kept = {path.name for path in root.iterdir()} if root.exists() else set()
        if kept != {str(each.id) for each in self.control.snapshots.list()}:
            raise Broken(f"the folders of snapshots are not those of the listed snapshots: {sorted(kept)}")


def _bytes(batch: RecordBatch) -> bytes:
    return bytes(batch.buffer[batch.start : batch.start + batch.size])
