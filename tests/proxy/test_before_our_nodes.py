"""`odradek proxy` as a process in front of three nodes of ours, with librdkafka as an unchanged client."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek._server import command
from tests.support import raw
from tests.support.clients import PATIENCE, eventually, place_of, value_of
from tests.support.deadlines import HANG_S
from tests.support.proxy import ProxyProcess
from tests.support.three_nodes import ThreeNodes

RECORDS = 42
AT_ONCE = 6


def test_an_exactly_once_loop_runs_through_it(tmp_path: Path) -> None:
    with (
        ThreeNodes(tmp_path / "cluster", topics=["orders:3", "results:3"]) as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.bootstrap_servers) as proxy,
    ):
        brokers = (
            AdminClient({"bootstrap.servers": proxy.bootstrap_servers}).list_topics(timeout=HANG_S).brokers
        )
        ports = {each.port for each in brokers.values()}
        assert ports == {int(each.rpartition(":")[2]) for each in proxy.bootstrap_servers.split(",")}
        assert ports.isdisjoint({cluster.port(node) for node in (1, 2, 3)})
        options: dict[str, Any] = {**PATIENCE, "bootstrap.servers": proxy.bootstrap_servers}
        source(options)
        move(options)
        assert sorted(results(options)) == list(range(RECORDS))


def test_the_ids_that_a_client_expects_reach_the_nodes(tmp_path: Path) -> None:
    with (
        ThreeNodes(tmp_path / "cluster") as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.bootstrap_servers) as proxy,
    ):
        assert errors_for_ids(proxy.bootstrap_servers) == ERRORS_FOR_IDS


ERRORS_FOR_IDS = [0, 0, 129, 129, 42]
"""Errors of ApiVersions v5 for no ids, the node's own, another cluster, another node, and a cluster without a node."""


def errors_for_ids(bootstrap: str) -> list[object]:
    """The errors of the first node of ``bootstrap``, in the order of `ERRORS_FOR_IDS` (KIP-1242)."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    wire = raw.Wire(host, int(port), timeout=HANG_S)

    def ask(api: str, version: int, **body: Any) -> dict[str, Any]:
        wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, wire.receive_frame())[1]

    try:
        cluster_id = ask("metadata", 12, topics=[])["cluster_id"]
        software = {"client_software_name": "java", "client_software_version": "4.4.0"}
        return [
            ask("api_versions", 5, **software, cluster_id=cluster, node_id=node)["error_code"]
            for cluster, node in (
                (None, -1),
                (cluster_id, 1),
                ("other", 1),
                (cluster_id, 9),
                (cluster_id, -1),
            )
        ]
    finally:
        wire.close()


def source(options: dict[str, Any]) -> None:
    """Write records to the three partitions of orders."""
    producer = Producer(options)
    for number in range(RECORDS):
        producer.produce("orders", key=str(number), value=str(number), partition=number % 3)
    assert producer.flush(HANG_S) == 0


def move(options: dict[str, Any]) -> None:
    """Copy each record of orders to results in a transaction."""
    consumer = Consumer({**options, "group.id": "movers", "enable.auto.commit": "false"})
    producer = Producer({**options, "transactional.id": "mover"})
    producer.init_transactions(HANG_S)
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
    moved = 0
    while moved < RECORDS:
        first = consumer.poll(HANG_S)
        assert first is not None, "a record of orders is missing"
        records = [first, *consumer.consume(AT_ONCE - 1, 0)]
        producer.begin_transaction()
        for record in records:
            assert record.error() is None, record.error()
            producer.produce("results", record.value(), partition=place_of(record)[1])
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [each for each in positions if each.offset >= 0], consumer.consumer_group_metadata(), HANG_S
        )
        producer.commit_transaction(HANG_S)
        moved += len(records)
    consumer.close()


def results(options: dict[str, Any]) -> list[int]:
    consumer = Consumer({**options, "group.id": "readers", "enable.partition.eof": "true"})
    consumer.assign([TopicPartition("results", partition, 0) for partition in range(3)])
    found: list[int] = []

    def all_there() -> bool:
        message = consumer.poll(HANG_S)
        if message is not None and message.error() is None:
            found.append(int(value_of(message)))
        return len(found) >= RECORDS

    eventually(all_there, "the results are there")
    # A duplicate would come after the expected records.
    ends = [
        consumer.get_watermark_offsets(TopicPartition("results", partition), HANG_S)[1]
        for partition in range(3)
    ]
    while [each.offset for each in consumer.position(consumer.assignment())] != ends:
        message = consumer.poll(HANG_S)
        if message is not None and message.error() is None:
            found.append(int(value_of(message)))
    consumer.close()
    return found


def test_an_upstream_that_is_not_there_is_waited_for_and_a_stop_ends_that(tmp_path: Path) -> None:
    said = said_while_waiting("127.0.0.1:1", tmp_path)
    assert "cannot be reached" in said
    assert "Traceback" not in said


@pytest.mark.more
def test_an_upstream_that_is_silent_is_waited_for_aloud(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = f"127.0.0.1:{silent.getsockname()[1]}"
        assert f"{upstream} has not responded within 2 s" in said_while_waiting(upstream, tmp_path)


def said_while_waiting(upstream: str, directory: Path) -> str:
    """The log of a proxy whose upstream is unreachable. The proxy is stopped once it logs that it waits."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command("proxy", "--upstream", upstream, "--port", "0", "--log-format", "json"), stdout=log
        )
        try:
            eventually(
                lambda: "waiting for the upstream" in (directory / "log").read_text(),
                "the proxy logs that it waits",
            )
        finally:
            process.terminate()
        assert process.wait(HANG_S) == 0
    return (directory / "log").read_text()
