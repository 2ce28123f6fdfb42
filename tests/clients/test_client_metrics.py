"""With default settings, clients push their metrics (KIP-714) to a broker that has a subscription."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.broker import Broker, StartBroker
from tests.support.clients import DEADLINE_S, PATIENCE, eventually
from tests.support.javaprog import java_clients

pytestmark = [pytest.mark.foreign, pytest.mark.feature("metrics of clients (KIP-714)")]
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
CONNECTIONS = "org.apache.kafka.producer.connection.creation.total"


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    """A broker with a subscription to the number of connections of each client with a client id ``etl-N``.

    The clients push this metric every 100 ms, and the broker writes it to its log.
    """
    broker = start_broker(topics=["orders:1"], settings={"odradek.client.telemetry.exporter": "log"})
    ran = java_clients().tool(
        CLIENT_METRICS,
        *("--bootstrap-server", broker.bootstrap, "--alter", "--name", "connections"),
        *("--metrics", CONNECTIONS, "--interval", 100, "--match", "client_id=etl-[0-9]+"),
    )
    assert ran.status == 0, ran.err
    return broker


def pushes(broker: Broker, client_id: str) -> list[dict[str, Any]]:
    """The log lines with metrics of this client."""
    lines = [json.loads(line) for line in broker.log_file.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "client metrics" and line["client_id"] == client_id]


@pytest.mark.client("Java")
def test_a_java_producer_pushes_its_metrics(broker: Broker):
    java = java_clients()
    config = {"bootstrap.servers": broker.bootstrap, "client.id": "etl-1"}
    producer = java.ask("producer", config=config)
    java.ask("send", on=producer, records=[["orders", 0, None, "one"]])
    eventually(lambda: pushes(broker, "etl-1"), "its metrics are in the log")
    java.ask("close", on=producer)
    first = pushes(broker, "etl-1")[0]
    assert first["client_software_name"] == "apache-kafka-java"
    assert first["metrics"][CONNECTIONS] > 0


@pytest.mark.client("librdkafka (confluent-kafka)")
def test_librdkafka_pushes_its_metrics(broker: Broker):
    producer = Producer({**PATIENCE, "bootstrap.servers": broker.bootstrap, "client.id": "etl-2"})
    stranger = Producer({**PATIENCE, "bootstrap.servers": broker.bootstrap, "client.id": "stranger"})
    for each in (producer, stranger):
        each.produce("orders", "one")
        assert each.flush(DEADLINE_S) == 0
    eventually(lambda: pushes(broker, "etl-2"), "its metrics are in the log")
    first = pushes(broker, "etl-2")[0]
    assert first["client_software_name"] == "confluent-kafka-python"
    assert list(first["metrics"]) == [CONNECTIONS]
    assert not pushes(broker, "stranger")
