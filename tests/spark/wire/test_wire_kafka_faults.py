"""Lost responses of Apache Kafka, and a Kafka that is killed in the middle of a transaction."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.spark.wire import ClientSettings, Cluster, TransactionalWriter
from tests.spark.wire.numbers_in_order import assert_once_and_in_order, write_numbers
from tests.support.deadlines import HANG_S
from tests.support.kafka_oracle import Oracle, format_directory, started
from tests.support.relay import Relay

pytestmark = [pytest.mark.more, pytest.mark.java]

PARTITIONS = 3
OPTIONS = {
    "kafka.batch.size": "2000",
    "kafka.max.request.size": "6000",
    "kafka.request.timeout.ms": "2000",
    "kafka.retry.backoff.ms": "20",
    "kafka.reconnect.backoff.ms": "20",
    "kafka.delivery.timeout.ms": "60000",
}


class MortalKafka:
    """A Kafka behind a relay. It can be killed, and started again on its data."""

    def __init__(self, home: Path, relay: Relay) -> None:
        self.relay = relay
        settings = relay.advertised | {"transaction.state.log.num.partitions": "3"}
        self._file = format_directory(home, settings)
        self._life = ExitStack()
        self._oracle: Oracle | None = None

    def start(self) -> None:
        self._oracle = self._life.enter_context(started(self._file))
        self.relay.forward_to(self._oracle.host, self._oracle.port)

    def kill(self) -> None:
        assert self._oracle is not None
        self._oracle.process.kill()
        self._oracle.process.wait(HANG_S)
        self.close()

    def close(self) -> None:
        self._life.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalKafka]:
    with Relay() as relay:
        kafka = MortalKafka(tmp_path_factory.mktemp("mortal-kafka"), relay)
        kafka.start()
        try:
            yield kafka
        finally:
            kafka.close()


def create(kafka: MortalKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.relay.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()


def connect(kafka: MortalKafka) -> Cluster:
    return Cluster(ClientSettings.from_options({"kafka.bootstrap.servers": kafka.relay.bootstrap, **OPTIONS}))


def write(writer: TransactionalWriter, topic: str, first: int, end: int) -> None:
    for start in range(first, end, 100):
        write_numbers(writer, topic, range(start, start + 100), PARTITIONS)


def test_responses_that_were_lost(kafka: MortalKafka) -> None:
    create(kafka, "unheard")
    with connect(kafka) as cluster:
        cluster.partitions_of("unheard")
        lost = [
            kafka.relay.lose("answer", name, nth=nth, close=close)
            for name, nth, close in (
                ("init_producer_id", 1, True),
                ("add_partitions_to_txn", 1, True),
                ("produce", 3, True),
                ("end_txn", 1, True),
                ("txn_offset_commit", 1, True),
            )
        ]
        # The relay may lose this response together with the other one, if both are in flight.
        kafka.relay.lose("answer", "produce", nth=10, close=False)
        producers = cluster.init_producer_ids(["unheard"], 60_000)
        assert producers.uncertain == {"unheard"}
        writer = TransactionalWriter(cluster, "unheard", producers["unheard"])
        write(writer, "unheard", 0, 600)
        writer.flush()
        cluster.commit_offsets(*writer.transaction, "unheard", {("unheard", 0): (1, "one")})
        cluster.add_partitions(*writer.transaction, writer.partitions)
        for _ in range(2):
            assert cluster.end_transactions([writer.transaction], commit=True) == {"unheard": None}
        assert cluster.fetch_offsets("unheard", [("unheard", 0)]) == {("unheard", 0): (1, "one")}
        assert [each.api for each in lost if not each.happened.wait(HANG_S)] == []
    assert_once_and_in_order(kafka.relay.bootstrap, "unheard", 600, PARTITIONS, wait=True)


def test_a_kafka_that_is_killed_and_comes_back(kafka: MortalKafka) -> None:
    create(kafka, "killed")
    with connect(kafka) as cluster:
        [producer] = cluster.init_producer_ids(["killed"], 60_000).values()
        writer = TransactionalWriter(cluster, "killed", producer)
        write(writer, "killed", 0, 300)
        writer.flush()
        write(writer, "killed", 300, 500)
        kafka.kill()
        kafka.start()
        write(writer, "killed", 500, 600)
        writer.flush()
        assert cluster.end_transactions([writer.transaction], commit=True) == {"killed": None}
    assert_once_and_in_order(kafka.relay.bootstrap, "killed", 600, PARTITIONS, wait=True)
