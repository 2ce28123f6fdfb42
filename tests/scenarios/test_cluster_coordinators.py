"""A coordinator's node dies in the middle of a request: the next coordinator loads the log and carries out its decisions."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.scenarios.conftest import NewProducer, StartThree
from tests.support.clients import (
    FINDS_COORDINATORS,
    PATIENCE,
    ConfluentProducer,
    committed_offset,
    eventually,
    statuses,
    values,
)
from tests.support.deadlines import HANG_S
from tests.support.members import Member, member
from tests.support.three_nodes import GROUP, TRANSACTION, ThreeNodes

pytestmark = pytest.mark.more

CLIENTS = ["confluent", "aiokafka", pytest.param("java", marks=pytest.mark.java)]
MORE = {"confluent": FINDS_COORDINATORS}
# The node dies when it gets the request, or between two steps of handling it.
STEPS = ["EndTxn", "txn.prepare.append", "txn.marker", "txn.complete.append"]
COMPLETE_COMMIT, COMPLETE_ABORT = 4, 5


def transact(producer: Any, number: int) -> None:
    """Write to three partitions, and commit an offset, in a new transaction. The caller commits or aborts it."""
    producer.begin()
    for partition in range(3):
        producer.send("orders", [f"{number}"], partition=partition)
    producer.send_offsets("readers", {("orders", 0): number})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_commit_goes_through_when_its_coordinator_dies(
    client: str, step: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """At whichever step the coordinator dies, the client retries at the next coordinator. Each record is committed once."""
    cluster = start_three("orders:3")
    producer = new_producer(cluster.bootstrap_servers, "payer", more=MORE.get(client))
    producer.init()
    transact(producer, 1)
    producer.commit()
    transact(producer, 2)
    coordinator = cluster.coordinator("payer", TRANSACTION)
    with cluster.faults.add(f"{step} node={coordinator} nth=1 -> kill") as death:
        producer.commit()
        death.wait()
    assert cluster.nodes[coordinator].state == "killed"
    transact(producer, 3)
    producer.abort()
    transact(producer, 4)
    producer.commit()
    cluster.start_all()

    assert values(cluster.bootstrap_servers, "orders") == ["1", "2", "4"] * 3
    assert committed_offset(cluster.bootstrap_servers, "readers", "orders") == 4
    for partition in range(3):
        cluster.await_in_sync("orders", partition)
    assert statuses(cluster.bootstrap_servers, "payer").count(COMPLETE_COMMIT) == 3
    assert statuses(cluster.bootstrap_servers, "payer").count(COMPLETE_ABORT) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_coordinator_that_dies_before_the_decision_leaves_the_transaction_open(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """If the coordinator dies before the decision, the producer continues the open transaction without an error."""
    cluster = start_three("orders:3")
    producer = new_producer(cluster.bootstrap_servers, "payer", more=MORE.get(client))
    producer.init()
    producer.begin()
    producer.send("orders", ["first half"], partition=0)
    coordinator = cluster.coordinator("payer", TRANSACTION)
    cluster.nodes[coordinator].kill()
    producer.send("orders", ["second half"], partition=1)
    assert values(cluster.bootstrap_servers, "orders", expected=0) == []
    producer.commit()
    assert values(cluster.bootstrap_servers, "orders") == ["first half", "second half"]


def read(members: list[Member], count: int) -> list[str]:
    """Read ``count`` values in total from the members, and return them in numeric order."""
    found: list[str] = []

    def enough() -> bool:
        for each in members:
            found.extend(each.poll())
        return len(found) >= count

    eventually(enough, f"{count} values")
    return sorted(found, key=int)


def await_stable(cluster: ThreeNodes, members: list[Member]) -> None:
    """Wait until the group is stable, and each of its two members has two of the four partitions.

    A coordinator writes a classic group's members to the log when a rebalance is complete. Before that, another
    coordinator could not load them.
    """

    def stable() -> bool:
        for each in members:
            assert each.poll() == []
        admin = AdminClient({**PATIENCE, "bootstrap.servers": cluster.bootstrap_servers})
        (described,) = admin.describe_consumer_groups(["readers"]).values()
        group = described.result(HANG_S)
        shares = [len(each.assignment.topic_partitions) for each in group.members]
        return group.state is ConsumerGroupState.STABLE and shares == [2, 2]

    eventually(stable, "the group is stable")


def write(cluster: ThreeNodes, numbers: range) -> list[str]:
    """Write the numbers to four partitions in turn; return them as strings."""
    producer = ConfluentProducer(cluster.bootstrap_servers)
    for number in numbers:
        producer.send("orders", [str(number)], partition=number % 4)
    return [str(number) for number in numbers]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_when_its_coordinator_dies(client: str, start_three: StartThree) -> None:
    """The next coordinator loads the members from the log. No member joins again, and no record is read twice."""
    cluster = start_three("orders:4")
    with (
        member(client, cluster.bootstrap_servers, "readers", "orders") as one,
        member(client, cluster.bootstrap_servers, "readers", "orders") as other,
    ):
        await_stable(cluster, [one, other])
        first = write(cluster, range(20))
        assert read([one, other], 20) == first
        one.commit()
        other.commit()
        joined = len(cluster.trace.entries(api="JoinGroup", limit=10_000))
        coordinator = cluster.coordinator("readers", GROUP)
        cluster.nodes[coordinator].kill()
        more = write(cluster, range(20, 40))
        assert read([one, other], 20) == more
        one.commit()
        other.commit()
        assert cluster.coordinator("readers", GROUP) != coordinator
        assert len(cluster.trace.entries(api="JoinGroup", limit=10_000)) == joined
    cluster.start_all()
    for partition in range(4):
        assert committed_offset(cluster.bootstrap_servers, "readers", "orders", partition) == 10
