"""Java 4.4.0 clients send the cluster and the node that they expect at an address, and bootstrap again after a refusal.

Kafka 4.4.0 has this by KIP-1242 (``metadata.cluster.check.enable``), and TxnOffsetCommit with topic ids by KIP-1319.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest

import odradek
from tests.clients.contract import QUICK
from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.deadlines import HANG_S
from tests.support.foreign import Program, Running
from tests.support.javaprog import java_clients, program_command

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.client("Java")]

NEWEST = "4.4.0"
RECORDS = [f"order {number}" for number in range(20)]
POLL_MS = 100


@pytest.mark.feature("exactly-once loop")
@pytest.mark.parametrize(("release", "api_versions", "commits"), [("4.3.1", {4}, {5}), (NEWEST, {5}, {6})])
def test_each_release_speaks_its_newest_versions(release: str, api_versions: set[int], commits: set[int]):
    program = Program(program_command("Groups", release=release))
    topics = ["orders:2", "done-classic:1", "done-consumer:1"]
    with odradek.Broker(nodes=2, topics=topics, settings=QUICK) as broker:
        write(broker, RECORDS)
        broker.trace.start()
        for protocol in ("classic", "consumer"):
            sink = f"done-{protocol}"
            order = (protocol, "orders", sink, f"workers-{protocol}", "loop", "never")
            with program.start("group-loop", broker.bootstrap_servers, *order) as loop:
                eventually(partial(has_results, broker, sink, loop), f"each record has a result in {sink}")
                loop.go_on()
                loop.finish()
        asked = [each for each in broker.trace.entries(api="ApiVersions") if is_java(each)]
        assert {each["version"] for each in asked} == api_versions
        assert {each["answer"]["error"] for each in asked} == {"NONE"}
        assert {each["version"] for each in broker.trace.entries(api="TxnOffsetCommit")} == commits
        if release == NEWEST:
            # At the first connection the client does not know the ids yet.
            ids = {(each["request"]["cluster_id"], each["request"]["node_id"]) for each in asked}
            assert ids == {(None, -1), (broker.cluster_id, 1), (broker.cluster_id, 2)}


def is_java(exchange: dict[str, Any]) -> bool:
    return str(exchange["request"].get("client_software_name", "")).startswith("apache-kafka-java")


def has_results(broker: odradek.Broker, sink: str, loop: Running) -> bool:
    assert loop.is_alive, loop.complaints
    return sorted(map(str, values(broker.bootstrap_servers, sink))) == sorted(
        f"done {each}" for each in RECORDS
    )


def write(broker: odradek.Broker, records: list[str]) -> None:
    producer = ConfluentProducer(broker.bootstrap_servers)
    producer.send("orders", records)
    producer.close()


class Clients:
    """A producer and a consumer of the newest release, in one JVM."""

    def __init__(self, broker: odradek.Broker, **more: object) -> None:
        self.java = java_clients(NEWEST)
        config = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 20, **more}
        group = {"group.id": "readers", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}
        self._producer = self.java.ask("producer", config={**config, "linger.ms": 0})
        self._consumer = self.java.ask("consumer", config={**config, **group})
        self.java.ask("subscribe", on=self._consumer, topics=["orders"])

    def send(self, value: str) -> None:
        self.java.ask("send", on=self._producer, records=[["orders", 0, None, value]])

    def poll(self) -> list[str]:
        return [record[4] for record in self.java.ask("poll", on=self._consumer, timeout_ms=POLL_MS)]

    def read(self, value: str) -> None:
        """Poll until the record has come, and nothing else before it."""
        found: list[str] = []
        eventually(lambda: found.extend(self.poll()) or found, f"{value} is read")
        assert found == [value]

    def close(self) -> None:
        self.java.ask("close", on=self._producer, timeout_ms=0)
        self.java.ask("close", on=self._consumer)


def refused_clients(broker: odradek.Broker) -> set[str]:
    """The kinds of clients whose ApiVersions got REBOOTSTRAP_REQUIRED."""
    found = broker.trace.entries(api="ApiVersions")
    return {
        str(each["client_id"]).partition("-")[0]
        for each in found
        if (each["answer"] or {}).get("error") == "REBOOTSTRAP_REQUIRED"
    }


def test_they_go_on_with_another_cluster_at_the_same_addresses():
    # A rule of the start exists again after the reset: no client connects before the trace is on.
    rules = {"ODRADEK_FAULTS": "ApiVersions version=5 -> drop"}
    with odradek.Broker(nodes=2, topics=["orders:1"], environment=rules) as broker:
        broker.faults.clear()
        # While every known node is in its reconnect backoff, a client bootstraps again by itself (KIP-899).
        no_backoff = {"reconnect.backoff.ms": 0, "reconnect.backoff.max.ms": 0}
        with closing(Clients(broker, **no_backoff)) as clients:
            clients.send("before")
            clients.read("before")
            broker.reset(new_cluster_id=True)
            broker.trace.start()
            broker.faults.clear()
            clients.send("after")
            clients.read("after")
            assert refused_clients(broker) == {"producer", "consumer"}


def test_they_go_on_when_their_connections_are_no_longer_misrouted():
    with odradek.Broker(nodes=2, topics=["orders:1"]) as broker, ThreadPoolExecutor(1) as threads:
        broker.move_leader("orders", 0, to=2)
        with closing(
            Clients(broker, **{"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})
        ) as clients:
            clients.send("before")
            clients.read("before")
            broker.trace.start()
            broker.nodes[2].misroute(1)
            # The clients lose their connections to the leader, and connect to its address again.
            broker.faults.add("Fetch node=2 nth=1 -> drop")
            broker.faults.add("Produce node=2 nth=1 -> drop")
            eventually(
                lambda: clients.poll() or "consumer" in refused_clients(broker), "the consumer is refused"
            )
            sending = threads.submit(clients.send, "after")
            eventually(lambda: "producer" in refused_clients(broker), "the producer is refused")
            assert not sending.done()
            broker.nodes[2].misroute(2)
            sending.result(HANG_S)
            clients.read("after")
