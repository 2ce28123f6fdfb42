"""The proxy in front of Apache Kafka: unchanged clients, and the proxy's own tools."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.proxy.test_before_our_nodes import ERRORS_FOR_IDS, RECORDS, errors_for_ids, move, results, source
from tests.support import kafka_oracle, raw
from tests.support.clients import PATIENCE, ConfluentProducer, JavaProducer, read
from tests.support.content import Asked
from tests.support.deadlines import HANG_S
from tests.support.javaprog import java_clients, worker_command
from tests.support.proxy import ProxyProcess

pytestmark = [pytest.mark.java, pytest.mark.more]


def test_the_ids_that_a_client_expects_reach_kafka(tmp_path: Path) -> None:
    """Kafka 4.4.0 compares the ids of ApiVersions v5 with its own, also through the proxy."""
    settings = kafka_oracle.format_directory(tmp_path, release="4.4.0")
    with kafka_oracle.started(settings, release="4.4.0") as kafka:
        upstream = f"{kafka.host}:{kafka.port}"
        with ProxyProcess(tmp_path / "proxy", upstream) as proxy:
            found = [errors_for_ids(each) for each in (upstream, proxy.bootstrap_servers)]
        assert found == [ERRORS_FOR_IDS] * 2


@dataclass
class Before:
    """Apache Kafka with the proxy in front of it."""

    kafka: kafka_oracle.Oracle
    proxy: ProxyProcess

    @property
    def bootstrap(self) -> str:
        return self.proxy.bootstrap_servers

    @property
    def options(self) -> dict[str, Any]:
        return {**PATIENCE, "bootstrap.servers": self.bootstrap}

    def topics(self, *names: str, partitions: int = 3) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for created in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
            created.result(HANG_S)

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.proxy.control_url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Before]:
    directory: Path = tmp_path_factory.mktemp("before-kafka")
    with (
        kafka_oracle.kafka() as kafka,
        ProxyProcess(directory, f"{kafka.host}:{kafka.port}", control=True) as proxy,
    ):
        yield Before(kafka, proxy)


def test_it_announces_what_kafka_has_but_sasl(before: Before) -> None:
    def announced(port: int) -> dict[int, tuple[int, int]]:
        with Asked("127.0.0.1", port) as ask:
            rows = ask("api_versions", 4, client_software_name="raw", client_software_version="1")["api_keys"]
        return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}

    direct = announced(before.kafka.port)
    through = announced(int(before.bootstrap.rpartition(":")[2]))
    assert raw.API_KEYS["sasl_handshake"] not in through
    direct.pop(raw.API_KEYS["sasl_handshake"], None)
    direct.pop(raw.API_KEYS["sasl_authenticate"], None)
    assert through == direct


def test_an_exactly_once_loop_of_confluent_kafka(before: Before) -> None:
    before.topics("orders", "results")
    source(before.options)
    move(before.options)
    assert sorted(results(before.options)) == list(range(RECORDS))


def test_an_exactly_once_loop_of_java(before: Before) -> None:
    before.topics("java-source", "java-sink", partitions=2)
    producer = ConfluentProducer(before.bootstrap)
    for partition in (0, 1):
        producer.send("java-source", [str(each) for each in range(20)], partition=partition)
    producer.close()
    command = worker_command(before.bootstrap, "java-source", "java-sink", "never:1")
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        read(before.bootstrap, "java-sink", expected=40)
    finally:
        worker.kill()
        worker.wait(HANG_S)
    # A duplicate by the worker would come after the 40 records.
    assert len(read(before.bootstrap, "java-sink")) == 40


def test_the_first_record_of_a_new_topic_is_lost_silently(before: Before) -> None:
    """The recipe of docs/cookbook.md, on Apache Kafka: before 4.5 it accepts any first sequence (KAFKA-15591)."""
    before.topics("new", partitions=1)
    rule = before.call(
        "POST", "/v1/faults", {"rule": "Produce topic=new nth=1 -> error NOT_LEADER_OR_FOLLOWER"}
    )
    errors: list[object] = []
    producer = Producer({**before.options, "enable.idempotence": True, "batch.num.messages": 1})
    for value in ("first", "second"):
        producer.produce("new", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(HANG_S) == 0
    assert before.call("GET", f"/v1/faults/{rule['id']}")["hits"] == 1
    assert errors == [None, None]
    assert [record.value for record in read(before.bootstrap, "new")] == ["second"]


def test_a_lost_answer_to_java_is_one_commit(before: Before) -> None:
    before.topics("lost", partitions=1)
    producer = JavaProducer(before.bootstrap, transactional_id="lost-answers")
    producer.init()
    rule = before.call(
        "POST", "/v1/faults", {"rule": "EndTxn transactional_id=lost-answers nth=1 -> lose-answer"}
    )
    before.call("POST", "/v1/trace/start")
    producer.begin()
    producer.send("lost", ["a", "b"])
    producer.commit()
    producer.close()
    assert before.call("GET", f"/v1/faults/{rule['id']}")["hits"] == 1
    timeline = before.call("GET", "/v1/transactions/lost-answers/timeline")
    (transaction,) = timeline["timeline"]["transactions"]
    assert (transaction["verdict"], transaction["records"]) == ("committed", 2)
    assert "ANSWER LOST by a rule" in timeline["text"]
    before.call("POST", "/v1/trace/stop")
    before.call("DELETE", "/v1/faults")


def test_views_show_what_kafka_holds(before: Before) -> None:
    before.topics("held", partitions=1)
    producer = ConfluentProducer(before.bootstrap, transactional_id="held-open")
    producer.init()
    producer.begin()
    producer.send("held", ["a", "b", "c"])
    cluster = before.call("GET", "/v1/views/cluster")
    assert [(each["node"], each["state"]) for each in cluster["nodes"]] == [(1, "running")]
    summary = before.call("GET", "/v1/views/transactions")
    (found,) = [each for each in summary["transactions"] if each["transactional_id"] == "held-open"]
    assert (found["state"], found["partitions"]) == ("Ongoing", ["held-0"])
    assert [(each["first_offset"], each["records"]) for each in found["holds_up"]] == [(0, 3)]
    (partition,) = before.call("GET", "/v1/views/partitions?topic=held")["partitions"]
    assert (partition["last_stable"], partition["high_watermark"]) == (0, 3)
    assert [each["transactional_id"] for each in partition["open"]] == ["held-open"]
    producer.abort()
    producer.close()


def test_console_tools_of_kafka_work_through_it(before: Before) -> None:
    before.topics("described", partitions=2)
    where = ("--bootstrap-server", before.bootstrap)
    described = java_clients().tool(
        "org.apache.kafka.tools.TopicCommand", *where, "--describe", "--topic", "described"
    )
    assert described.out.count("Leader: 1") == 2
    listed = java_clients().tool("org.apache.kafka.tools.ClientMetricsCommand", *where, "--list")
    assert listed.status == 0, listed
