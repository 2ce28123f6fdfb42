"""Rows written under faults that the broker injects are there once and in order, read by another client."""

import random
import zlib
from typing import Any

import pyarrow as pa
import pytest

import odradek
from odradek.spark.wire import ClientSettings, Cluster, RecordTooLarge, Retriable, TransactionalWriter
from odradek.spark.wire.producer import ProducerId
from tests.spark.wire.numbers_in_order import assert_once_and_in_order, write_numbers

TIMEOUT_MS = 60_000
# Small batches and a short timeout: the test makes many requests, and notices a missing response soon.
OPTIONS = {
    "kafka.batch.size": "2000",
    "kafka.max.request.size": "6000",
    "kafka.request.timeout.ms": "1000",
    "kafka.retry.backoff.ms": "10",
    "kafka.retry.backoff.max.ms": "50",
    "kafka.reconnect.backoff.ms": "10",
    "kafka.reconnect.backoff.max.ms": "50",
    "kafka.delivery.timeout.ms": "30000",
}
ROWS = 400
PARTITIONS = 3


@pytest.fixture(scope="module")
def one_node():
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def topic(one_node, request):
    name = f"t{zlib.crc32(request.node.name.encode())}"
    create(one_node, name)
    yield name
    one_node.faults.clear()


def create(broker, name: str, replicas: int = 1, **config: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, replicas, config=config)])[name].result()


def connect(broker, **more: str) -> Cluster:
    options = OPTIONS | {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    return Cluster(
        ClientSettings.from_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **options})
    )


def write(
    cluster: Cluster, transactional_id: str, producer: ProducerId, topic: str, rows: int = ROWS
) -> TransactionalWriter:
    writer = TransactionalWriter(cluster, transactional_id, producer)
    for start in range(0, rows, 100):
        write_numbers(writer, topic, range(start, start + 100), PARTITIONS)
    writer.flush()
    return writer


PRODUCE = [
    "Produce topic={topic} nth=2 -> lose-answer",
    "Produce topic={topic} nth=3 -> lose-answer silent",
    "Produce topic={topic} nth=1 -> lose-request",
    "Produce topic={topic} nth=4 -> drop",
    "Produce topic={topic} every=3 times=4 -> error NOT_LEADER_OR_FOLLOWER",
    "Produce topic={topic} partition=1 times=3 -> error NOT_ENOUGH_REPLICAS",
    "Produce topic={topic} partition=2 nth=2 -> error UNKNOWN_TOPIC_OR_PARTITION",
    "Produce topic={topic} partition=0 times=2 -> error REQUEST_TIMED_OUT",
    "Produce topic={topic} every=2 -> duplicate",
    "Produce topic={topic} nth=2 -> reorder 2",
    "Produce topic={topic} p=0.3 seed=3 -> lose-answer",
    "slow-disk topic={topic} partition=1 delay=50ms",
    "AddPartitionsToTxn topic={topic} nth=1 -> lose-answer",
    "AddPartitionsToTxn topic={topic} times=2 -> error CONCURRENT_TRANSACTIONS",
    "AddPartitionsToTxn topic={topic} nth=1 -> error COORDINATOR_LOAD_IN_PROGRESS",
    "Metadata topic={topic} times=2 -> error LEADER_NOT_AVAILABLE",
]


@pytest.mark.parametrize("rule", PRODUCE)
def test_what_is_written_under_a_fault_is_there_once_and_in_order(one_node, topic, rule):
    with connect(one_node) as cluster:
        [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        with one_node.faults.add(rule.format(topic=topic)) as fault:
            writer = write(cluster, topic, producer, topic)
            assert fault.hits or "slow-disk" in rule
        assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}
    assert_once_and_in_order(one_node.bootstrap_servers, topic, ROWS, PARTITIONS)


END = [
    "EndTxn transactional_id={topic} nth=1 -> lose-answer",
    "EndTxn transactional_id={topic} nth=1 -> lose-request",
    "EndTxn transactional_id={topic} times=2 -> drop",
    "EndTxn transactional_id={topic} nth=1 -> duplicate",
    "EndTxn transactional_id={topic} times=2 -> error NOT_COORDINATOR",
    "EndTxn transactional_id={topic} times=3 -> error CONCURRENT_TRANSACTIONS",
    "txn.prepare.append transactional_id={topic} nth=1 -> error COORDINATOR_NOT_AVAILABLE",
    "txn.marker transactional_id={topic} nth=1 -> delay 100ms",
]


@pytest.mark.parametrize("rule", END)
def test_an_end_under_a_fault_is_an_end(one_node, topic, rule):
    with connect(one_node) as cluster:
        [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        writer = write(cluster, topic, producer, topic)
        with one_node.faults.add(rule.format(topic=topic)) as fault:
            assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}
            fault.wait()
        assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}
    assert_once_and_in_order(one_node.bootstrap_servers, topic, ROWS, PARTITIONS)


INIT = {
    "InitProducerId transactional_id={topic} nth=1 -> lose-answer": True,
    "InitProducerId transactional_id={topic} nth=1 -> lose-answer silent": True,
    "InitProducerId transactional_id={topic} nth=1 -> lose-request": True,
    "InitProducerId transactional_id={topic} times=3 -> error CONCURRENT_TRANSACTIONS": False,
    "InitProducerId transactional_id={topic} times=2 -> error NOT_COORDINATOR": False,
    "FindCoordinator transactional_id={topic} times=2 -> error COORDINATOR_NOT_AVAILABLE": False,
    "FindCoordinator transactional_id={topic} nth=1 -> drop": False,
}


