"""Scenarios C1 to C4 with fault rules that drop, delay or duplicate requests, or drop responses.

They show the guarantee of each producer setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import NewProducer
from tests.support.clients import CLIENTS, Refused, batches_of, eventually, texts
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess

# The clients' names of the same settings.
IDEMPOTENCE = {
    "confluent": "enable.idempotence",
    "java": "enable.idempotence",
    "kafka-python": "enable_idempotence",
    "aiokafka": "enable_idempotence",
}
PATIENT = {
    "confluent": {"socket.timeout.ms": 10_000},
    "java": {"request.timeout.ms": 5_000, "delivery.timeout.ms": 20_000},
    "kafka-python": {"request_timeout_ms": 5_000},
    "aiokafka": {"request_timeout_ms": 5_000},
}
NEVER_AGAIN = {"confluent": {"retries": 0}, "java": {"retries": 0}, "kafka-python": {"retries": 0}}
"""Settings for at most once. aiokafka has no such setting: it retries until its request timeout."""
IN_A_SECOND = {
    "confluent": {"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000},
    "java": {"request.timeout.ms": 1_000, "delivery.timeout.ms": 20_000},
    "kafka-python": {"request_timeout_ms": 1_000},
    "aiokafka": {"request_timeout_ms": 1_000},
}

JAVA = pytest.param("java", marks=pytest.mark.java)
WITH_NEVER_AGAIN = ["confluent", JAVA, "kafka-python"]
LOSSES = ["lose-request", "lose-answer"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path, "--topic", "orders:1") as broker:
        yield broker


def plain(client: str, acks: int, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Settings of a producer without idempotence."""
    said: Any = acks
    if acks == -1 or client == "java":
        said = {-1: "all", 0: "0", 1: "1"}[acks]
    return {IDEMPOTENCE[client]: False, "acks": said} | PATIENT[client] | (more or {})


def written(broker: InProcess) -> list[str]:
    return texts(broker.bootstrap, "orders")


# ---- C1, C2, C3: idempotent producers


@pytest.mark.parametrize("loss", LOSSES)
def test_an_idempotent_producer_writes_each_record_once_whatever_is_lost(
    loss: str, client: str, new_producer: NewProducer, broker: InProcess
):
    """Scenarios C1, C4: after a lost request or response the client sends the batch again. The log has it once."""
    producer = new_producer(broker.bootstrap, more=PATIENT[client])
    assert producer.send("orders", ["one"]) == [(0, 0)]
    rule = broker.stage(f"Produce topic=orders nth=1 -> {loss}")
    assert producer.send("orders", ["two"]) == [(0, 1)]
    assert producer.send("orders", ["three"]) == [(0, 2)]
    assert rule.hits == 1
    assert written(broker) == ["one", "two", "three"]


def test_a_response_that_never_comes_has_the_effect_of_a_lost_one(
    client: str, new_producer: NewProducer, broker: InProcess
):
    """Scenario C1: no response comes on an open connection. The client resends the batch after its request timeout."""
    producer = new_producer(broker.bootstrap, more=IN_A_SECOND[client])
    producer.send("orders", ["one"])
    rule = broker.stage("Produce topic=orders nth=1 -> lose-answer silent")
    assert producer.send("orders", ["two"]) == [(0, 1)]
    assert rule.hits == 1
    assert written(broker) == ["one", "two"]


def test_an_answer_lost_in_a_transaction_commits_it_once(
    client: str, new_producer: NewProducer, broker: InProcess
):
    """Scenario C1: the responses to Produce and to EndTxn are lost, and the transaction is committed once."""
    producer = new_producer(broker.bootstrap, "payments", more=PATIENT[client])
    producer.init()
    rules = [
        broker.stage("Produce transactional_id=payments nth=1 -> lose-answer"),
        broker.stage("EndTxn transactional_id=payments nth=1 -> lose-answer"),
    ]
    producer.begin()
    producer.send("orders", ["one"])
    producer.commit()
    assert [rule.hits for rule in rules] == [1, 1]
    assert written(broker) == ["one"]
    data, marker = batches_of(broker.cluster.first.data_dir, "orders")
    assert (data.is_control, marker.is_control) == (False, True)


def test_a_batch_that_the_network_duplicates_is_written_once(
    client: str, new_producer: NewProducer, broker: InProcess
):
    """Scenario C2: each request is handled twice in sequence; only the first handling writes."""
    rule = broker.stage("Produce topic=orders -> duplicate")
    producer = new_producer(broker.bootstrap, more=PATIENT[client])
    for number in range(6):
        assert producer.send("orders", [str(number)]) == [(0, number)]
    assert rule.hits == 6
    assert written(broker) == [str(number) for number in range(6)]


