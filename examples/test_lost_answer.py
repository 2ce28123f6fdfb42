"""Tests to copy: your own code between two topics, at the moments at which exactly-once usually breaks.

pip install odradek confluent-kafka pytest
pytest test_lost_answer.py

``double_all`` is a placeholder for the code that you want to test. Each test injects one failure by one line. The broker,
its topics and the rules come from Odradek's fixtures and are removed after the tests.
"""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

NUMBERS = range(20)
# librdkafka 2.16 drops its only broker when a connection breaks. If that broker was the coordinator of the group,
# send_offsets_to_transaction may then wait forever (its issues 5511 and 5456).
KEEPS_ITS_BROKER = {"metadata.recovery.strategy": "none"}


@pytest.fixture(scope="session")
def odradek_options():
    return {"topics": ["numbers:1", "doubled:1"]}


@pytest.fixture
def broker(odradek_cluster):
    """A broker for each test, with empty topics."""
    broker = odradek_cluster()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in NUMBERS:
        producer.produce("numbers", str(number))
    assert producer.flush(20) == 0
    return broker


def double_all(bootstrap_servers):
    """Read numbers and write their doubles, ten in one transaction, which also commits the consumed offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "doubling",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **KEEPS_ITS_BROKER,
        }
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "doubling", **KEEPS_ITS_BROKER}
    )
    producer.init_transactions(20)
    (committed,) = consumer.committed([TopicPartition("numbers", 0)], 20)
    position = max(committed.offset, 0)
    consumer.assign([TopicPartition("numbers", 0, position)])
    while position < len(NUMBERS):
        messages = consumer.consume(10, 20)
        assert messages, "no number within 20 seconds"
        producer.begin_transaction()
        for message in messages:
            producer.produce("doubled", str(int(message.value()) * 2))
            position = message.offset() + 1
        positions = [TopicPartition("numbers", 0, position)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        while True:
            try:
                producer.commit_transaction(20)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
    consumer.close()


def doubled(bootstrap_servers):
    """The records that a read_committed consumer sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("doubled", 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize(
    "rule",
    [
        "EndTxn nth=1 -> lose-answer",  # the coordinator has committed, but the client gets no response
        "EndTxn nth=2 -> lose-request",  # the coordinator has not committed, and the client gets no response
        "TxnOffsetCommit nth=1 -> lose-answer",
        "AddPartitionsToTxn nth=1 -> error CONCURRENT_TRANSACTIONS",
        "Produce topic=doubled nth=2 -> lose-answer",  # the client sends the batch again, which is a duplicate
        "txn.marker topic=doubled nth=1 -> delay 300ms",  # committed, but not visible yet
    ],
)
def test_each_number_is_doubled_once(broker, rule):
    staged = broker.faults.add(rule)
    double_all(broker.bootstrap_servers)
    assert staged.wait().hits == 1
    assert doubled(broker.bootstrap_servers) == [number * 2 for number in NUMBERS]


def test_what_a_dead_worker_left_open_is_gone_before_the_next_one_writes(broker):
    dead = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "doubling"})
    dead.init_transactions(20)
    dead.begin_transaction()
    dead.produce("doubled", "666")
    dead.flush(20)
    double_all(broker.bootstrap_servers)
    assert doubled(broker.bootstrap_servers) == [number * 2 for number in NUMBERS]
    with pytest.raises(KafkaException):
        dead.commit_transaction(20)
