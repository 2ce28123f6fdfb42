"""Apache Kafka with three brokers and a separate controller, each a JVM: the reference for what happens between nodes.

    with KafkaCluster(tmp_path) as cluster:
        wire = raw.Wire("127.0.0.1", cluster.port(2))
        cluster.kill(2)
        cluster.await_fenced(2)
        cluster.start(2)
        cluster.cut(1, 3)                       # no connection between brokers 1 and 3 until ``mend``
        cluster.relays[1].seen("write_txn_markers")

Brokers connect to each other through relays, one in front of each broker, which record, hold and cut their requests.
Requests to the controller pass through no relay: a broker whose link is cut still gets metadata updates. All timeouts are
short.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.support import raw
from tests.support.deadlines import HANG_S, TEST_S, Deadline
from tests.support.java import SHORT_LIVED, java, kafka_classpath
from tests.support.kafka_oracle import CLUSTER_ID
from tests.support.relay import Relay

HOST = "127.0.0.1"
NODES = (1, 2, 3)
CONTROLLER = 100
NO_INODE = "0"
"""Inode in /proc/net/tcp of a connection that has ended and whose port is not free yet (TIME_WAIT)."""
LAG_MAX_MS = 1500
"""``replica.lag.time.max.ms``: a follower without a connection leaves the ISR after this time."""
COMMON = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "REPLICATION",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,REPLICATION:PLAINTEXT",
    "auto.leader.rebalance.enable": "false",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "min.insync.replicas": "2",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "6",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "200",
    "replica.lag.time.max.ms": str(LAG_MAX_MS),
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "6",
}


def _java(heap: str, *arguments: str) -> list[str]:
    return [java(), f"-Xmx{heap}", *SHORT_LIVED, "-cp", kafka_classpath(), *arguments]


class Node:
    """One Kafka process with its directory and settings."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.log = home / "kafka.log"
        self.file = home / "server.properties"
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True)
        settings = {**settings, "log.dirs": str(self.data)}
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.is_running
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                _java("384m", "kafka.Kafka", str(self.file)),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int) -> None:
        """Send a signal that ends the process, and wait for its end."""
        if self.process is not None and self.is_running:
            self.signal(number)
            self.process.wait(HANG_S)

    def check(self) -> None:
        if not self.is_running:
            raise RuntimeError(f"Kafka has ended:\n{self.log.read_text()[-4000:]}")