def test_a_batch_that_lingers_in_the_network_is_written_once(
    client: str, new_producer: NewProducer, broker: InProcess
):
    """Scenario C2: the client sends the request again, and the first request arrives late.

    The broker recognises the duplicate.
    """
    producer = new_producer(broker.bootstrap, more=PATIENT[client])
    rule = broker.stage("Produce topic=orders nth=1 -> detach")
    assert producer.send("orders", ["one"]) == [(0, 0)]
    assert producer.send("orders", ["two"]) == [(0, 1)]
    assert broker.release(rule) == 1
    assert producer.send("orders", ["three"]) == [(0, 2)]
    assert written(broker) == ["one", "two", "three"]


def test_without_idempotence_a_delayed_batch_is_written_twice(
    client: str, new_producer: NewProducer, broker: InProcess
):
    producer = new_producer(broker.bootstrap, more=plain(client, acks=-1))
    rule = broker.stage("Produce topic=orders nth=1 -> detach")
    producer.send("orders", ["one"])
    producer.send("orders", ["two"])
    assert broker.release(rule) == 1
    assert written(broker) == ["one", "two", "one"]


# ---- C4: at least once, at most once


@pytest.mark.parametrize("acks", [1, -1], ids=["acks=1", "acks=all"])
@pytest.mark.parametrize(
    ("loss", "found"), list(zip(LOSSES, [["one", "two"], ["one", "two", "two"]], strict=True))
)
def test_at_least_once_shows_the_duplicate(
    loss: str, found: list[str], acks: int, client: str, new_producer: NewProducer, broker: InProcess
):
    """A client without idempotence retries: after a lost request the record is in the log once, after a lost
    response twice."""
    producer = new_producer(broker.bootstrap, more=plain(client, acks))
    producer.send("orders", ["one"])
    rule = broker.stage(f"Produce topic=orders nth=1 -> {loss}")
    producer.send("orders", ["two"])
    assert rule.hits == 1
    assert written(broker) == found


@pytest.mark.parametrize("client", WITH_NEVER_AGAIN, indirect=True)
@pytest.mark.parametrize("acks", [1, -1], ids=["acks=1", "acks=all"])
@pytest.mark.parametrize(("loss", "found"), list(zip(LOSSES, [["one"], ["one", "two"]], strict=True)))
def test_at_most_once_shows_the_loss(
    loss: str, found: list[str], acks: int, client: str, new_producer: NewProducer, broker: InProcess
):
    """A client that does not retry gets an error after a lost request and after a lost response.

    The record is in the log only if the response was lost.
    """
    producer = new_producer(broker.bootstrap, more=plain(client, acks, NEVER_AGAIN[client]))
    producer.send("orders", ["one"])
    rule = broker.stage(f"Produce topic=orders nth=1 -> {loss}")
    with pytest.raises(Refused):
        producer.send("orders", ["two"])
    assert rule.hits == 1
    assert written(broker) == found


@pytest.mark.parametrize(("loss", "found"), list(zip(LOSSES, [["one"], ["one", "two"]], strict=True)))
def test_acks_0_loses_records_without_an_error(
    loss: str, found: list[str], client: str, new_producer: NewProducer, broker: InProcess
):
    """A client with acks=0 gets no error for a lost request, and its record is missing.

    A rule that loses responses has no effect, because there is no response.
    """
    producer = new_producer(broker.bootstrap, more=plain(client, acks=0))
    producer.send("orders", ["one"])
    eventually(lambda: written(broker) == ["one"], "the first record")
    rule = broker.stage(f"Produce topic=orders nth=1 -> {loss}")
    producer.send("orders", ["two"])
    broker.reached(rule)
    assert written(broker) == found


# ---- clients and errors


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"]
)
def test_clients_recover_from_an_error_that_passes(
    error: str, client: str, new_producer: NewProducer, broker: InProcess
):
    producer = new_producer(broker.bootstrap, more=PATIENT[client])
    rule = broker.stage(f"Produce topic=orders times=2 -> error {error}")
    assert producer.send("orders", ["one"]) == [(0, 0)]
    assert rule.hits == 2
    assert written(broker) == ["one"]


@pytest.mark.parametrize("client", ["confluent"], indirect=True)
def test_a_producer_that_stands_still_delays_no_other(new_producer: NewProducer, broker: InProcess):
    rule = broker.stage("Produce client_id=slow -> hold")
    slow: Any = new_producer(broker.bootstrap, more={"client.id": "slow", "delivery.timeout.ms": 20_000})
    sent: list[object] = []
    slow._producer.produce("orders", "slow", on_delivery=lambda error, message: sent.append(error))
    broker.reached(rule)
    new_producer(broker.bootstrap).send("orders", ["quick"])
    assert sent == []
    broker.release(rule)
    slow._producer.flush(HANG_S)
    assert sent == [None]
    assert written(broker) == ["quick", "slow"]


def test_every_client_has_its_settings_here():
    assert set(IDEMPOTENCE) == set(PATIENT) == set(IN_A_SECOND) == set(CLIENTS)
