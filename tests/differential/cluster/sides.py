"""The two clusters that run stories (scripted requests): three Apache Kafka brokers, and our nodes in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from broker.net.calls import Call
from lab.faults import ActiveRule
from tests.differential.cluster.story import NODES, Sent
from tests.support import raw
from tests.support.in_process import InProcess
from tests.support.kafka_cluster import COMMON, HOST, KafkaCluster

# Settings of both sides. Racks are "a" for node 1, "b" for node 2, "c" for node 3.
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "offsets.commit.timeout.ms": "500",
    "offsets.topic.num.partitions": "6",
    "replica.fetch.wait.max.ms": COMMON["replica.fetch.wait.max.ms"],
    "replica.lag.time.max.ms": COMMON["replica.lag.time.max.ms"],
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "share.coordinator.state.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "unclean.leader.election.interval.ms": "1000",
}
RACKS = {1: "a", 2: "b", 3: "c"}
BETWEEN_NODES = ("write_txn_markers", "add_partitions_to_txn")
SPELLED = {"write_txn_markers": "WriteTxnMarkers", "add_partitions_to_txn": "AddPartitionsToTxn"}


class KafkaSide:
    host = HOST

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._paused: set[int] = set()
        self._held = ExitStack()

    def port(self, node_id: int) -> int:
        return self._cluster.port(node_id)

    def reachable(self) -> list[int]:
        return [node_id for node_id in self._cluster.running() if node_id not in self._paused]

    def kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)
        self._paused.discard(node_id)

    def stop(self, node_id: int) -> None:
        self._cluster.stop(node_id)

    def start(self, node_id: int) -> None:
        self._cluster.start(node_id)

    def pause(self, node_id: int) -> None:
        self._cluster.pause(node_id)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        self._cluster.resume(node_id)
        self._paused.discard(node_id)

    def cut(self, one: int, other: int) -> None:
        self._cluster.cut(one, other)

    def mend(self, one: int, other: int) -> None:
        self._cluster.mend(one, other)

    def wait(self) -> None:
        time.sleep(0.03)

    def hold(self, api: str, sender: int, receiver: int) -> None:
        self._held.enter_context(self._cluster.relays[receiver].hold(api, (sender,)))

    def release(self) -> None:
        self._held.close()

    def sent(self) -> list[Sent]:
        return [
            _sent(receiver, each.name, each.request, each.response)
            for receiver, relay in self._cluster.relays.items()
            for each in relay.seen(*BETWEEN_NODES)
        ]


class OurSide:
    host = HOST

    def __init__(self, broker: InProcess) -> None:
        self._broker = broker
        self._paused: set[int] = set()
        self._held: list[ActiveRule] = []
        self._watch = _Watch()
        broker.call(lambda: broker.cluster.calls.add(self._watch, first=True))

    def port(self, node_id: int) -> int:
        return self._broker.cluster.nodes[node_id].listeners[0].port

    def reachable(self) -> list[int]:
        cluster = self._broker.cluster
        return [node_id for node_id in NODES if cluster.running(node_id) and node_id not in self._paused]

    def kill(self, node_id: int) -> None:
        self._broker.call(lambda: self._broker.cluster.kill_node(node_id))
        self._paused.discard(node_id)
        self._broker.run(self._broker.cluster.settled())

    def stop(self, node_id: int) -> None:
        self._broker.run(self._broker.cluster.stop_node(node_id))

    def start(self, node_id: int) -> None:
        self._broker.run(self._broker.cluster.start_node(node_id))

    def pause(self, node_id: int) -> None:
        self._broker.call(lambda: self._broker.cluster.pause_node(node_id))
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        self._broker.call(lambda: self._broker.cluster.resume_node(node_id))
        self._paused.discard(node_id)

    def cut(self, one: int, other: int) -> None:
        self._links("cut", one, other)

    def mend(self, one: int, other: int) -> None:
        self._links("mend", one, other)

    def _links(self, what: str, one: int, other: int) -> None:
        change = getattr(self._broker.cluster.injection.links, what)
        self._broker.call(lambda: (change(one, other), change(other, one)))

    def wait(self) -> None:
        """Advance the replication domain of the clock, so that followers without links leave the ISR.

        Everything else runs in real time.
        """
        self._broker.advance("250ms", only=["replication"])
        time.sleep(0.002)

    def hold(self, api: str, sender: int, receiver: int) -> None:
        who = f"broker-{sender}-*" if api == "write_txn_markers" else f"*-{sender}"
        self._held.append(self._broker.stage(f"{SPELLED[api]} node={receiver} client_id={who} -> hold"))

    def release(self) -> None:
        for rule in self._held:
            self._broker.call(partial(self._broker.faults.remove, rule.id))
        self._held.clear()

    def sent(self) -> list[Sent]:
        return [_sent(receiver, api, frame, answer) for receiver, api, frame, answer in self._watch.taken()]


class _Watch:
    """Records the requests between nodes as they arrive."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def wants(self, api_key: int) -> bool:
        return (
            raw.API_KEYS["write_txn_markers"] == api_key or raw.API_KEYS["add_partitions_to_txn"] == api_key
        )

    def arrived(self, call: Call) -> bool:
        self._calls.append(call)
        return True

    def answering(self, call: Call) -> bool:
        return True

    def taken(self) -> list[tuple[int, str, bytes, bytes | None]]:
        names = {raw.API_KEYS[api]: api for api in BETWEEN_NODES}
        return [
            (call.context.node.node_id, names[call.context.api_key], call.frame, call.answer)
            for call in tuple(self._calls)
        ]


def _sent(receiver: int, api: str, request: bytes, response: bytes | None) -> Sent:
    version = int.from_bytes(request[2:4], "big")
    length = int.from_bytes(request[8:10], "big", signed=True)
    return Sent(
        receiver,
        api,
        version,
        request[10 : 10 + length].decode() if length >= 0 else None,
        raw.decode_request(api, version, request),
        raw.decode_response(api, version, response)[1] if response is not None else None,
    )


@contextmanager
def kafka_side(directory: Path) -> Iterator[KafkaSide]:
    with KafkaCluster(directory, SETTINGS, racks=RACKS) as cluster:
        yield KafkaSide(cluster)


@contextmanager
def our_side(directory: Path, settings: dict[str, Any] | None = None) -> Iterator[OurSide]:
    racks = {f"odradek.node.{node_id}.broker.rack": rack for node_id, rack in RACKS.items()}
    with InProcess(directory, "--nodes", "3", settings={**SETTINGS, **racks, **(settings or {})}) as broker:
        yield OurSide(broker)
