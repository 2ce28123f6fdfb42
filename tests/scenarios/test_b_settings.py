"""Scenarios B: settings of transactions, of the broker and of its clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from kio.schema.errors import ErrorCode

import odradek
from tests.scenarios.conftest import NewProducer
from tests.support.broker import Broker, StartBroker
from tests.support.clients import (
    COMPLETE_ABORT,
    PREPARE_ABORT,
    STATE_TOPIC,
    ConfluentProducer,
    Refused,
    TransactionalProducer,
    eventually,
    statuses,
    topics,
    transaction_log,
    values,
)
from tests.support.deadlines import HANG_S
from tests.support.raw import free_port
from tests.support.readers import reader
from tests.support.relay import Relay

PRODUCER_APIS = ("add_partitions_to_txn", "produce", "end_txn")
TIMED_OUT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}


def send_and_commit(producer: TransactionalProducer, value: str) -> None:
    producer.send("orders", [value])
    producer.commit()


def transact(producer: TransactionalProducer, value: str) -> None:
    producer.begin()
    send_and_commit(producer, value)


def test_an_idle_transactional_id_expires_with_a_tombstone(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario B1: after the tombstone the old instance gets INVALID_PRODUCER_ID_MAPPING (49).

    A new instance gets a new producer id.
    """
    control = free_port()
    start_relayed(
        "--control-port",
        str(control),
        topics=["orders:1"],
        settings={
            "transactional.id.expiration.ms": 3_600_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 50,
        },
    )
    clock = odradek.connect(f"http://127.0.0.1:{control}").clock
    producer = new_producer(relay.bootstrap, "orders")
    producer.init()
    transact(producer, "before")
    clock.advance("59m", only=["ids"])
    assert transaction_log(relay.bootstrap, "orders")[-1] is not None
    clock.advance("2m", only=["ids"])
    eventually(lambda: transaction_log(relay.bootstrap, "orders")[-1] is None, "a tombstone")

    with pytest.raises(Refused):
        transact(producer, "from one that is forgotten")
    assert relay.errors(*PRODUCER_APIS) >= {ErrorCode.invalid_producer_id_mapping}

    (old,) = {each.producer_id for each in transaction_log(relay.bootstrap, "orders") if each}
    new_producer(relay.bootstrap, "orders").init()
    assert {each.producer_id for each in transaction_log(relay.bootstrap, "orders") if each} > {old}
    assert values(relay.bootstrap, "orders") == ["before"]


@pytest.mark.parametrize(
    ("settings", "allowed_ms"),
    [({}, 900_000), ({"transaction.max.timeout.ms": 30_000}, 30_000)],
    ids=["default", "set"],
)
def test_a_longer_timeout_than_allowed_is_refused(
    client: str,
    settings: dict[str, int],
    allowed_ms: int,
    new_producer: NewProducer,
    start_relayed: Callable[..., Broker],
    relay: Relay,
):
    """Scenario B2: a timeout of 1 ms above the maximum gets INVALID_TRANSACTION_TIMEOUT from InitProducerId."""
    start_relayed(settings=settings)
    new_producer(relay.bootstrap, "just right", transaction_timeout_ms=allowed_ms).init()
    assert relay.errors("init_producer_id") == set()
    greedy = new_producer(relay.bootstrap, "too long", transaction_timeout_ms=allowed_ms + 1)
    with pytest.raises(Refused):
        greedy.init()
    assert relay.errors("init_producer_id") == {ErrorCode.invalid_transaction_timeout}


def topic_settings(broker: Broker, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(HANG_S).items()}


