"""A node whose disk loses unsynced data or is damaged: its logs after that, and what its clients see."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from broker.cluster import NoSuchNode
from lab.cluster.disk import How, NoSuchBatch, damage, lose_power
from lab.cluster.snapshots import Snapshots
from lab.control.routes.topics import RecordsForm, read_records
from storage.checkpoints import read_offsets
from storage.damage import FoundBatch
from storage.directory import RECOVERY_POINTS
from storage.files import StorageError
from storage.flush import Flush
from tests.support.clients import ConfluentProducer, eventually
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from lab.control.ports import Control

NOW_MS = 1_700_000_000_000
UNSYNCED = {
    "odradek.background.flush.interval.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Settings with which nothing is synced unless a test does it."""


class Story:
    def __init__(self, broker: InProcess, path: Path) -> None:
        self.broker = broker
        self.path = path

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.broker.run(coroutine)

    def write(self, *texts: str, topic: str = "orders") -> None:
        producer = ConfluentProducer(self.broker.bootstrap, idempotent=False)
        for text in texts:  # a batch for each record
            producer.send(topic, [text], partition=0)
        producer.close()

    def values(self, topic: str = "orders") -> list[str]:
        control = cast("Control", SimpleNamespace(cluster=self.broker.cluster))
        found: list[str] = []
        offset = 0
        while True:
            form = RecordsForm(topic=topic, partition=0, offset=offset)
            read = self.run(read_records(control, form))
            found += [each.value for each in read.records]
            if read.next_offset == read.end_offset:
                return found
            offset = read.next_offset

    def on(self, node_id: int, topic: str = "orders") -> Partition:
        """The replica of the topic's partition 0 on a running node."""
        node = self.broker.cluster.running(node_id)
        assert node is not None
        partition = node.replicas.get(topic, 0)
        assert partition is not None
        return partition

    def log_end(self, node_id: int) -> int:
        return self.broker.call(lambda: self.on(node_id).log_end_offset)

    def lose_power(self, node_id: int = 1) -> None:
        self.run(lose_power(self.broker.cluster, node_id))

    def start(self, node_id: int = 1) -> None:
        self.run(self.broker.cluster.start_node(node_id))

    def kill(self, node_id: int = 1) -> None:
        self.broker.call(lambda: self.broker.cluster.kill_node(node_id))
        self.run(self.broker.cluster.settled())

    def flush(self, node_id: int = 1) -> None:
        """Sync the whole log of orders-0 on a running node."""

        def sync() -> None:
            flush = Flush(self.on(node_id).log, whole=True)
            assert flush.run() is None
            flush.finish()

        self.broker.call(sync)

    def damage(self, offset: int, how: How, node_id: int = 1) -> FoundBatch:
        found = self.run(damage(self.broker.cluster, node_id, "orders", 0, offset=offset, how=how))
        assert isinstance(found, FoundBatch)
        return found


@contextmanager
def started(path: Path, nodes: int = 1, **settings: Any) -> Iterator[Story]:
    arguments = ["--nodes", str(nodes), "--topic", "orders:1"]
    merged = {**UNSYNCED, "default.replication.factor": nodes, **settings}
    with InProcess(path, *arguments, settings=merged) as broker:
        yield Story(broker, path)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with started(tmp_path) as story:
        yield story


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Story]:
    with started(tmp_path, 3) as story:
        yield story


def test_the_only_replica_loses_the_acknowledged_records_that_were_not_synced(story):
    story.write("a", "b")
    story.flush()
    story.write("c", "d")
    story.lose_power()
    assert story.broker.cluster.nodes[1].state.value == "killed"
    story.start()
    assert story.values() == ["a", "b"]
    story.write("e")
    assert story.values() == ["a", "b", "e"]


def test_the_ledger_has_what_the_last_replica_in_sync_loses(tmp_path):
    with started(tmp_path, 2) as story:
        story.write("a", "b", "c")
        leader = story.broker.cluster.metadata.topics["orders"].partitions[0].leader
        other = 3 - leader
        eventually(lambda: story.log_end(other) == 3)
        losses = story.broker.cluster.injection.losses
        story.lose_power(leader)
        assert losses.list() == ()  # the other node becomes leader, and has the records
        story.lose_power(other)
        [loss] = losses.list()
        assert (loss.topic, loss.partition, loss.records) == ("orders", 0, 3)
        assert (loss.first_offset, loss.last_offset) == (0, 2)
        assert (loss.acknowledged, loss.nodes) == ("committed", [other])


def test_a_kill_loses_nothing(story):
    story.write("a", "b")
    story.kill()
    story.start()
    assert story.values() == ["a", "b"]


def test_nothing_is_left_of_a_log_that_was_never_synced(story):
    story.write("a", "b")
    story.lose_power()
    story.start()
    assert story.values() == []
    story.write("c")
    assert story.values() == ["c"]


@pytest.mark.parametrize("rolls", [False, True], ids=["one segment", "a segment for each batch"])
def test_with_a_sync_for_each_record_none_is_lost(tmp_path, rolls):
    with started(tmp_path, **{"log.flush.interval.messages": 1}) as story:
        written: list[str] = []
        for number in range(3):
            for text in (f"{number} a", f"{number} b"):
                written.append(text)
                story.write(text)
                if rolls:
                    story.broker.call(lambda: story.on(1).log.roll(NOW_MS))
            story.lose_power()
            story.start()
            assert story.values() == written
            # Lose power again before anything new is synced, with a kill before it.
            story.kill()
            story.start()
            story.lose_power()
            story.start()
            assert story.values() == written


