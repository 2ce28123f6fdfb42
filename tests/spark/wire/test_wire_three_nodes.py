"""Three nodes: some are killed, move their leaders or lose links while a transaction is written and ended."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from odradek.spark.wire import ClientSettings, Cluster, TransactionalWriter
from odradek.spark.wire.producer import ProducerId
from tests.spark.wire.numbers_in_order import assert_once_and_in_order, write_numbers
from tests.support.clients import eventually, read_messages

PARTITIONS = 6
OPTIONS = {
    "kafka.batch.size": "3000",
    "kafka.max.request.size": "9000",
    "kafka.request.timeout.ms": "2000",
    "kafka.retry.backoff.ms": "10",
    "kafka.retry.backoff.max.ms": "100",
    "kafka.reconnect.backoff.ms": "10",
    "kafka.reconnect.backoff.max.ms": "100",
    "kafka.delivery.timeout.ms": "40000",
}
CHUNK = 300


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[odradek.Broker]:
    settings = {
        "transaction.state.log.replication.factor": 3,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.num.partitions": 3,
    }
    with odradek.Broker(nodes=3, settings=settings) as broker:
        yield broker


@pytest.fixture
def topic(three_nodes: odradek.Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.originalname
    admin = AdminClient({"bootstrap.servers": three_nodes.bootstrap_servers})
    new = NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[name].result()
    yield name
    three_nodes.faults.clear()
    for node in three_nodes.nodes.values():
        if node.state != "running":
            node.start()
    eventually(lambda: all(each.state == "running" for each in three_nodes.nodes.values()), "all nodes")


def connect(broker: odradek.Broker) -> Cluster:
    return Cluster(
        ClientSettings.from_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **OPTIONS})
    )


class Numbers:
    """A writer of ascending numbers. The number ``n`` is written to the partition ``n % PARTITIONS``."""

    def __init__(self, cluster: Cluster, topic: str, producer: ProducerId) -> None:
        self.writer = TransactionalWriter(cluster, topic, producer)
        self.topic = topic
        self.next = 0

    def write(self) -> None:
        numbers = range(self.next, self.next + CHUNK)
        write_numbers(self.writer, self.topic, numbers, PARTITIONS)
        self.next += CHUNK


def leader_of(broker: odradek.Broker, topic: str, partition: int = 0) -> int:
    return next(number for number, node in broker.nodes.items() if partition in node.leads.get(topic, []))


def coordinator_of(broker: odradek.Broker, transactional_id: str) -> int:
    return int(broker.transactions[transactional_id].coordinator)


def nothing(cluster: Cluster, step: int) -> None:
    pass


def write_with(
    broker: odradek.Broker,
    topic: str,
    between: Callable[[Cluster, int], None] = nothing,
    rules: Sequence[str] = (),
) -> list[int]:
    """Write and commit under ``rules``; return the number of hits of each rule.

    ``between`` is called after each step, with the client and the number of the step.
    """
    added = [broker.faults.add(rule) for rule in rules]
    with connect(broker) as cluster:
        [producer] = cluster.init_producer_ids([topic], 60_000).values()
        numbers = Numbers(cluster, topic, producer)
        for step in range(6):
            numbers.write()
            between(cluster, step)
        numbers.writer.flush()
        cluster.add_partitions(topic, producer, numbers.writer.partitions)
        assert cluster.end_transactions([(topic, producer)], commit=True) == {topic: None}
        assert cluster.end_transactions([(topic, producer)], commit=True) == {topic: None}
    hits = [rule.hits for rule in added]
    # Remove the faults first: the client that checks the result has shorter timeouts.
    broker.faults.clear()
    assert_once_and_in_order(broker.bootstrap_servers, topic, numbers.next, PARTITIONS, wait=True)
    return hits


def test_the_leader_of_some_partitions_dies_and_comes_back(three_nodes: odradek.Broker, topic: str) -> None:
    victim = three_nodes.nodes[leader_of(three_nodes, topic)]

    def between(cluster: Cluster, step: int) -> None:
        if step == 1:
            victim.kill()
        if step == 4:
            victim.start()

    write_with(three_nodes, topic, between)


def test_the_coordinator_dies_while_rows_are_written(three_nodes: odradek.Broker, topic: str) -> None:
    def between(cluster: Cluster, step: int) -> None:
        if step == 2:
            three_nodes.nodes[coordinator_of(three_nodes, topic)].kill()

    write_with(three_nodes, topic, between)


def test_a_node_dies_in_the_middle_of_a_request(three_nodes: odradek.Broker, topic: str) -> None:
    def between(cluster: Cluster, step: int) -> None:
        for node in three_nodes.nodes.values():
            if step == 4 and node.state == "killed":
                node.start()

    rules = [f"Produce topic={topic} nth=6 -> kill", f"EndTxn transactional_id={topic} nth=1 -> kill"]
    assert write_with(three_nodes, topic, between, rules) == [1, 1]


def test_leaders_move_one_after_the_other(three_nodes: odradek.Broker, topic: str) -> None:
    def between(cluster: Cluster, step: int) -> None:
        stopped = [node for node in three_nodes.nodes.values() if node.state != "running"]
        for node in stopped:
            node.start()
        if step < 5:
            three_nodes.nodes[step % 3 + 1].stop()

    write_with(three_nodes, topic, between)


def test_responses_of_every_kind_are_lost(three_nodes: odradek.Broker, topic: str) -> None:
    rules = (
        f"Produce topic={topic} p=0.1 seed=5 -> lose-answer",
        f"Produce topic={topic} p=0.1 seed=6 -> error NOT_LEADER_OR_FOLLOWER",
        f"Produce topic={topic} p=0.1 seed=7 -> drop",
        f"*Txn* transactional_id={topic} p=0.3 seed=8 -> lose-answer",
        "Metadata p=0.3 seed=9 -> drop",
        "FindCoordinator p=0.3 seed=10 -> lose-answer",
    )
    write_with(three_nodes, topic, rules=rules)


def test_a_new_driver_ends_what_another_wrote_after_the_coordinator_died(
    three_nodes: odradek.Broker, topic: str
) -> None:
    ids = [f"{topic}-{number}" for number in range(4)]
    open_ones = []
    with connect(three_nodes) as cluster:
        for number, (transactional_id, producer) in enumerate(cluster.init_producer_ids(ids, 60_000).items()):
            writer = TransactionalWriter(cluster, transactional_id, producer)
            writer.write(pa.array([b"%d" % number]), topic=topic, partitions=pa.array([number]))
            writer.flush()
            open_ones.append(writer.transaction)
        three_nodes.nodes[coordinator_of(three_nodes, ids[0])].kill()
    with connect(three_nodes) as cluster:
        assert cluster.end_transactions(open_ones, commit=True) == dict.fromkeys(ids)
    found = read_messages(three_nodes.bootstrap_servers, topic, expected=4)
    assert sorted((each.partition(), each.value()) for each in found) == [(n, b"%d" % n) for n in range(4)]
