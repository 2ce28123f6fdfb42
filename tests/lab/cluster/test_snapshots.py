"""Snapshots of a cluster in this process: what a restore brings back, byte for byte, and what continues unchanged."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.cluster import Cluster, StartError
from broker.cluster.snapshot_files import SNAPSHOTS, capture, finish, prepare
from broker.metadata import NewTopic
from broker.metadata.values import TOPIC_RESOURCE
from lab.cluster import snapshots
from lab.cluster.snapshots import NoSuchSnapshot, Snapshot, Snapshots
from lab.control.routes.topics import RecordsForm, read_records
from server.options import parse
from storage.files import StorageError
from tests.support.clients import ConfluentProducer, eventually
from tests.support.in_process import InProcess

if TYPE_CHECKING:
    from lab.control.ports import Control


class Story:
    """A cluster and its snapshots."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self.snapshots = Snapshots(broker.cluster)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.broker.run(coroutine)

    def take(self) -> Snapshot:
        found = self.run(self.snapshots.take())
        assert isinstance(found, Snapshot)
        return found

    def restore(self, snapshot: Snapshot) -> None:
        self.run(self.snapshots.restore(snapshot.id))

    def producer(self, transactional_id: str) -> ConfluentProducer:
        producer = ConfluentProducer(self.broker.bootstrap, transactional_id=transactional_id)
        producer.init()
        return producer

    def write(self, *texts: str, topic: str = "orders", partition: int = 0) -> None:
        producer = ConfluentProducer(self.broker.bootstrap, idempotent=False)
        producer.send(topic, list(texts), partition=partition)
        producer.close()

    def values(self, topic: str = "orders", partition: int = 0) -> list[str]:
        """The values that a read_committed consumer reads from the leader."""
        control = cast("Control", SimpleNamespace(cluster=self.broker.cluster))
        found: list[str] = []
        form = RecordsForm(topic=topic, partition=partition, offset=0)
        while True:
            read = self.run(read_records(control, form))
            found += [each.value for each in read.records]
            if read.next_offset == read.end_offset:
                return found
            form = RecordsForm(topic=topic, partition=partition, offset=read.next_offset)

    def metadata(self) -> Any:
        return self.broker.cluster.metadata


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    settings = {
        "default.replication.factor": request.param,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
    }
    arguments = ["--nodes", str(request.param), "--topic", "orders:1"]
    with InProcess(tmp_path, *arguments, settings=settings) as broker:
        yield Story(broker)


def logs(root: Path) -> dict[str, bytes]:
    """The bytes of all partitions' segment files but those of the metadata log."""
    found = {}
    for folder, folders, files in os.walk(root):
        # A thread of the broker may delete directories of deleted partitions at the same time.
        folders[:] = [
            each
            for each in folders
            if each not in (SNAPSHOTS, "__cluster_metadata-0") and not each.endswith("-delete")
        ]
        for path in (Path(folder, name) for name in files if name.endswith(".log")):
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def test_what_was_written_after_it_is_gone_twice(story: Story):
    story.write("a", "b")
    snapshot = story.take()
    before = logs(story.broker.cluster.data_dir)
    assert before
    for number in range(2):
        story.write(f"after {number}")
        story.write("new topic", topic="another")
        assert story.values() == ["a", "b", f"after {number}"]
        story.restore(snapshot)
        assert set(story.metadata().topics) == {"orders"}
        assert story.values() == ["a", "b"]
        assert {name: data for name, data in logs(snapshot.path).items() if name in before} == before
    story.run(story.snapshots.remove(snapshot.id))
    assert not snapshot.path.exists()
    with pytest.raises(NoSuchSnapshot, match=f"there is no snapshot {snapshot.id}"):
        story.restore(snapshot)


def test_the_files_are_those_of_then(story: Story):
    story.write(*(f"{number}" for number in range(100)))
    snapshot = story.take()
    before = logs(story.broker.cluster.data_dir)
    story.write(*(f"after {number}" for number in range(100)))
    assert logs(story.broker.cluster.data_dir) != before
    story.restore(snapshot)
    assert logs(story.broker.cluster.data_dir) == before