@pytest.mark.parametrize("rule", INIT)
def test_an_id_whose_initialisation_may_have_been_lost_is_named(one_node, topic, rule):
    with connect(one_node) as cluster:
        other = f"{topic}-other"
        [zombie] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        write(cluster, topic, zombie, topic, 100)
    with connect(one_node) as cluster, one_node.faults.add(rule.format(topic=topic)) as fault:
        producers = cluster.init_producer_ids([topic, other], TIMEOUT_MS)
        assert fault.hits
        assert producers.uncertain - {other} == ({topic} if INIT[rule] else set())
        writer = write(cluster, topic, producers[topic], topic)
        assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}
    assert_once_and_in_order(one_node.bootstrap_servers, topic, ROWS, PARTITIONS)


OFFSETS = [
    "AddOffsetsToTxn group={topic} nth=1 -> lose-answer",
    "AddOffsetsToTxn group={topic} times=2 -> error CONCURRENT_TRANSACTIONS",
    "TxnOffsetCommit group={topic} nth=1 -> lose-answer",
    "TxnOffsetCommit group={topic} times=2 -> error NOT_COORDINATOR",
    "OffsetFetch group={topic} times=2 -> error COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetFetch group={topic} nth=1 -> drop",
]


@pytest.mark.parametrize("rule", OFFSETS)
def test_offsets_under_a_fault_are_committed_once(one_node, topic, rule):
    with connect(one_node) as cluster, one_node.faults.add(rule.format(topic=topic)) as fault:
        [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        cluster.commit_offsets(topic, producer, topic, {(topic, 0): (3, "three")})
        assert cluster.end_transactions([(topic, producer)], commit=True) == {topic: None}
        assert cluster.fetch_offsets(topic, [(topic, 0)]) == {(topic, 0): (3, "three")}
        assert fault.hits


def test_offsets_of_an_open_transaction_are_waited_for(one_node, topic):
    with connect(one_node) as cluster, connect(one_node, delivery_timeout_ms="300") as hasty:
        [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        cluster.commit_offsets(topic, producer, topic, {(topic, 0): (3, "")})
        with pytest.raises(Retriable, match="UNSTABLE_OFFSET_COMMIT"):
            hasty.fetch_offsets(topic, [(topic, 0)])
        cluster.end_transactions([(topic, producer)], commit=True)
        assert cluster.fetch_offsets(topic, [(topic, 0)]) == {(topic, 0): (3, "")}


def test_a_timeout_reports_the_last_error(one_node, topic):
    with connect(one_node) as cluster, connect(one_node, delivery_timeout_ms="400") as hasty:
        [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
        with (
            one_node.faults.add(f"Produce topic={topic} partition=1 -> error NOT_ENOUGH_REPLICAS"),
            pytest.raises(Retriable, match=rf"writing to {topic}-1 .*\(NOT_ENOUGH_REPLICAS\)"),
        ):
            write(hasty, topic, producer, topic)
        with one_node.faults.add(f"EndTxn transactional_id={topic} -> drop"):
            [error] = hasty.end_transactions([(topic, producer)], commit=False).values()
        assert isinstance(error, Retriable)
        assert cluster.end_transactions([(topic, producer)], commit=False) == {topic: None}


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_that_a_topic_does_not_take_are_written_as_smaller_ones(one_node, topic, codec):
    small = f"{topic}-small"
    configs: dict[str, Any] = {"max.message.bytes": "700"}
    create(one_node, small, **configs)
    with connect(one_node, batch_size="4000", compression_type=codec) as cluster:
        [producer] = cluster.init_producer_ids([small], TIMEOUT_MS).values()
        writer = write(cluster, small, producer, small)
        assert cluster.end_transactions([writer.transaction], commit=True) == {small: None}
        assert_once_and_in_order(one_node.bootstrap_servers, small, ROWS, PARTITIONS)
        [producer] = cluster.init_producer_ids([small], TIMEOUT_MS).values()
        writer = TransactionalWriter(cluster, small, producer)

        def write_one() -> None:
            writer.write(pa.array([random.Random(1).randbytes(800)]), topic=small, partitions=pa.array([0]))
            writer.flush()

        with pytest.raises(RecordTooLarge, match=f"1 records for {small}-0"):
            write_one()


def test_a_broker_that_is_restarted_meanwhile_is_found_again(tmp_path):
    with odradek.Broker(data_dir=tmp_path) as broker:
        create(broker, "t")
        with connect(broker) as cluster:
            [producer] = cluster.init_producer_ids(["id"], TIMEOUT_MS).values()
            writer = write(cluster, "id", producer, "t", 200)
            broker.kill()
            broker.restart()
            for start in (200, 300):
                write_numbers(writer, "t", range(start, start + 100), PARTITIONS)
            writer.flush()
            assert cluster.end_transactions([writer.transaction], commit=True) == {"id": None}
        assert_once_and_in_order(broker.bootstrap_servers, "t", ROWS, PARTITIONS)


def test_an_address_without_a_server_is_reported_in_time():
    settings = ClientSettings.from_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", **OPTIONS, "kafka.max.block.ms": "200"}
    )
    with Cluster(settings) as cluster, pytest.raises(Retriable, match=r"127\.0\.0\.1:1"):
        cluster.partitions_of("t")


def test_an_invalid_host_name_is_no_address():
    options = {"kafka.bootstrap.servers": "no..name:9092", "kafka.max.block.ms": "100"}
    with (
        Cluster(ClientSettings.from_options(options)) as cluster,
        pytest.raises(Retriable, match=r"no\.\.name:9092 cannot be reached"),
    ):
        cluster.partitions_of("any")
