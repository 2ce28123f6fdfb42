"""Starts the brokers that kfake's tests of share groups ask for: an HTTP server for ``kfake/cluster.go``.

POST /start {"advertised": ["127.0.0.1:40001", …], "settings": {…}}     the addresses of the brokers, in order
POST /stop ["127.0.0.1:50001", …]                                       true
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from odradek.process import BrokerProcess
from tests.support import kafka_cluster
from tests.support.kafka_oracle import kafka
from tests.support.raw import free_port

OF_KFAKE_ONLY: Final = ("share.record.lock.sweep.interval.ms",)
QUICK: Final = {
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""With Kafka's defaults a member has its partitions after six seconds; the tests wait for one."""
BOUNDED: Final = (
    "group.consumer.heartbeat.interval.ms",
    "group.share.heartbeat.interval.ms",
    "group.share.session.timeout.ms",
)
LOCK_MS_MIN: Final = 1000
"""The lowest ``group.share.record.lock.duration.ms`` of Kafka. kfake has no bounds; its tests of locks set 100 and 500."""

Start = Callable[[Sequence[str], Mapping[str, str]], AbstractContextManager[list[str]]]


def bounded(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings within Kafka's bounds, and the bounds of groups that Kafka requires with them."""
    made = {**QUICK, **{name: value for name, value in settings.items() if name not in OF_KFAKE_ONLY}}
    lock = "group.share.record.lock.duration.ms"
    if lock in made:
        made[lock] = str(max(int(made[lock]), LOCK_MS_MIN))
    for name in (lock, *BOUNDED):
        if name in made:
            kind = ".".join(name.split(".")[:2])
            made[name.replace(kind, f"{kind}.min")] = made[name]
    return made


def listener(address: str) -> str:
    return f"PLAINTEXT://{address}"


@contextlib.contextmanager
def ours(advertised: Sequence[str], settings: Mapping[str, str]) -> Iterator[list[str]]:
    own = {
        f"odradek.node.{node}.advertised.listeners": listener(address)
        for node, address in enumerate(advertised, 1)
    }
    with tempfile.TemporaryDirectory(prefix="published-") as folder:
        port = free_port()
        count = str(len(advertised))
        broker = BrokerProcess(Path(folder) / "b", "--nodes", count, port=port, settings={**own, **settings})
        try:
            broker.start()
            yield [f"127.0.0.1:{port + node}" for node in range(len(advertised))]
        finally:
            broker.close()


class AdvertisingCluster(kafka_cluster.KafkaCluster):
    """Apache Kafka whose brokers advertise the addresses of relays."""

    advertised: Sequence[str] = ()

    def _of_broker(self, node_id: int, racks: Mapping[int, str]) -> dict[str, str]:
        made = super()._of_broker(node_id, racks)
        _, between = made["advertised.listeners"].split(",")
        made["advertised.listeners"] = f"{listener(self.advertised[node_id - 1])},{between}"
        return made


@contextlib.contextmanager
def apache_kafka(advertised: Sequence[str], settings: Mapping[str, str]) -> Iterator[list[str]]:
    if len(advertised) == 1:
        own = {"advertised.listeners": listener(advertised[0])}
        with kafka({**own, **settings}) as oracle:
            yield [f"{oracle.host}:{oracle.port}"]
        return
    kafka_cluster.NODES = tuple(range(1, len(advertised) + 1))  # type: ignore[assignment]
    AdvertisingCluster.advertised = advertised
    with (
        tempfile.TemporaryDirectory(prefix="published-") as folder,
        AdvertisingCluster(Path(folder) / "kafka", {"min.insync.replicas": "1", **settings}) as cluster,
    ):
        yield [f"127.0.0.1:{cluster.port(node)}" for node in kafka_cluster.NODES]


BROKERS: Final[Mapping[str, Start]] = {"ours": ours, "kafka": apache_kafka}


@contextlib.contextmanager
def served(against: str) -> Iterator[str]:
    """Yield the URL at which brokers are started and stopped."""
    running: dict[str, ExitStack] = {}

    def start(order: Any) -> Any:
        stack = ExitStack()
        addresses = stack.enter_context(
            BROKERS[against](order["advertised"], bounded(order["settings"] or {}))
        )
        running[addresses[0]] = stack
        return addresses

    def stop(order: Any) -> Any:
        running.pop(order[0]).close()
        return True

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, json.dumps({"/start": start, "/stop": stop}[self.path](order))
            except Exception as failed:
                status, answer = 500, repr(failed)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        for each in running.values():
            each.close()