def test_a_transaction_that_was_open_is_open_and_a_later_commit_is_gone(story: Story):
    story.write("a")
    producer = story.producer("payments")
    producer.begin()
    producer.send("orders", ["open"])
    snapshot = story.take()
    producer.commit()
    eventually(lambda: story.values() == ["a", "open"], "the commit is visible")
    producer.close()
    for _ in range(2):
        story.restore(snapshot)
        [txn] = transactions(story)
        assert (txn.transactional_id, txn.state.wire_name, txn.partitions) == (
            "payments",
            "Ongoing",
            {("orders", 0)},
        )
        assert story.values() == ["a"]
    # The next InitProducerId of the transactional id aborts the transaction, as after any restart.
    again = story.producer("payments")
    again.begin()
    again.send("orders", ["again"])
    again.commit()
    again.close()
    assert eventually(lambda: story.values() == ["a", "again"])


def transactions(story: Story) -> list[Any]:
    return [
        txn
        for node in story.broker.cluster.running_nodes()
        for index, shard in node.transactions.memory().items()
        if story.metadata().topic("__transaction_state").partitions[index].leader == node.node_id
        for txn in shard.values()
    ]


def test_topics_settings_and_time_come_back_and_ids_and_epochs_go_on(story: Story):
    metadata = story.metadata()
    story.run(
        metadata.replication_control.create_topics([NewTopic("doomed", 2, configs={"retention.ms": "5"})])
    )
    story.write("of then", topic="doomed", partition=1)
    story.broker.advance("1d")
    snapshot = story.take()
    before = {name: topic.topic_id for name, topic in metadata.topics.items()}
    epochs, ids = [leader_epochs(story)], [story.run(producer_id(story))]
    for _ in range(2):
        story.broker.advance("1d")
        story.run(metadata.replication_control.delete_topics([before["doomed"]]))
        story.run(
            metadata.replication_control.create_topics(
                [NewTopic("doomed", 1, configs={}), NewTopic("new", 1, configs={})]
            )
        )
        story.run(metadata.change_config(TOPIC_RESOURCE, "orders", {"retention.ms": "7"}))
        ids.append(story.run(producer_id(story)))
        story.restore(snapshot)
        assert {name: topic.topic_id for name, topic in metadata.topics.items()} == before
        assert [topic.configs for topic in (metadata.topic("doomed"), metadata.topic("orders"))] == [
            {"retention.ms": "5"},
            {},
        ]
        assert story.values("doomed", 1) == ["of then"]
        assert set(story.broker.clock.offsets().values()) == {0, 86_400_000}
        ids.append(story.run(producer_id(story)))
        epochs.append(leader_epochs(story))
    assert len(set(ids)) == len(ids) == 5
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 3


def leader_epochs(story: Story) -> int:
    return int(story.metadata().topic("orders").partitions[0].leader_epoch)


async def producer_id(story: Story) -> int:
    found = story.metadata().allocate_producer_id()
    return found if isinstance(found, int) else await found


def test_rolled_segments_are_links_that_a_truncation_does_not_reach(tmp_path: Path):
    settings = {"log.segment.bytes": 1_048_576}
    with InProcess(tmp_path, "--topic", "orders:1", settings=settings) as broker:
        story = Story(broker)
        for number in range(4):
            story.write(*(f"{number}{'x' * 100_000}" for _ in range(10)))
        snapshot = story.take()
        first, *_, last = sorted((snapshot.path / "orders-0").glob("*.log"))
        assert first.stat().st_nlink == 2
        assert last.stat().st_nlink == 1
        kept = logs(snapshot.path)

        def truncate() -> None:
            partition = broker.cluster.running_nodes()[0].replicas.get("orders", 0)
            assert partition is not None
            partition.log.truncate_to(5)

        broker.call(truncate)
        assert logs(snapshot.path) == kept
        story.restore(snapshot)
        assert len(story.values()) == 40
        assert logs(snapshot.path) == kept


def test_taking_one_leaves_the_node_what_its_next_flush_makes_durable(tmp_path: Path):
    with InProcess(tmp_path, "--topic", "orders:1") as broker:
        story = Story(broker)
        story.write("a")
        story.restore(story.take())
        story.write("b")

        def epochs() -> tuple[bool, list[tuple[int, int]]]:
            partition = broker.cluster.running_nodes()[0].replicas.get("orders", 0)
            assert partition is not None
            return partition.log.epochs.dirty, partition.log.epochs.entries()

        before = broker.call(epochs)
        assert before == (True, [(0, 0), (2, 1)])
        snapshot = story.take()
        assert broker.call(epochs) == before
        saved = (snapshot.path / "orders-0" / "leader-epoch-checkpoint").read_text()
        assert saved == "0\n2\n0 0\n2 1\n"