class KafkaCluster:
    """Context manager: when the block begins, every broker is registered and serves requests. All processes end with the
    block."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        *,
        features: Mapping[str, int] = {},
        racks: Mapping[int, str] = {},
    ) -> None:
        """``features`` are feature levels that differ from Kafka's defaults."""
        self._features = features
        self._controller_port = raw.free_port()
        self._ports = {node_id: raw.free_port() for node_id in NODES}
        self.relays = {node_id: Relay(self._broker_at) for node_id in NODES}
        quorum = {"controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self._controller_port}"}
        common = {**COMMON, **quorum, **properties}
        self.controller = Node(directory / "controller", common | self._of_controller())
        self.brokers = {
            node_id: Node(directory / f"node-{node_id}", common | self._of_broker(node_id, racks))
            for node_id in NODES
        }

    def _of_controller(self) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://{HOST}:{self._controller_port}",
        }

    def _of_broker(self, node_id: int, racks: Mapping[int, str]) -> dict[str, str]:
        between, relay = raw.free_port(), self.relays[node_id]
        relay.forward_to(HOST, between)
        clients = f"PLAINTEXT://{HOST}:{self._ports[node_id]}"
        return {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"{clients},REPLICATION://{HOST}:{between}",
            "advertised.listeners": f"{clients},REPLICATION://{relay.bootstrap}",
            **({"broker.rack": racks[node_id]} if node_id in racks else {}),
        }

    # -- state --------------------------------------------------------------------------------------------------

    def port(self, node_id: int) -> int:
        """Port of the broker's listener for clients."""
        return self._ports[node_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def running(self) -> list[int]:
        return [node_id for node_id, broker in self.brokers.items() if broker.is_running]

    def _broker_at(self, port: int, relay_port: int) -> int | None:
        """Id of the broker that opened a connection, found by the process that owns its socket. None if the broker has
        closed the connection."""
        deadline = Deadline()
        while not deadline.is_over:
            inode = socket_at(port, relay_port)
            for node_id, broker in self.brokers.items():
                if broker.process is not None and inode in _sockets_of(broker.process.pid):
                    return node_id
            if inode is None:
                break  # the connection has been closed
            time.sleep(0.001)
        return None

    # -- start and stop -----------------------------------------------------------------------------------------

    def __enter__(self) -> KafkaCluster:
        try:
            self._format()
            self.controller.start()
            for broker in self.brokers.values():
                broker.start()
            self.await_serving(NODES)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _format(self) -> None:
        """Format the controller's directory with Kafka's tool.

        The brokers get copies of the controller's files, with other directory ids.
        """
        levels = [f"--feature={name}={level}" for name, level in self._features.items()]
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(self.controller.file),
            *levels,
        ]
        subprocess.run(_java("256m", *tool), check=True, capture_output=True, cwd=self.controller.home)
        formatted = (self.controller.data / "meta.properties").read_text()
        for node_id, broker in self.brokers.items():
            shutil.copytree(self.controller.data, broker.data)
            text = re.sub(r"^node\.id=.*$", f"node.id={node_id}", formatted, flags=re.MULTILINE)
            text = re.sub(
                r"^directory\.id=.*$",
                f"directory.id=AAAAAAAAAAAAAAAAAAAA{node_id}g",
                text,
                flags=re.MULTILINE,
            )
            (broker.data / "meta.properties").write_text(text)

    def close(self) -> None:
        for each in (*self.brokers.values(), self.controller):
            each.end(signal.SIGKILL)
        for relay in self.relays.values():
            relay.close()

    def kill(self, node_id: int) -> None:
        """Kill a broker by SIGKILL. The controller fences it when its session times out: ``await_fenced``."""
        self.brokers[node_id].end(signal.SIGKILL)
        for relay in self.relays.values():
            relay.drop(node_id)

    def stop(self, node_id: int) -> None:
        """Stop a broker with Kafka's controlled shutdown."""
        self.brokers[node_id].end(signal.SIGTERM)

    def pause(self, node_id: int) -> None:
        self.brokers[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.brokers[node_id].signal(signal.SIGCONT)

    def start(self, *node_ids: int) -> None:
        """Start brokers that have ended; return when they serve requests and are in the metadata of all other brokers."""
        for node_id in node_ids:
            self.brokers[node_id].start()
        self.await_serving(node_ids)

    # -- links --------------------------------------------------------------------------------------------------

    def cut(self, one: int, other: int) -> None:
        """Cut the link between two brokers, in both directions."""
        self.relays[one].cut(other)
        self.relays[other].cut(one)

    def mend(self, one: int, other: int) -> None:
        self.relays[one].mend(other)
        self.relays[other].mend(one)

    # -- waiting ------------------------------------------------------------------------------------------------

    def known_to(self, node_id: int) -> set[int]:
        """Ids of the unfenced brokers in the metadata of a broker; empty if this broker does not respond."""
        try:
            wire = raw.Wire(HOST, self.port(node_id))
        except OSError:
            return set()
        try:
            wire.send_frame(raw.encode_request("describe_cluster", 0, {}, 1))
            answer = raw.decode_response("describe_cluster", 0, wire.receive_frame())[1]
        except (raw.Closed, raw.Silence):
            return set()
        finally:
            wire.close()
        return {row["broker_id"] for row in answer["brokers"]}

    def await_fenced(self, node_id: int) -> None:
        """Wait until no running broker has this broker in its metadata as unfenced."""
        self._await(
            lambda: all(node_id not in self.known_to(each) for each in self._others(node_id)),
            f"broker {node_id} is fenced",
        )

    def await_serving(self, node_ids: Iterable[int]) -> None:
        wanted = set(node_ids)
        self._await(
            lambda: all(wanted <= self.known_to(each) for each in self.running()), f"brokers {wanted} serve"
        )

    def _others(self, node_id: int) -> list[int]:
        return [each for each in self.running() if each != node_id]

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline, expected = Deadline(TEST_S), [self.controller, *(self.brokers[n] for n in self.running())]
        while not condition():
            for each in expected:
                each.check()
            deadline.check(what)
            time.sleep(0.05)


def socket_at(port: int, peer_port: int) -> str | None:
    """Inode of the socket with this local port and this peer (Linux), None if there is none. Other sockets may have the
    same local port and other peers.
    """
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, peer, _, _, _, _, _, _, inode, *_ = line.split()
            if _port(local) == port and _port(peer) == peer_port and inode != NO_INODE:
                return inode
    return None


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _sockets_of(process_id: int) -> set[str]:
    found: set[str] = set()
    folder = f"/proc/{process_id}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found
