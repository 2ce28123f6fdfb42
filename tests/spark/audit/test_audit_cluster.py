"""The legal effects of nodes that die during transactions are not findings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from odradek import Broker
from odradek.spark.audit import audit, deep, tables
from tests.spark.audit.planting import INDEX_ENTRY, Segment, unexpected_producer
from tests.spark.audit.test_audit_planted import write
from tests.support.clients import FINDS_COORDINATORS, PATIENCE
from tests.support.deadlines import HANG_S

pytestmark = [pytest.mark.spark, pytest.mark.more]

TRANSACTIONS = 60
SETTINGS = {
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class Worker:
    """A loop of transactions in all partitions of ``output``, every third aborted, with offsets of ``input``."""

    def __init__(self, bootstrap: str, name: str, topic: str = "output", partitions: int = 4) -> None:
        self.topic, self.partitions = topic, partitions
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "retry.backoff.ms": 20,
                **PATIENCE,
                **FINDS_COORDINATORS,
            }
        )
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        self.producer.init_transactions(HANG_S)

    def once(self, number: int) -> None:
        self.producer.begin_transaction()
        try:
            for partition in range(self.partitions):
                for part in range(3):
                    self.producer.produce(self.topic, f"{number}/{part}".encode(), partition=partition)
            offsets = [TopicPartition("input", 0, number)]
            self.producer.send_offsets_to_transaction(
                offsets, self.consumer.consumer_group_metadata(), HANG_S
            )
            if number % 3:
                self.producer.commit_transaction(HANG_S)
            else:
                self.producer.abort_transaction(HANG_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(HANG_S)


@pytest.mark.slow
def test_three_nodes_that_died_in_turns_leave_nothing_to_be_found(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(nodes=3, topics={"input": 1, "output": 4}, settings=SETTINGS, data_dir=data) as broker:
        workers = [Worker(broker.bootstrap_servers, name) for name in ("one", "two")]
        for number in range(TRANSACTIONS):
            step, node = number % 15, broker.nodes[1 + number // 15 % 3]
            if step == 5:
                node.kill()
            elif step == 10:
                node.start()
            for worker in workers:
                worker.once(number)
        # One transaction is ongoing when all nodes end.
        workers[0].producer.begin_transaction()
        workers[0].producer.produce("output", b"open", partition=0)
        workers[0].producer.flush(HANG_S)
        broker.kill()
    report = audit(spark, data, tmp_path / "report")
    assert report.violations == 0, report.findings
    assert report.figures["log_dirs"] == 3
    assert report.figures["replicas"] > 2 * report.figures["partitions"]
    # Transactions during the death of a node may have been aborted.
    committed, aborted = (report.figures[f"{name}_transactions"] for name in ("committed", "aborted"))
    assert TRANSACTIONS <= committed <= 2 * TRANSACTIONS * 2 / 3
    assert committed + aborted <= 2 * TRANSACTIONS + 2
    assert {row["status"] for row in report.tables["open_transactions"]} == {"open"}
    assert all(row["agrees"] for row in report.tables["offsets_in_transactions"])


def test_a_broker_at_work_is_seen_at_one_moment(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(topics={"orders": 3, "input": 1}, data_dir=data) as broker:
        write(broker.bootstrap_servers, "orders")
        # As if the directory was created after the list of directories was read.
        shutil.rmtree(data / "orders-2")
        report = audit(spark, data, tmp_path / "report")
    assert report.live
    assert report.counts == {("lost_partition", "warning"): 1}
    assert report.figures["committed_transactions"] == 3


@pytest.mark.slow
def test_a_marker_of_an_unknown_producer_is_found_while_the_broker_is_at_work(
    spark: Any, tmp_path: Path
) -> None:
    """The marker of an unknown producer is found, although only some partitions of __transaction_state have a directory.

    A partition without records has no directory, so all producer ids are in the partitions with a directory.
    """
    data = tmp_path / "data"
    with Broker(topics={"orders": 3, "input": 1}, data_dir=data) as broker:
        write(broker.bootstrap_servers, "orders")
        (place,) = unexpected_producer(Segment(data / "orders-0"))
        assert 0 < len(list(data.glob("__transaction_state-*"))) < 50
        report = audit(spark, data, tmp_path / "report")
    assert report.live
    assert [(each.name, each.topic, each.offset) for each in report.findings] == [
        (place.name, place.topic, place.offset)
    ]
    assert report.counts == {("unexpected_producer", "violation"): 1}


@pytest.mark.slow
def test_a_coordinator_that_came_to_work_during_the_audit_is_heard(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that begins to write during the audit causes no finding.

    The directory of its partition was created after the directories were listed, and before the batches were read.
    """
    data = tmp_path / "data"
    with Broker(topics={"orders": 3, "input": 1}, data_dir=data) as broker:
        write(broker.bootstrap_servers, "orders")
        read_batches = tables.read_batches

        def later(*arguments: Any) -> Any:
            before = set(data.glob("__transaction_state-*"))
            for number in range(4):
                worker = Worker(broker.bootstrap_servers, f"late-{number}", "orders", 3)
                worker.once(1)
                worker.producer.begin_transaction()
                worker.producer.produce("orders", b"open", partition=0)
                worker.producer.flush(HANG_S)
            assert set(data.glob("__transaction_state-*")) > before
            return read_batches(*arguments)

        monkeypatch.setattr(tables, "read_batches", later)
        report = audit(spark, data, tmp_path / "report")
    assert report.live
    assert report.counts == {}, report.findings
    assert {row["status"] for row in report.tables["open_transactions"]} == {"unknown"}


def aborted(producer: Producer) -> None:
    """Write a transaction that rolls several segments of a MiB, and abort it."""
    producer.begin_transaction()
    for number in range(24):
        producer.produce("orders", bytes([number]) * 100_000, partition=0)
        producer.flush(HANG_S)
    producer.abort_transaction(HANG_S)


# It takes a minute and a half beside other tests; test_audit_deep.py tests the rule itself.
@pytest.mark.slow
def test_indexes_of_a_broker_at_work_are_judged_where_it_has_done_with_them(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index files of a running broker are checked only where it does not write them any more.

    The broker appends, rolls and aborts before each read of the index files, and no read leads to a finding.
    """
    data = tmp_path / "data"
    settings = {"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 1}
    with Broker(topics={"orders": 1}, settings=settings, data_dir=data) as broker:
        producer = Worker(broker.bootstrap_servers, "busy").producer
        aborted(producer)
        index_entries, looks = deep.index_entries, []

        def busily(*arguments: Any) -> Any:
            looks.append(arguments)
            aborted(producer)
            return index_entries(*arguments)

        monkeypatch.setattr(deep, "index_entries", busily)
        report = audit(spark, data, tmp_path / "report", deep=True)
        assert report.live
        assert report.counts == {}, report.findings
        assert len(looks) == 2

        first, *_ = sorted((data / "orders-0").glob("*.index"))
        (listed, *_) = sorted((data / "orders-0").glob("*.txnindex"))
        first.write_bytes(INDEX_ENTRY.pack(1, 7) + first.read_bytes()[INDEX_ENTRY.size :])
        listed.write_bytes(b"")
        report = audit(spark, data, tmp_path / "report", deep=True)
    assert report.counts == {("wrong_index", "warning"): 2}
    assert {each.file for each in report.findings} == {first.name, listed.name}
