"""librdkafka with ``group.protocol=consumer`` (KIP-848)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.clients.contract import GroupContract
from tests.support.broker import Broker, StartBroker
from tests.support.clients import DEADLINE_S, PATIENCE, eventually
from tests.support.foreign import Program

pytestmark = pytest.mark.client("librdkafka (confluent-kafka)")

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
ALL = {0, 1, 2, 3}

NewConsumer = Callable[..., Consumer]


@pytest.mark.more
class TestLibrdkafka(GroupContract):
    @pytest.fixture
    def program(self) -> Program:
        return Program([sys.executable, "-W", "ignore", str(Path(__file__).with_name("confluent_groups.py"))])


@pytest.fixture
def new_consumer() -> Iterator[NewConsumer]:
    made: list[Consumer] = []

    def make(broker: Broker, protocol: str = "consumer", **more: Any) -> Consumer:
        config = {
            **PATIENCE,
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "topic.metadata.refresh.interval.ms": 100,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
            config |= {"partition.assignment.strategy": "range"}
        made.append(Consumer(config | {name.replace("_", "."): value for name, value in more.items()}))
        return made[-1]

    yield make
    for each in made:
        with suppress(RuntimeError):  # closed by the test
            each.close()


def assignments(*consumers: Consumer) -> list[set[int]]:
    """Poll each consumer once, as a rebalance progresses only in polls, and return their assignments."""
    for each in consumers:
        each.poll(0.02)
    return [{place.partition for place in each.assignment()} for each in consumers]


def are_fair(*consumers: Consumer) -> bool:
    """Whether each partition is assigned once, and the members have balanced numbers of partitions."""
    found = assignments(*consumers)
    sizes = sorted(len(each) for each in found)
    return sum(sizes) == len(ALL) and set().union(*found) == ALL and sizes[-1] - sizes[0] <= 1


def described(admin: AdminClient) -> Any:
    (future,) = admin.describe_consumer_groups(["readers"]).values()
    return future.result(DEADLINE_S)


@pytest.mark.feature("consumer group (KIP-848)")
def test_members_share_come_and_go(start_broker: StartBroker, new_consumer: NewConsumer):
    broker = start_broker(topics=["orders:4"], settings=QUICK)
    admin = AdminClient({**PATIENCE, "bootstrap.servers": broker.bootstrap})
    first, second, third = (new_consumer(broker, client_id=name) for name in ("one", "two", "three"))
    first.subscribe(["orders"])
    eventually(lambda: assignments(first) == [ALL], "the first member has all partitions")
    second.subscribe(["orders"])
    eventually(lambda: are_fair(first, second), "each member has two partitions")
    third.subscribe(["orders"])
    eventually(lambda: are_fair(first, second, third), "three members have balanced assignments")
    eventually(lambda: described(admin).state.name == "STABLE", "stable")
    group = described(admin)
    assert (group.type.name, group.partition_assignor) == ("CONSUMER", "uniform")
    assert {member.client_id for member in group.members} == {"one", "two", "three"}
    second.close()
    eventually(lambda: are_fair(first, third), "two members have balanced assignments again")
    third.unsubscribe()
    eventually(lambda: assignments(first, third) == [ALL, set()], "the first member has all partitions again")
    first.close()
    eventually(lambda: described(admin).state.name == "EMPTY", "empty")


@pytest.mark.feature("consumer group (KIP-848)")
def test_a_dead_member_is_removed_after_its_session_timeout(
    start_broker: StartBroker, new_consumer: NewConsumer
):
    sessions = {"group.consumer.min.session.timeout.ms": "500", "group.consumer.session.timeout.ms": "1000"}
    broker = start_broker(topics=["orders:4"], settings=QUICK | sessions)
    staying, stuck = new_consumer(broker), new_consumer(broker, max_poll_interval_ms=1_000)
    staying.subscribe(["orders"])
    stuck.subscribe(["orders"])
    eventually(lambda: are_fair(staying, stuck), "each member has two partitions")
    # The stuck consumer is no longer polled, so it leaves (max.poll.interval.ms), as after a session timeout.
    eventually(lambda: assignments(staying) == [ALL], "the other member has all partitions")


@pytest.mark.feature("groups change their protocol")
def test_a_group_changes_its_protocol_while_it_reads(start_broker: StartBroker, new_consumer: NewConsumer):
    broker = start_broker(topics=["orders:4"], settings=QUICK)
    admin = AdminClient({**PATIENCE, "bootstrap.servers": broker.bootstrap})
    old = [new_consumer(broker, "classic") for _ in range(2)]
    for each in old:
        each.subscribe(["orders"])
    eventually(lambda: are_fair(*old), "the classic members have balanced assignments")
    new = [new_consumer(broker) for _ in range(2)]
    new[0].subscribe(["orders"])
    eventually(lambda: are_fair(*old, new[0]), "a member with the other protocol has partitions too")
    assert described(admin).type.name == "CONSUMER"
    old[0].close()
    new[1].subscribe(["orders"])
    eventually(lambda: are_fair(old[1], *new), "the group is upgraded")
    for each in new:
        each.close()
    eventually(lambda: assignments(old[1]) == [ALL], "the group is downgraded")
    assert described(admin).type.name == "CLASSIC"


@pytest.mark.feature("groups change their protocol")
def test_a_group_with_user_data_in_its_assignments_is_not_upgraded(
    start_broker: StartBroker, new_consumer: NewConsumer
):
    """A group with user data in its assignments is not upgraded, as in Kafka.

    librdkafka's cooperative-sticky assignor writes user data from the second rebalance on.
    """
    broker = start_broker(topics=["orders:4"], settings=QUICK)
    old = [
        new_consumer(broker, "classic", partition_assignment_strategy="cooperative-sticky") for _ in range(2)
    ]
    old[0].subscribe(["orders"])
    eventually(lambda: are_fair(old[0]), "the first member has all partitions")
    old[1].subscribe(["orders"])
    eventually(lambda: are_fair(*old), "the classic members have balanced assignments")
    new = new_consumer(broker)
    new.subscribe(["orders"])
    told = eventually(lambda: new.poll(0.1), "the new member gets an error")
    assert told is not None
    assert "group id does not exist" in str(told.error())
    assert are_fair(*old)
