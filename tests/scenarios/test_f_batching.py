"""Scenarios F: how clients choose partitions and build batches, and how the broker stores batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.scenarios.conftest import NewProducer, named
from tests.support.broker import Broker, StartBroker
from tests.support.clients import (
    CLIENTS,
    DEADLINE_S,
    JavaProducer,
    batches_of,
    eventually,
    topics,
    values,
)
from tests.support.relay import Relay

KEYS = ["Gregor", "Josef K.", "Odradek", "Leni", "Barnabas", "Rotpeter", "der Türhüter", "Frieda"]


def murmur2_partition(key: str, partitions: int) -> int:
    """The partition that Kafka's own clients choose for a key."""
    data = key.encode()
    mask = 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & mask
        k ^= k >> 24
        h = (h * 0x5BD1E995 & mask) ^ (k * 0x5BD1E995 & mask)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    h = (h ^ (h >> 13)) * 0x5BD1E995 & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


@pytest.mark.java
def test_all_clients_agree_on_the_partition_of_a_key_until_there_are_more_partitions(
    start_broker: StartBroker,
):
    """Scenario F1: all clients choose the same partition for a key.

    The choice depends on the number of partitions in Metadata.
    """
    broker = start_broker(topics=["orders:3"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for count in (3, 8):
        if count != 3:
            (grown,) = admin.create_partitions([NewPartitions("orders", count)]).values()
            grown.result(DEADLINE_S)
        assert topics(broker.bootstrap)["orders"] == count
        for kind in CLIENTS.values():
            producer = kind(broker.bootstrap)
            for _ in range(2):
                places = producer.send("orders", KEYS, partition=None, keys=KEYS)
                # Acknowledgements of different partitions come in any order.
                chosen = Counter(partition for partition, _ in places)
                assert chosen == Counter(murmur2_partition(key, count) for key in KEYS), kind
            producer.close()


@pytest.mark.java
def test_a_producer_learns_of_new_partitions_by_itself(start_broker: StartBroker):
    """Scenario F1: a running producer sends to new partitions after its metadata has expired."""
    broker = start_broker(topics=["orders:1"])
    producer = JavaProducer(broker.bootstrap, more={"metadata.max.age.ms": 100})
    assert {place[0] for place in producer.send("orders", KEYS, partition=None, keys=KEYS)} == {0}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (grown,) = admin.create_partitions([NewPartitions("orders", 3)]).values()
    grown.result(DEADLINE_S)
    expected = [murmur2_partition(key, 3) for key in KEYS]
    eventually(
        lambda: [place[0] for place in producer.send("orders", KEYS, partition=None, keys=KEYS)] == expected,
        "keys go to three partitions",
    )
    producer.close()


@pytest.mark.java
def test_round_robin_and_sticky_partitioners_do_what_they_are_called(start_broker: StartBroker):
    """Scenario F1: Java's round-robin partitioner sends records without keys to each partition in turn.

    The sticky partitioner sends all records of a batch to one partition.
    """
    broker = start_broker(topics=["even:4", "sticky:4"])
    even = JavaProducer(
        broker.bootstrap,
        more={"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
    )
    places = even.send("even", [str(number) for number in range(40)], partition=None)
    assert Counter(partition for partition, _ in places) == dict.fromkeys(range(4), 10)
    even.close()

    sticky = JavaProducer(broker.bootstrap, linger_ms=100)
    places = sticky.send("sticky", [str(number) for number in range(100)], partition=None)
    assert len({partition for partition, _ in places}) == 1
    sticky.close()


def test_a_thousand_records_in_one_request_are_one_append(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario F2: linger and batch size make one batch, and the broker stores it as one."""
    broker = start_relayed(topics=["orders:1"])
    more = {
        "confluent": {"batch.size": 1_000_000, "batch.num.messages": 1000, "linger.ms": 5000},
        "java": {"batch.size": 22_000, "linger.ms": 5000},
        "kafka-python": {"batch_size": 1_000_000},
        "aiokafka": {"max_batch_size": 1_000_000},
    }[client]
    producer = new_producer(relay.bootstrap, linger_ms=500, more=more)
    sent = [f"{number:04}" for number in range(1000)]
    producer.send("orders", sent)

    batches = batches_of(broker.data_dir, "orders")
    assert len(relay.seen("produce")) == len(batches)
    assert sum(batch.record_count for batch in batches) == 1000
    assert len(batches) == 1
    assert values(relay.bootstrap, "orders") == sent


# Without optional packages kafka-python supports only gzip.
CODECS = [
    named(name, codec, marks=[pytest.mark.java] if name == "java" else [])
    for name in CLIENTS
    for codec in ("gzip", "snappy", "lz4", "zstd")
    if name != "kafka-python" or codec == "gzip"
]


@pytest.mark.feature("every codec")
@pytest.mark.parametrize(("client", "codec"), CODECS, indirect=["client"])
def test_a_compressed_batch_is_kept_as_it_was_sent(
    client: str,
    codec: str,
    new_producer: NewProducer,
    start_relayed: Callable[..., Broker],
    relay: Relay,
):
    """Scenario F2: the segment has the bytes of the request, and every consumer can decompress them."""
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, linger_ms=100, compression=codec)
    sent = [f"the same again and again {number}" for number in range(100)]
    producer.send("orders", sent)

    batches = batches_of(broker.data_dir, "orders")
    assert {batch.codec for batch in batches} == {codec}
    requests = b"".join(exchange.request for exchange in relay.seen("produce"))
    assert all(batch.records in requests for batch in batches)
    assert values(relay.bootstrap, "orders") == sent
