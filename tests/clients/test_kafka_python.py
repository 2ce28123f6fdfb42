"""kafka-python without transactions: groups and the admin client."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.broker import Broker, StartBroker
from tests.support.clients import KafkaPythonProducer, eventually, tidy, topics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka
    from kafka.admin import KafkaAdminClient, NewTopic

pytestmark = pytest.mark.client("kafka-python")


@contextlib.contextmanager
def consumer(broker: Broker, **more: Any) -> Iterator[kafka.KafkaConsumer]:
    made = kafka.KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        fetch_max_wait_ms=50,
        **more,
    )
    # A leader without the topic's metadata assigns no partitions, possibly for minutes: a race in kafka-python 3.0, with
    # Apache Kafka too.
    made.partitions_for_topic("orders")
    try:
        yield made
    finally:
        made.close(autocommit=False)
        tidy()


def poll(*consumers: kafka.KafkaConsumer) -> list[str]:
    return [
        record.value.decode()
        for each in consumers
        for records in each.poll(50).values()
        for record in records
    ]


@pytest.mark.feature("idempotence", "produce and read")
def test_an_idempotent_producer_s_records_are_read_by_a_group_which_goes_on_where_it_was(
    start_broker: StartBroker,
):
    broker = start_broker(topics=["orders:1"])
    producer = KafkaPythonProducer(broker.bootstrap)
    producer.send("orders", ["a", "b"])
    for expected, next_values in ((["a", "b"], ["c"]), (["c"], [])):
        with consumer(broker, enable_auto_commit=False) as reading:
            found: list[str] = []
            eventually(lambda: found.extend(poll(reading)) or len(found) >= len(expected), "read")  # noqa: B023
            assert found == expected
            reading.commit()
            if next_values:
                producer.send("orders", next_values)
    producer.close()


@pytest.mark.feature("classic group")
def test_two_members_share_the_partitions(start_broker: StartBroker):
    """Two members share the partitions. Each polls in a thread of its own.

    If they took turns, they might rebalance forever: kafka-python 3.0 drops the SyncGroup response if the poll has timed out
    by then, and a leader that joins again begins the next rebalance.
    """
    broker = start_broker(topics=["orders:4"])
    with consumer(broker) as first, consumer(broker) as second, ThreadPoolExecutor(2) as threads:
        done = threading.Event()

        def keep_polling(member: kafka.KafkaConsumer) -> None:
            while not done.is_set():
                member.poll(2_000)

        polling = [threads.submit(keep_polling, member) for member in (first, second)]
        try:
            eventually(
                lambda: len(first.assignment()) == len(second.assignment()) == 2,
                "each member has two partitions",
            )
        finally:
            done.set()
        for each in polling:
            each.result()
        assert len(first.assignment() | second.assignment()) == 4


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()
    tidy()


@pytest.mark.feature("topics and settings")
def test_the_admin_client_creates_lists_describes_and_deletes(admin: KafkaAdminClient, broker: Broker):
    admin.create_topics([NewTopic("orders", 2, 1)])
    assert topics(broker.bootstrap) == {"orders": 2}
    assert admin.list_topics() == ["orders"]
    (described,) = admin.describe_topics(["orders"])
    assert len(described["partitions"]) == 2
    admin.create_partitions({"orders": 3})
    assert topics(broker.bootstrap) == {"orders": 3}
    admin.delete_topics(["orders"])
    assert topics(broker.bootstrap) == {}
