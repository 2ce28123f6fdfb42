"""Nodes whose clocks are ahead of the cluster's clock or behind it, as their clients and coordinators see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from broker.cluster import NoSuchNode
from broker.metadata import NewTopic
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.transactions.transaction import TransactionState
from lab.cluster.skew import skew
from lab.control.routes.topics import RecordsForm, read_records
from tests.support.clients import ConfluentProducer, Refused
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess

if TYPE_CHECKING:
    from broker.node import Node
    from lab.control.ports import Control

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
WRITTEN = ("transactions", "ids", "retention", "groups")
"""Clock domains that these tests advance together, so that only a skew makes timestamps and timers differ."""
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.initial.task.delay.ms": 0,
}


class Story:
    def __init__(self, broker: InProcess, producer: ConfluentProducer) -> None:
        self.broker = broker
        self.producer = producer

    def skew(self, node_id: int, skew_ms: int) -> None:
        self.broker.call(lambda: skew(self.broker.cluster, node_id, skew_ms))

    def create(self, name: str, **configs: str) -> str:
        """Create a topic whose partition 0 is on node 1, and partition 1 on node 2."""
        topic = NewTopic(
            name,
            assignments=[(0, [1]), (1, [2])],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        [result] = self.broker.run(self.broker.cluster.metadata.replication_control.create_topics([topic]))
        assert not isinstance(result, Exception), result
        return name

    def send(self, topic: str, partition: int) -> None:
        self.producer.send(topic, ["value"], partition=partition)

    def timestamp_ms(self, topic: str, partition: int) -> int:
        control = cast("Control", SimpleNamespace(cluster=self.broker.cluster))
        read = self.broker.run(read_records(control, RecordsForm(topic=topic, partition=partition, offset=0)))
        return read.records[0].timestamp_ms

    def node(self, node_id: int) -> Node:
        node = self.broker.cluster.running(node_id)
        assert node is not None
        return node

    def log_start(self, topic: str, partition: int) -> int:
        """The log start offset at the leader of the partition."""
        held = self.broker.call(lambda: self.node(partition + 1).replicas.get(topic, partition))
        assert held is not None
        return held.log_start_offset

    def move(self, topic: str, node_id: int) -> None:
        """Make a node the leader of an internal topic's only partition, and so the only coordinator."""
        state = self.broker.cluster.metadata.topic(topic)
        assert state is not None
        if state.partitions[0].leader != node_id:
            self.broker.run(self.broker.cluster.metadata.replication_control.move_leader(topic, 0, node_id))

    def transactions(self) -> dict[str, Any]:
        """The transactions that node 2 coordinates, by transactional id."""
        entries = self.broker.call(lambda: self.node(2).transactions.all_entries())
        assert not isinstance(entries, int), entries
        return {entry.txn.transactional_id: entry.txn for entry in cast("Any", entries)}

    def open_transaction(self, transactional_id: str) -> ConfluentProducer:
        """Begin a transaction with a timeout of a minute, coordinated by node 1, and write a record."""
        producer = ConfluentProducer(self.broker.bootstrap, transactional_id=transactional_id)
        producer.init()
        self.move(TRANSACTION_STATE, 1)
        producer.begin()
        producer.send("orders", ["value"])
        return producer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    path: Path = tmp_path_factory.mktemp("skew")
    with InProcess(path, "--nodes", "2", "--topic", "orders:1", settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def producer(broker: InProcess) -> Iterator[ConfluentProducer]:
    producer = ConfluentProducer(broker.bootstrap, idempotent=False)
    yield producer
    producer.close()


@pytest.fixture
def story(broker: InProcess, producer: ConfluentProducer) -> Iterator[Story]:
    story = Story(broker, producer)
    yield story
    for node_id in (1, 2):
        story.skew(node_id, 0)


def test_nodes_stamp_records_by_their_own_clocks(story: Story) -> None:
    topic = story.create("stamped", message_timestamp_type="LogAppendTime")
    story.skew(2, -HOUR_MS)
    began_ms = story.broker.clock.now_ms()
    for partition in (0, 1):
        story.send(topic, partition)
    ended_ms = story.broker.clock.now_ms()
    assert began_ms <= story.timestamp_ms(topic, 0) <= ended_ms
    assert began_ms <= story.timestamp_ms(topic, 1) + HOUR_MS <= ended_ms


@pytest.mark.parametrize(
    ("setting", "skew_ms"),
    [("message_timestamp_after_max_ms", -30 * DAY_MS), ("message_timestamp_before_max_ms", 30 * DAY_MS)],
)
def test_a_node_refuses_timestamps_that_are_too_far_from_its_own_clock(
    story: Story, setting: str, skew_ms: int
) -> None:
    topic = story.create(setting, **{setting: str(10 * DAY_MS)})
    story.skew(2, skew_ms)
    story.send(topic, 0)
    with pytest.raises(Refused, match="INVALID_TIMESTAMP"):
        story.send(topic, 1)
    story.skew(2, 0)
    story.send(topic, 1)


def test_retention_deletes_earlier_where_the_clock_is_ahead(story: Story) -> None:
    topic = story.create("kept", retention_ms=str(7 * DAY_MS))
    for partition in (0, 1):
        story.send(topic, partition)
    story.skew(2, 8 * DAY_MS)
    story.broker.advance("6m", WRITTEN)
    assert [story.log_start(topic, partition) for partition in (0, 1)] == [0, 1]


def test_a_coordinator_that_is_ahead_aborts_a_transaction_of_another_earlier(story: Story) -> None:
    producer = story.open_transaction("early")
    story.skew(2, 2 * MINUTE_MS)
    story.move(TRANSACTION_STATE, 2)
    assert story.transactions()["early"].state is TransactionState.ONGOING
    story.broker.advance("11s", WRITTEN)
    aborted = story.transactions()["early"]
    assert aborted.state is TransactionState.COMPLETE_ABORT
    assert aborted.last_update_ms - aborted.start_ms >= 2 * MINUTE_MS
    producer.close()


def test_a_coordinator_that_is_behind_aborts_a_transaction_of_another_later(story: Story) -> None:
    producer = story.open_transaction("late")
    story.skew(2, -HOUR_MS)
    story.move(TRANSACTION_STATE, 2)
    story.broker.advance("59m", WRITTEN)
    assert story.transactions()["late"].state is TransactionState.ONGOING
    story.broker.advance("3m", WRITTEN)
    assert story.transactions()["late"].state is TransactionState.COMPLETE_ABORT
    producer.close()


def test_a_transaction_of_the_skewed_coordinator_itself_has_its_full_time(story: Story) -> None:
    story.skew(1, HOUR_MS)
    producer = story.open_transaction("own")
    story.broker.advance("30s", WRITTEN)
    producer.commit()
    producer.close()


def test_a_coordinator_that_is_ahead_forgets_ids_earlier(story: Story) -> None:
    producer = story.open_transaction("idle")
    producer.commit()
    producer.close()
    story.move(TRANSACTION_STATE, 2)
    story.broker.advance("61m", WRITTEN)
    assert "idle" in story.transactions()
    story.skew(2, 8 * DAY_MS)
    story.broker.advance("61m", WRITTEN)
    assert "idle" not in story.transactions()


def test_a_coordinator_that_is_ahead_expires_committed_offsets_earlier(story: Story) -> None:
    cluster = story.broker.cluster
    story.broker.run(cluster.metadata.auto_topic_creation.ensure_internal_topic(CONSUMER_OFFSETS))
    story.move(CONSUMER_OFFSETS, 1)
    with member(story) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    story.move(CONSUMER_OFFSETS, 2)
    story.broker.advance("11m", WRITTEN)
    assert committed(story) == 1
    story.skew(2, 8 * DAY_MS)
    story.broker.advance("11m", WRITTEN)
    assert committed(story) == OFFSET_INVALID


@contextmanager
def member(story: Story) -> Iterator[Consumer]:
    """A new consumer in the group `readers`. It looks up the group's coordinator at its first request."""
    consumer = Consumer({"bootstrap.servers": story.broker.bootstrap, "group.id": "readers"})
    yield consumer
    consumer.close()


def committed(story: Story) -> int:
    with member(story) as consumer:
        [found] = consumer.committed([TopicPartition("orders", 0)], timeout=HANG_S)
        return int(found.offset)


def test_a_node_that_is_not_there_has_no_clock(story: Story) -> None:
    with pytest.raises(NoSuchNode, match=r"there is no node 9: "):
        story.skew(9, HOUR_MS)