def test_the_transaction_log_is_made_as_the_settings_say(start_broker: StartBroker):
    """Scenario B3: __transaction_state has the number of partitions and the segment size of the settings.

    Its replication factor and min.isr are lowered to 1, the number of nodes.
    """
    broker = start_broker(
        settings={
            "transaction.state.log.num.partitions": 7,
            "transaction.state.log.segment.bytes": 1_048_576,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
        }
    )
    for number in range(10):
        ConfluentProducer(broker.bootstrap, transactional_id=f"id-{number}").init()
    assert topics(broker.bootstrap)[STATE_TOPIC] == 7
    found = topic_settings(broker, STATE_TOPIC)
    assert found["cleanup.policy"] == "compact"
    assert found["segment.bytes"] == "1048576"
    assert found["min.insync.replicas"] == "1"


def test_the_defaults_are_those_of_kafka_s_single_node_image(start_broker: StartBroker):
    """Scenario B3: __transaction_state has 50 partitions of one replica, with segments of 100 MiB."""
    broker = start_broker()
    ConfluentProducer(broker.bootstrap, transactional_id="orders").init()
    assert topics(broker.bootstrap)[STATE_TOPIC] == 50
    found = topic_settings(broker, STATE_TOPIC)
    assert (found["segment.bytes"], found["min.insync.replicas"]) == ("104857600", "1")


def test_one_setting_restores_kafka_s_own_defaults(start_broker: StartBroker):
    """Scenario B3: with Kafka's own default of three replicas a single node has no coordinator, as in Kafka."""
    broker = start_broker(settings={"odradek.defaults": "kafka"})
    producer = ConfluentProducer(broker.bootstrap, transactional_id="orders", call_timeout_s=1)
    with pytest.raises(Refused) as refused:
        producer.init()
    assert set(refused.value.names) & {"_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"}
    assert STATE_TOPIC not in topics(broker.bootstrap)


def test_a_transaction_left_open_too_long_is_aborted_and_its_producer_fenced(
    client: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario B4: the coordinator aborts the transaction after its timeout, and its producer is fenced."""
    broker = start_broker(topics=["orders:1"], settings=TIMED_OUT)
    producer = new_producer(broker.bootstrap, "orders", transaction_timeout_ms=1000)
    producer.init()
    producer.begin()
    producer.send("orders", ["too late"])
    eventually(lambda: statuses(broker.bootstrap, "orders")[-1] == COMPLETE_ABORT, "aborted")
    assert PREPARE_ABORT in statuses(broker.bootstrap, "orders")

    with pytest.raises(Refused):
        send_and_commit(producer, "much too late")
    assert values(broker.bootstrap, "orders") == []

    heir = new_producer(broker.bootstrap, "orders")
    heir.init()
    transact(heir, "in time")
    assert values(broker.bootstrap, "orders") == ["in time"]


@pytest.mark.feature("read_committed")
def test_the_isolation_level_decides_what_a_consumer_sees(client: str, start_broker: StartBroker):
    """Scenario B5: read_committed consumers get committed and plain records up to the last stable offset.

    The records come in the order of their offsets.
    """
    broker = start_broker(topics=["orders:1"])
    plain = ConfluentProducer(broker.bootstrap)
    writer = ConfluentProducer(broker.bootstrap, transactional_id="writer")
    writer.init()
    plain.send("orders", ["plain 1"])
    for end, value in (("commit", "committed 1"), ("abort", "aborted"), ("commit", "committed 2")):
        writer.begin()
        writer.send("orders", [value])
        plain.send("orders", [f"plain beside {value}"])
        getattr(writer, end)()
    writer.begin()
    writer.send("orders", ["open"])
    plain.send("orders", ["plain behind the open one"])

    shown = [
        "plain 1",
        "committed 1",
        "plain beside committed 1",
        "plain beside aborted",
        "committed 2",
        "plain beside committed 2",
    ]
    everything = [*shown[:3], "aborted", *shown[3:], "open", "plain behind the open one"]
    with reader(client, broker.bootstrap, "orders", "read_uncommitted") as reading:
        assert reading.read(len(everything)) == everything
    with reader(client, broker.bootstrap, "orders", "read_committed") as reading:
        assert reading.read(len(shown)) == shown
        assert reading.sees() == []
        writer.commit()
        assert reading.read(2) == ["open", "plain behind the open one"]