def test_a_folder_that_is_as_it_was_stays(tmp_path: Path):
    with InProcess(tmp_path, "--topic", "changed:1", "--topic", "kept:1") as broker:
        story = Story(broker)
        for topic in ("changed", "kept"):
            story.write("a", topic=topic)
        snapshot = story.take()
        story.restore(snapshot)
        inodes = []
        for _ in range(2):
            story.write("b", topic="changed")
            folders = [broker.cluster.data_dir / f"{topic}-0" for topic in ("changed", "kept")]
            inodes.append([folder.stat().st_ino for folder in folders])
            story.restore(snapshot)
            assert (story.values("changed"), story.values("kept")) == (["a"], ["a"])
        assert inodes[0][0] != inodes[1][0]
        assert inodes[0][1] == inodes[1][1]


def test_a_node_that_was_dead_stays_dead(tmp_path: Path):
    with InProcess(tmp_path, "--nodes", "3", "--topic", "orders:3") as broker:
        story = Story(broker)
        broker.call(lambda: broker.cluster.kill_node(2))
        snapshot = story.take()
        broker.run(broker.cluster.start_node(2))
        broker.call(lambda: broker.cluster.kill_node(3))
        story.restore(snapshot)
        assert {node_id: node.state.value for node_id, node in broker.cluster.nodes.items()} == {
            1: "running",
            2: "killed",
            3: "running",
        }
        broker.run(broker.cluster.start_node(2))
        story.write("a")
        assert story.values() == ["a"]


def test_a_paused_node_runs_after_the_restore(tmp_path: Path):
    with InProcess(tmp_path, "--nodes", "3", "--topic", "orders:3") as broker:
        story = Story(broker)
        story.write("a")
        broker.call(lambda: broker.cluster.pause_node(2))
        snapshot = story.take()
        broker.call(lambda: broker.cluster.resume_node(2))
        for partition in range(3):
            story.write("after", partition=partition)
        broker.call(lambda: broker.cluster.pause_node(3))
        story.restore(snapshot)
        assert [node.is_paused for node in broker.cluster.nodes.values()] == [False, False, False]
        assert [story.values(partition=partition) for partition in range(3)] == [["a"], [], []]
        for partition in range(3):
            story.write("b", partition=partition)
        assert [story.values(partition=partition) for partition in range(3)] == [["a", "b"], ["b"], ["b"]]


def test_a_topic_that_is_deleted_before_the_instant_is_not_in_it(tmp_path: Path):
    with InProcess(tmp_path, "--topic", "orders:1", "--topic", "doomed:1") as broker:
        story = Story(broker)
        for topic in ("orders", "doomed"):
            story.write("a", topic=topic)
        source, target = broker.cluster.data_dir, tmp_path / "snapshot"
        prepare(source, target)
        assert (target / "doomed-0").is_dir()
        story.run(
            story.metadata().replication_control.delete_topics([story.metadata().topic("doomed").topic_id])
        )
        story.write("b", topic="of-late")
        files = broker.call(lambda: capture(source, target, broker.cluster.running(1)))
        finish(files)
        assert {path.name for path in target.iterdir() if path.is_dir() and path.name[0] != "_"} == {
            "orders-0",
            "of-late-0",
        }


def test_one_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise StorageError("orders-0", "No space left on device")

    with InProcess(tmp_path, "--topic", "orders:1") as broker:
        story = Story(broker)
        story.write("a")
        with monkeypatch.context() as patched:
            patched.setattr(snapshots, "capture", full)
            with pytest.raises(StorageError, match="No space left"):
                story.take()
        assert list((broker.cluster.data_dir / SNAPSHOTS).iterdir()) == []
        story.restore(story.take())
        assert story.values() == ["a"]


def test_nothing_is_left_after_the_end_and_another_broker_takes_nothing_away(tmp_path: Path):
    with InProcess(tmp_path) as broker:
        snapshot = Story(broker).take()

        async def start_another() -> None:
            await Cluster(parse(["--port", "0", "--data-dir", str(tmp_path / "data")], {})).start()

        with pytest.raises(StartError, match="in use"):
            broker.run(start_another())
        assert snapshot.path.is_dir()
    assert not snapshot.path.parent.exists()
    snapshot.path.mkdir(parents=True)  # a killed broker leaves its snapshots behind
    with InProcess(tmp_path):
        assert not snapshot.path.parent.exists()
