"""Java 4.4.0 clients send the cluster and the node that they expect at an address.

Kafka 4.4.0 has this by KIP-1242 (``metadata.cluster.check.enable``), and TxnOffsetCommit with topic ids by KIP-1319.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import odradek
from tests.clients.contract import QUICK
from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.foreign import Program, Running
from tests.support.javaprog import program_command

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.client("Java")]

NEWEST = "4.4.0"
RECORDS = [f"order {number}" for number in range(20)]


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
