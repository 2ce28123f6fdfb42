"""confluent-kafka without transactions: its admin client, and its consumers in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.support.broker import Broker, StartBroker
from tests.support.clients import DEADLINE_S, PATIENCE, ConfluentProducer, eventually, topics, values

pytestmark = pytest.mark.client("librdkafka (confluent-kafka)")


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({**PATIENCE, "bootstrap.servers": broker.bootstrap})


def done(futures: dict[Any, Any]) -> Any:
    """Wait for the only future in ``futures``, and return its result."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


@pytest.mark.feature("topics and settings")
def test_topics_are_created_grown_and_deleted(admin: AdminClient, broker: Broker):
    done(admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "1234"})]))
    with pytest.raises(KafkaException) as refused:
        done(admin.create_topics([NewTopic("orders", 2, 1)]))
    assert refused.value.args[0].name() == "TOPIC_ALREADY_EXISTS"
    done(admin.create_partitions([NewPartitions("orders", 4)]))
    assert topics(broker.bootstrap) == {"orders": 4}
    configs = done(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")]))
    assert configs["retention.ms"].value == "1234"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].is_default
    done(admin.delete_topics(["orders"]))
    assert topics(broker.bootstrap) == {}


@pytest.mark.feature("administration")
def test_the_cluster_and_topics_are_described(admin: AdminClient, broker: Broker):
    from confluent_kafka import TopicCollection

    done(admin.create_topics([NewTopic("orders", 2, 1)]))
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, broker.host, broker.port)]
    described = done(admin.describe_topics(TopicCollection(["orders"])))
    assert [partition.leader.id for partition in described.partitions] == [1, 1]


@pytest.mark.feature("administration")
def test_offsets_are_listed_and_records_deleted(admin: AdminClient, broker: Broker):
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    ConfluentProducer(broker.bootstrap).send("orders", [str(number) for number in range(10)])
    place = TopicPartition("orders", 0)
    assert done(admin.list_offsets({place: OffsetSpec.latest()})).offset == 10
    deleted = done(admin.delete_records([TopicPartition("orders", 0, 4)]))
    assert deleted.low_watermark == 4
    assert done(admin.list_offsets({place: OffsetSpec.earliest()})).offset == 4
    assert values(broker.bootstrap, "orders") == ["4", "5", "6", "7", "8", "9"]


NewConsumer = Callable[..., Consumer]


@pytest.fixture
def new_consumer(start_broker: StartBroker) -> Iterator[NewConsumer]:
    made: list[Consumer] = []

    def make(broker: Broker, **more: Any) -> Consumer:
        config = {
            **PATIENCE,
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 20,
        }
        made.append(Consumer(config | {name.replace("_", "."): value for name, value in more.items()}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def assignments(*consumers: Consumer) -> list[set[int]]:
    """Poll each consumer once, as a rebalance progresses only in polls, and return their assignments."""
    for each in consumers:
        each.poll(0.02)
    return [{place.partition for place in each.assignment()} for each in consumers]


@pytest.mark.feature("classic group")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_reassigned_when_members_join_and_leave(
    strategy: str, start_broker: StartBroker, new_consumer: NewConsumer
):
    broker = start_broker(topics=["orders:4"])
    more = {"partition_assignment_strategy": strategy}
    first = new_consumer(broker, **more)
    first.subscribe(["orders"])
    eventually(lambda: assignments(first) == [{0, 1, 2, 3}], "the first member has all partitions")
    second = new_consumer(broker, **more)
    second.subscribe(["orders"])

    def fair() -> bool:
        one, other = assignments(first, second)
        return len(one) == len(other) == 2 and one | other == {0, 1, 2, 3}

    eventually(fair, "each member has two partitions")
    second.unsubscribe()
    eventually(
        lambda: assignments(first, second) == [{0, 1, 2, 3}, set()],
        "the first member has all partitions again",
    )


@pytest.mark.feature("classic group, static members")
def test_a_static_member_comes_back_to_what_it_had_without_a_rebalance(
    start_broker: StartBroker, new_consumer: NewConsumer
):
    broker = start_broker(topics=["orders:4"])
    staying, leaving = (new_consumer(broker, group_instance_id=f"member-{number}") for number in (1, 2))
    rebalances = []
    staying.subscribe(["orders"], on_assign=lambda _, places: rebalances.append(places))
    leaving.subscribe(["orders"])
    eventually(
        lambda: all(len(each) == 2 for each in assignments(staying, leaving)),
        "each member has two partitions",
    )
    had = assignments(staying, leaving)
    seen = len(rebalances)
    leaving.close()
    back = new_consumer(broker, group_instance_id="member-2")
    back.subscribe(["orders"])
    eventually(lambda: assignments(staying, back) == had, "each member has its old partitions")
    assert len(rebalances) == seen


@pytest.mark.feature("administration")
def test_groups_are_listed_described_altered_and_deleted(
    admin: AdminClient, broker: Broker, new_consumer: NewConsumer
):
    done(admin.create_topics([NewTopic("orders", 1, 1)]))
    ConfluentProducer(broker.bootstrap).send("orders", ["a", "b", "c"])
    consumer = new_consumer(broker, client_id="observer")
    consumer.subscribe(["orders"])
    eventually(lambda: assignments(consumer) == [{0}], "assigned")
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)

    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert [group.group_id for group in listed.valid] == ["readers"]
    described = done(admin.describe_consumer_groups(["readers"]))
    assert described.state.name == "STABLE"
    (member,) = described.members
    assert member.client_id == "observer"
    assert [place.partition for place in member.assignment.topic_partitions] == [0]
    asked = [ConsumerGroupTopicPartitions("readers")]
    (place,) = done(admin.list_consumer_group_offsets(asked)).topic_partitions
    assert (place.topic, place.offset) == ("orders", 2)
    with pytest.raises(KafkaException):
        done(admin.delete_consumer_groups(["readers"]))

    consumer.unsubscribe()
    consumer.close()
    eventually(lambda: done(admin.describe_consumer_groups(["readers"])).state.name == "EMPTY", "empty")
    new = [ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 0, 1)])]
    done(admin.alter_consumer_group_offsets(new))
    (place,) = done(admin.list_consumer_group_offsets(asked)).topic_partitions
    assert place.offset == 1
    done(admin.delete_consumer_groups(["readers"]))
    assert admin.list_consumer_groups().result(DEADLINE_S).valid == []
