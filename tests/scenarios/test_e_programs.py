"""Scenarios E: the first programs of new users: a dozen lines of Python, a console producer."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.support.broker import Broker
from tests.support.clients import batches_of, values
from tests.support.javaprog import java_clients


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transactional_producer_in_a_dozen_lines(end: str, broker: Broker):
    """Scenario E6: a program as in every tutorial commits or aborts ten records in an auto-created topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "first-steps"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.produce("greetings", key=str(number), value=f"hello {number}")
    producer.flush()
    if end == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()

    expected = [f"hello {number}" for number in range(10)] if end == "commit" else []
    assert values(broker.bootstrap, "greetings") == expected
    assert len(values(broker.bootstrap, "greetings", "read_uncommitted")) == 10


@pytest.mark.java
def test_the_console_producer_is_idempotent(broker: Broker, tmp_path):
    """Scenario E7: the console producer's input lines are in the log, with a producer id and sequences."""
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nacks=all\n")
    ran = java_clients().tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap),
        *("--topic", "greetings"),
        *("--command-config", settings),
        input="hello\nworld\n",
    )
    assert ran.status == 0, ran
    assert values(broker.bootstrap, "greetings") == ["hello", "world"]
    batches = batches_of(broker.data_dir, "greetings")
    assert all(batch.producer_id >= 0 for batch in batches)
    assert batches[0].base_sequence == 0
