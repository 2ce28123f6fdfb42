"""``Broker.reset`` removes all earlier state: for clients, in the files, and at the control port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

import odradek
from tests.support import raw
from tests.support.clients import PATIENCE, ConfluentProducer, eventually, values
from tests.support.deadlines import HANG_S


@pytest.fixture(scope="module", params=[1, 3], ids=["one node", "three nodes"])
def broker(request: pytest.FixtureRequest) -> Iterator[odradek.Broker]:
    with odradek.Broker(nodes=request.param, topics=["orders:2"]) as broker:
        yield broker


def transactional(broker: odradek.Broker, transactional_id: str = "payments") -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **PATIENCE}
    )
    producer.init_transactions(HANG_S)
    return producer


def write(broker: odradek.Broker, *topics: str, value: str = "of before") -> None:
    producer = ConfluentProducer(broker.bootstrap_servers, idempotent=False)
    for topic in topics:
        producer.send(topic, [value])
    producer.close()


def topics_of(broker: odradek.Broker) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for node in broker.nodes.show():
        for topic, partitions in node["leads"].items():
            found.setdefault(topic, []).extend(partitions)
    return {topic: sorted(partitions) for topic, partitions in found.items()}


def ask(broker: odradek.Broker, api: str, version: int, **body: Any) -> dict[str, object]:
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    wire = raw.Wire(host, int(port), timeout=HANG_S)
    try:
        wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, wire.receive_frame())[1]
    finally:
        wire.close()


def producer_id(broker: odradek.Broker) -> object:
    return ask(broker, "init_producer_id", 0, transactional_id=None, transaction_timeout=1000)["producer_id"]


def test_topics_records_groups_and_transactional_ids_are_gone(broker: odradek.Broker):
    write(broker, "orders", "of-this-test")
    producer = transactional(broker)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    assert producer.flush(HANG_S) == 0
    assert values(broker.bootstrap_servers, "orders") == ["of before"]
    broker.reset()
    assert topics_of(broker) == {"orders": [0, 1]}
    assert broker.transactions.list() == []
    assert values(broker.bootstrap_servers, "orders") == []
    write(broker, "orders", value="of after")
    assert values(broker.bootstrap_servers, "orders") == ["of after"]


def test_a_client_from_before_a_reset_cannot_reach_the_new_state(broker: odradek.Broker):
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
        producer = transactional(broker)
        producer.begin_transaction()
        producer.produce("orders", b"open")
        assert producer.flush(HANG_S) == 0
        broker.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(KafkaException):
        producer.commit_transaction(HANG_S)
    assert values(broker.bootstrap_servers, "orders") == []


def test_producer_ids_and_topic_ids_are_never_issued_twice(broker: odradek.Broker):
    ids, topic_ids = [], []
    for _ in range(4):
        ids += [producer_id(broker), producer_id(broker)]
        metadata: Any = ask(broker, "metadata", 12, topics=None)
        topic_ids += [topic["topic_id"] for topic in metadata["topics"] if topic["name"] == "orders"]
        broker.reset()
    assert len(set(ids)) == len(ids) == 8
    assert len(set(topic_ids)) == len(topic_ids) == 4


def test_rules_moved_time_and_the_trace_are_gone(broker: odradek.Broker):
    held = broker.faults.add("Metadata -> hold")
    broker.faults.add("Produce -> drop")
    broker.clock.advance("7d", only=["all"])
    broker.trace.start()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, broker, "metadata", 12, topics=None)
        held.wait()
        broker.reset()
        with pytest.raises((raw.Closed, ConnectionError)):
            waiting.result()
    assert broker.faults.list() == []
    assert set(broker.clock.ahead_ms.values()) == {0}
    assert not broker.trace.status["running"]
    assert broker.trace.entries() == []
    write(broker, "orders")
    assert values(broker.bootstrap_servers, "orders") == ["of before"]


def test_a_reset_starts_stopped_nodes_and_no_rule_affects_them(broker: odradek.Broker):
    first, *others = broker.nodes
    broker.faults.add(f"Metadata node={first} -> kill")
    if others:
        broker.nodes[others[-1]].stop()
    broker.nodes[first].kill()
    broker.reset()
    assert {broker.nodes[node_id].state for node_id in broker.nodes} == {"running"}
    write(broker, "orders")
    assert values(broker.bootstrap_servers, "orders") == ["of before"]


def test_resets_at_once_come_one_after_the_other(broker: odradek.Broker):
    write(broker, "orders", "another")
    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(broker.reset) for _ in range(4)]:
            each.result()
    assert topics_of(broker) == {"orders": [0, 1]}


def test_removed_state_does_not_come_back_after_a_crash(tmp_path: Path):
    with odradek.Broker(topics=["orders:2"], data_dir=tmp_path) as broker:
        write(broker, "orders", "another")
        broker.reset()
        eventually(lambda: not [*tmp_path.glob("*-delete")], "the old directories are not removed")
        assert not (tmp_path / "another-0").exists()
        write(broker, "orders", value="of after")
        broker.kill()
        broker.restart()
        assert topics_of(broker) == {"orders": [0, 1]}
        assert values(broker.bootstrap_servers, "orders") == ["of after"]
        broker.kill()
        broker.reset()  # the process has ended, so this starts a new one
        assert values(broker.bootstrap_servers, "orders") == []


@pytest.mark.parametrize("act", ["reset", "restore"])
def test_the_broker_is_stopped_in_the_middle(act: str, tmp_path: Path):
    """A broker that is stopped during a reset or restore ends without a traceback.

    The next broker on its files has the topics, and accepts records.
    """
    with (
        odradek.Broker(nodes=3, topics=["orders:2"], data_dir=tmp_path) as broker,
        ThreadPoolExecutor(1) as threads,
    ):
        snapshot = broker.snapshot()
        begun = threading.Event()
        # Broker.reset would start a new process if the broker had ended between two resets.
        remote = odradek.connect(broker.control_url)

        def act_often() -> None:
            while True:
                _ = remote.reset() if act == "reset" else snapshot.restore()
                begun.set()

        acting = threads.submit(act_often)
        assert begun.wait(HANG_S)
        broker.process.terminate()
        with pytest.raises(odradek.OdradekError):  # the connection is closed without a response, or refused
            acting.result(HANG_S)
        assert broker.process.wait(HANG_S) == 0
    with odradek.Broker(nodes=3, topics=["orders:2"], data_dir=tmp_path) as broker:
        assert topics_of(broker) == {"orders": [0, 1]}
        write(broker, "orders")
        assert values(broker.bootstrap_servers, "orders") == ["of before"]


def cluster_ids(broker: odradek.Broker) -> set[object]:
    """The cluster ids that the control port and clients see."""
    return {
        broker.cluster_id,
        ask(broker, "metadata", 12, topics=[])["cluster_id"],
        ask(broker, "describe_cluster", 0)["cluster_id"],
    }


REBOOTSTRAP_REQUIRED = 129


def error_for(broker: odradek.Broker, cluster_id: object) -> object:
    """The error of ApiVersions for a client that expects node 1 of this cluster (KIP-1242)."""
    software = {"client_software_name": "test", "client_software_version": "1"}
    return ask(broker, "api_versions", 5, **software, cluster_id=cluster_id, node_id=1)["error_code"]


def test_a_reset_a_restore_and_a_restart_keep_the_cluster_id_unless_a_new_one_is_asked_for(tmp_path: Path):
    with odradek.Broker(nodes=3, topics=["orders:2"], data_dir=tmp_path) as broker:
        (first,) = cluster_ids(broker)
        snapshot = broker.snapshot()
        for act in (broker.reset, snapshot.restore, broker.restart):
            act()
            assert cluster_ids(broker) == {first}
        snapshot = broker.snapshot()
        broker.nodes[3].kill()
        broker.reset(new_cluster_id=True)
        (second,) = cluster_ids(broker)
        assert second != first
        assert [error_for(broker, each) for each in (first, second)] == [REBOOTSTRAP_REQUIRED, 0]
        for act in (broker.reset, snapshot.restore, broker.restart):
            act()
            assert cluster_ids(broker) == {second}
        broker.kill()
        broker.restart()
        assert cluster_ids(broker) == {second}
        assert topics_of(broker) == {"orders": [0, 1]}
        written = [path.read_text() for path in tmp_path.glob("node-*/meta.properties")]
        assert [f"cluster.id={second}" in each for each in written] == [True] * 3


def test_a_broker_that_died_while_it_wrote_a_new_cluster_id_has_the_new_id_after_its_restart(tmp_path: Path):
    """The file of the first node, which the reset writes first, decides the id for the other nodes."""
    with odradek.Broker(nodes=3, topics=["orders:2"], data_dir=tmp_path) as broker:
        former = broker.cluster_id
        broker.reset(new_cluster_id=True)
        cluster_id = broker.cluster_id
        broker.kill()
        for node_id in (2, 3):
            path = tmp_path / f"node-{node_id}" / "meta.properties"
            path.write_text(path.read_text().replace(f"\ncluster.id={cluster_id}", f"\ncluster.id={former}"))
        broker.restart()
        assert cluster_ids(broker) == {cluster_id}
        broker.restart()
        assert cluster_ids(broker) == {cluster_id}
        assert topics_of(broker) == {"orders": [0, 1]}


def test_each_test_of_a_suite_gets_a_clean_broker(
    run_pytest: Callable[..., CompletedProcess[str]], tmp_path: Path
):
    (tmp_path / "test_it.py").write_text(
        """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_it(odradek, number):
    assert odradek.faults.list() == []
    odradek.faults.add("Produce -> drop")
    odradek.clock.advance("1d")
    assert odradek.clock.ahead_ms["ids"] == 86_400_000
"""
    )
    done = run_pytest(tmp_path, "-q")
    assert "3 passed" in done.stdout, done.stdout + done.stderr