def test_a_follower_fetches_again_what_it_lost(three):
    leader = three.broker.cluster.metadata.topics["orders"].partitions[0].leader
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    three.write("a", "b", "c")
    eventually(lambda: three.log_end(other) == 3)
    three.lose_power(other)
    folder = three.broker.cluster.nodes[other].data_dir / "orders-0"
    assert not list(folder.glob("*.log"))
    three.start(other)
    eventually(lambda: three.log_end(other) == 3)
    three.lose_power(leader)
    three.start(leader)
    eventually(lambda: three.log_end(leader) == 3)
    assert three.values() == ["a", "b", "c"]


@pytest.mark.parametrize("committed", [True, False])
def test_the_coordinators_recover_from_what_is_left(story, committed):
    producer = ConfluentProducer(story.broker.bootstrap, transactional_id="payments")
    producer.init()
    producer.begin()
    producer.send("orders", ["in a transaction"])
    producer.send_offsets("readers", {("orders", 0): 1})
    if committed:
        producer.commit()
    story.lose_power()
    story.start()
    producer.close()
    assert story.values() == []
    again = ConfluentProducer(story.broker.bootstrap, transactional_id="payments")
    again.init()
    again.begin()
    again.send("orders", ["after it"])
    again.commit()
    again.close()
    assert story.values() == ["after it"]


def test_a_snapshot_keeps_what_a_power_loss_and_damage_take(story):
    story.write("a", "b")
    snapshots = Snapshots(story.broker.cluster)
    taken = story.run(snapshots.take())
    story.lose_power()
    story.start()
    assert story.values() == []
    story.run(snapshots.restore(taken.id))
    assert story.values() == ["a", "b"]
    story.kill()
    story.damage(0, "flip")
    story.run(snapshots.restore(taken.id))
    assert story.values() == ["a", "b"]


# -- damage


@pytest.mark.parametrize("how", ["flip", "tear"])
def test_recovery_cuts_damage_that_was_not_synced(story, how):
    story.write("a", "b", "c")
    story.kill()
    assert story.damage(1, how).first_offset == 1
    story.start()
    assert story.values() == ["a"]
    story.write("d")
    assert story.values() == ["a", "d"]


@pytest.mark.parametrize("how", ["flip", "tear"])
def test_a_follower_fetches_again_what_was_damaged(three, how):
    leader = three.broker.cluster.metadata.topics["orders"].partitions[0].leader
    other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    three.write("a", "b", "c")
    eventually(lambda: three.log_end(other) == 3)
    three.kill(other)
    batch = three.damage(1, how, other)
    whole = (three.broker.cluster.nodes[leader].data_dir / "orders-0" / batch.path.name).read_bytes()
    assert batch.path.read_bytes() != whole
    three.start(other)
    eventually(lambda: three.log_end(other) == 3)
    eventually(lambda: batch.path.read_bytes() == whole)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_damage_that_was_synced_shows_at_the_read(tmp_path, clean):
    with started(tmp_path, **{"log.flush.offset.checkpoint.interval.ms": 50}) as story:
        story.write("a", "b", "c")
        story.broker.call(lambda: story.on(1).log.roll(NOW_MS))
        story.write("d")
        story.broker.call(lambda: story.on(1).log.roll(NOW_MS))
        checkpoint = story.path / "data" / RECOVERY_POINTS
        eventually(lambda: read_offsets(checkpoint).get(("orders", 0)) == 4)
        if clean:
            story.run(story.broker.cluster.stop_node(1))
        else:
            story.kill()
        story.damage(1, "flip")
        story.start()
        assert story.log_end(1) == 4
        consumer = Consumer(
            {
                "bootstrap.servers": story.broker.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "check.crcs": True,
            }
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        read: list[Message] = []
        while not read or read[-1].error() is None:
            read += consumer.consume(1, HANG_S)
        consumer.close()
        assert [each.value() for each in read[:-1]] == [b"a"]
        error = read[-1].error()
        assert error is not None
        assert error.code() == KafkaError._BAD_MSG
        story.write("e")
        assert story.log_end(1) == 5


def test_a_log_that_was_torn_after_a_clean_stop_ends_before_the_tear(story):
    story.write("a", "b", "c")
    story.run(story.broker.cluster.stop_node(1))
    story.damage(1, "tear")
    story.start()
    assert story.values() == ["a"]


def test_a_node_that_runs_is_not_damaged(story):
    story.write("a")
    with pytest.raises(NoSuchNode, match="node 1 is running: stop or kill it first"):
        story.damage(0, "flip")
    with pytest.raises(NoSuchNode, match="there is no node 7"):
        story.damage(0, "flip", 7)
    story.kill()
    with pytest.raises(NoSuchNode, match="node 1 is killed, not running"):
        story.lose_power()
    with pytest.raises(NoSuchBatch, match="has no batch with offset 1"):
        story.damage(1, "flip")
    with pytest.raises(NoSuchBatch, match="there is no partition none-0"):
        story.run(damage(story.broker.cluster, 1, "none", 0, offset=0, how="flip"))
    story.damage(0, "tear")
    with pytest.raises(StorageError):
        story.damage(0, "tear")
    story.start()
    assert story.values() == []
