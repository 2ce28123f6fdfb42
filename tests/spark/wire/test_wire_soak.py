"""Random transactions, of which some commit, while nodes are killed and responses are lost, all from a seed."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from odradek.spark.wire import ClientSettings, Cluster, TransactionalWriter, WireError
from odradek.spark.wire.producer import ProducerId
from tests.support.clients import eventually, read_messages

pytestmark = pytest.mark.slow

PARTITIONS = 5
TRANSACTIONS = 12
OPTIONS = {
    "kafka.batch.size": "2000",
    "kafka.max.request.size": "6000",
    "kafka.request.timeout.ms": "2000",
    "kafka.retry.backoff.ms": "10",
    "kafka.retry.backoff.max.ms": "200",
    "kafka.reconnect.backoff.ms": "10",
    "kafka.reconnect.backoff.max.ms": "200",
    "kafka.delivery.timeout.ms": "60000",
}
RULES = (
    "Produce p=0.05 seed={seed} -> lose-answer",
    "Produce p=0.05 seed={seed} -> lose-answer silent",
    "Produce p=0.1 seed={seed} -> error NOT_LEADER_OR_FOLLOWER",
    "Produce p=0.05 seed={seed} -> drop",
    "Produce p=0.05 seed={seed} -> duplicate",
    "Produce every=7 -> reorder 2",
    "AddPartitionsToTxn p=0.2 seed={seed} -> lose-answer",
    "EndTxn p=0.3 seed={seed} -> lose-answer",
    "EndTxn p=0.3 seed={seed} -> lose-request",
    "InitProducerId p=0.3 seed={seed} -> lose-answer",
    "FindCoordinator p=0.2 seed={seed} -> drop",
    "Metadata p=0.2 seed={seed} -> drop",
    "txn.marker p=0.2 seed={seed} -> delay 100ms",
    "slow-disk delay=20ms",
)


@pytest.fixture
def three_nodes() -> Iterator[odradek.Broker]:
    settings = {
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.num.partitions": 5,
    }
    with odradek.Broker(nodes=3, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        new = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])["t"].result()
        yield broker


def disturb(broker: odradek.Broker, rng: random.Random) -> None:
    """Start a new random fault, or end one. Two of the three nodes always run."""
    nodes = list(broker.nodes.values())
    down = [node for node in nodes if node.state != "running"]
    match rng.randrange(5):
        case 0 if down:
            down[0].start()
        case 1 if not down:
            rng.choice(nodes).kill()
        case 2 if not down:
            rng.choice(nodes).stop()
        case 3:
            broker.faults.add(rng.choice(RULES).format(seed=rng.randrange(1000)))
        case 4:
            broker.faults.clear()


def write(
    cluster: Cluster, broker: odradek.Broker, rng: random.Random, producer: ProducerId, first: int
) -> TransactionalWriter:
    writer = TransactionalWriter(cluster, "soak", producer)
    for start in range(first, first + 600, 100):
        numbers = range(start, start + 100)
        writer.write(
            pa.array([b"%0100d" % number for number in numbers]),
            topic="t",
            partitions=pa.array([number % PARTITIONS for number in numbers]),
        )
        if rng.random() < 0.4:
            disturb(broker, rng)
    writer.flush()
    return writer


@pytest.mark.parametrize("seed", range(12))
def test_exactly_the_committed_records_are_there_once(three_nodes: odradek.Broker, seed: int) -> None:
    rng = random.Random(seed)
    settings = ClientSettings.from_options(
        {"kafka.bootstrap.servers": three_nodes.bootstrap_servers, **OPTIONS}
    )
    committed: list[int] = []
    cluster = Cluster(settings)
    for transaction in range(TRANSACTIONS):
        if rng.random() < 0.3:
            cluster.close()
            cluster = Cluster(settings)
        first = transaction * 600
        [producer] = cluster.init_producer_ids(["soak"], 60_000).values()
        try:
            writer = write(cluster, three_nodes, rng, producer, first)
        except WireError as error:
            pytest.fail(f"transaction {transaction}: {error}")
        commit = rng.random() < 0.7
        if rng.random() < 0.8:
            cluster.add_partitions(*writer.transaction, writer.partitions)
            assert cluster.end_transactions([writer.transaction], commit) == {"soak": None}
            assert cluster.end_transactions([writer.transaction], commit) == {"soak": None}
            if commit:
                committed += range(first, first + 600)
    cluster.init_producer_ids(["soak"], 60_000)
    cluster.close()
    three_nodes.faults.clear()
    for node in three_nodes.nodes.values():
        if node.state != "running":
            node.start()
    eventually(lambda: all(each.state == "running" for each in three_nodes.nodes.values()), "all nodes")
    found = read_messages(three_nodes.bootstrap_servers, "t")
    for partition in range(PARTITIONS):
        numbers = [int(each.value()) for each in found if each.partition() == partition]
        assert numbers == [number for number in committed if number % PARTITIONS == partition]
