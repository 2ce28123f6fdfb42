"""A disk failure takes one partition offline, with one log line that has the file's name. Other partitions are still
served."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.apis.create_partitions import create_partitions
from broker.apis.create_topics import create_topics
from broker.apis.delete_topics import delete_topics
from broker.apis.describe_topic_partitions import describe_topic_partitions
from broker.apis.find_coordinator import find_coordinator as find_coordinator_handler
from broker.apis.metadata import metadata as metadata_handler
from broker.cluster import Cluster, StartError
from broker.node.context import RequestContext
from broker.replicas.partition import Partition
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from server.options import parse
from storage.directory import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tests.support.background import no_threads
from tests.support.coroutines import served
from tests.support.disk import WRITES, Disk
from tests.support.world import CONSUMER_OFFSETS, TRANSACTION_STATE, World

find_coordinator = served(find_coordinator_handler)
metadata = served(metadata_handler)

OFFLINE = ErrorCode.kafka_storage_error
Lines = list[Any]


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    no_threads(monkeypatch)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    with disk.in_use():
        yield disk


@pytest.fixture
def lines() -> Iterator[Lines]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def world(disk: Disk) -> Iterator[World]:
    world = World(disk.root)
    world.create("broken")
    world.create("sound")
    world.start()
    for topic in ("broken", "sound"):
        assert write(world, topic) is ErrorCode.none
    yield world
    world.abandon()


def write(world: World, topic: str) -> int:
    code: int = world.produce(topic, 0, b"%d" % world.random.getrandbits(32)).error_code
    return code


def values(world: World, topic: str) -> list[bytes]:
    return world.committed_values(topic)


def after_repair(world: World, disk: Disk) -> None:
    """Repair the disk and start the broker again."""
    disk.mend()
    world.crash()
    world.start()


def offline_lines(lines: Lines) -> list[tuple[str, str]]:
    """(topic, file name) of each "partition offline" line in the log."""
    return [
        (line["topic"], Path(line["file"]).name) for line in lines if line["event"] == "partition offline"
    ]


# -- a partition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(
    ("call", "path", "named"),
    [
        ("pwritev", "*/broken-0/*.log", f"{0:020d}.log"),
        (WRITES, f"*/broken-0/{0:020d}.timeindex", f"{0:020d}.timeindex"),
        ("open", f"*/broken-0/{1:020d}.log", f"{1:020d}.log"),
        ("open", f"*/broken-0/{1:020d}.timeindex", f"{1:020d}.timeindex"),
    ],
    ids=["append", "seal", "next log", "next index"],
)
def test_an_append_that_fails_takes_its_partition_offline(
    world: World, disk: Disk, lines: Lines, call: str | tuple[str, ...], path: str, named: str, code: int
):
    before = values(world, "broken")
    if call != "pwritev":
        roll_next(world.partition("broken"))
    fault = disk.fail(*([call] if isinstance(call, str) else call), code=code, path=path, times=1)
    assert write(world, "broken") == OFFLINE
    assert fault.hits == 1
    assert write(world, "broken") == OFFLINE
    assert write(world, "sound") == ErrorCode.none
    assert offline_lines(lines) == [("broken", named)]
    sound = values(world, "sound")
    after_repair(world, disk)
    assert (values(world, "broken"), values(world, "sound")) == (before, sound)
    assert write(world, "broken") == ErrorCode.none


def roll_next(partition: Partition) -> None:
    """Set ``segment.bytes`` so that one batch of this test fits into a segment, and two do not."""
    partition.log.config = replace(partition.log.config, segment_bytes=120)


def test_a_full_disk_takes_what_is_written_to_and_leaves_what_is_read(world: World, disk: Disk, lines: Lines):
    before = values(world, "broken")
    disk.room = 10
    assert write(world, "broken") == OFFLINE
    assert values(world, "sound") != []
    assert write(world, "sound") == OFFLINE
    assert [topic for topic, _ in offline_lines(lines)] == ["broken", "sound"]
    after_repair(world, disk)
    assert values(world, "broken") == before


def test_a_disk_that_turns_read_only(world: World, disk: Disk, lines: Lines):
    disk.read_only = True
    assert write(world, "broken") == OFFLINE
    assert len(values(world, "sound")) == 1
    ((_, name),) = offline_lines(lines)
    assert name == f"{0:020d}.log"
    after_repair(world, disk)
    assert write(world, "broken") == ErrorCode.none


def test_a_snapshot_that_cannot_be_written_is_tried_again_and_no_client_notices(
    world: World, disk: Disk, lines: Lines
):
    roll_next(world.partition("broken"))
    disk.fail("open", "write", path="*/broken-0/*.snapshot", times=1)
    for _ in range(3):
        assert write(world, "broken") == ErrorCode.none
    said = [line for line in lines if line["event"] == "producer snapshot not written"]
    assert [Path(line["file"]).name for line in said] == [f"{1:020d}.snapshot"]
    names = {path.name for path in world.partition("broken").log.directory.glob("*.snapshot")}
    assert names == {f"{2:020d}.snapshot", f"{3:020d}.snapshot"}


def test_checkpoints_that_cannot_be_written_are_tried_again(world: World, disk: Disk, lines: Lines):
    world.node.replicas.start_timers()
    fault = disk.fail("open", code=errno.ENOSPC, path="*-checkpoint.tmp", times=1)
    world.clock.advance(600_000)
    assert fault.hits == 1
    said = [line for line in lines if line["event"] == "checkpoints could not be written"]
    assert len(said) == 1
    assert "checkpoint" in said[0]["reason"]
    assert world.directory.read_checkpoint(RECOVERY_POINTS)["sound", 0] == 0
    assert world.directory.read_checkpoint(HIGH_WATERMARKS)["sound", 0] == 1
    assert offline_lines(lines) == []


# -- seen by clients ----------------------------------------------------------------------------------------------


def partition_row(world: World, topic: str, version: int = 13) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return metadata(request, world.context(version)).topics[0].partitions[0]


def test_clients_are_shown_a_partition_without_a_leader_whose_replica_is_offline(world: World, disk: Disk):
    """In Metadata responses a partition whose replica is offline has no leader, as in Kafka, where the controller removes
    the leadership of a failed log directory (KIP-858)."""
    before = partition_row(world, "broken")
    assert (before.error_code, before.leader_id, list(before.offline_replicas)) == (ErrorCode.none, 1, [])
    disk.fail("pwritev", path="*/broken-0/*")
    write(world, "broken")
    row = partition_row(world, "broken")
    assert (row.error_code, row.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (list(row.replica_nodes), list(row.isr_nodes), list(row.offline_replicas)) == ([1], [1], [1])
    assert partition_row(world, "sound").leader_id == 1
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="broken")])
    described = describe_topic_partitions(request, world.context(0)).topics[0].partitions[0]
    assert (described.leader_id, list(described.offline_replicas)) == (-1, [1])


# -- coordinators -------------------------------------------------------------------------------------------------


def coordinator_of(world: World, key: str, kind: int) -> int:
    answer: Any = find_coordinator(
        FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), world.context(6)
    )
    return int(answer.coordinators[0].error_code)


def test_a_transaction_coordinator_without_its_log_is_not_available(world: World, disk: Disk, lines: Lines):
    identity = world.init("tx")
    assert coordinator_of(world, "tx", 1) == ErrorCode.none
    disk.fail("pwritev", code=errno.ENOSPC, path=f"*/{TRANSACTION_STATE}-*/*")
    answers = [
        world.ask_init("tx").error_code,
        world.ask_init("tx").error_code,
        *world.add("tx", *identity, ("sound", 0)).values(),
        world.add_offsets("tx", *identity),
        world.end("tx", *identity, committed=True)[0],
    ]
    assert answers == [ErrorCode.not_coordinator] * 5
    assert coordinator_of(world, "tx", 1) == ErrorCode.coordinator_not_available
    answer = world.produce(
        "sound", 0, b"v", transactional_id="tx", producer_id=identity[0], epoch=identity[1], sequence=0
    )
    assert answer.error_code in (ErrorCode.not_coordinator, ErrorCode.not_enough_replicas)
    assert [topic for topic, _ in offline_lines(lines)] == [TRANSACTION_STATE]
    assert write(world, "sound") == ErrorCode.none
    after_repair(world, disk)
    assert world.ask_init("tx").error_code == ErrorCode.none


def test_a_group_coordinator_without_its_log_is_not_available(world: World, disk: Disk, lines: Lines):
    identity = world.init("tx")
    offset = {("sound", 0): 1}
    assert world.commit_offsets("tx", *identity, offset) is ErrorCode.none
    disk.fail("pwritev", code=errno.EIO, path=f"*/{CONSUMER_OFFSETS}-*/*")
    errors = [world.commit_offsets("tx", *identity, offset) for _ in range(2)]
    assert errors == [ErrorCode.not_coordinator] * 2 or set(errors) <= {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
    }
    assert coordinator_of(world, "g", 0) == ErrorCode.coordinator_not_available
    assert [topic for topic, _ in offline_lines(lines)] == [CONSUMER_OFFSETS]
    # The decision (PrepareCommit) is written, but the marker waits for the partition.
    assert world.end("tx", *identity, committed=True)[0] == ErrorCode.none
    world.clock.advance(1000)
    assert world.ask_init("tx").error_code == ErrorCode.concurrent_transactions
    after_repair(world, disk)
    world.clock.advance(1000)
    shards: list[Any] = list(world.node.groups.memory().values())
    committed = [shard["committed"].get("g", {}) for shard in shards]
    assert [one.offset for each in committed for one in each.values()] == [1]
    assert world.ask_init("tx").error_code == ErrorCode.none


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_marker_that_cannot_be_written_is_written_after_the_repair(
    world: World, disk: Disk, committed: bool
):
    producer_id, epoch = world.init("tx")
    for topic in ("broken", "sound"):
        answer = world.produce(
            topic, 0, b"tx", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0
        )
        assert answer.error_code == ErrorCode.none
    before = values(world, "sound")
    # An abort writes the marker, then the index of aborted transactions. Either write may fail.
    disk.fail("pwritev", path="*/broken-0/*", after=0 if committed else 1)
    assert world.end("tx", producer_id, epoch, committed=committed)[0] == ErrorCode.none
    assert values(world, "sound") == ([*before, b"tx"] if committed else before)
    after_repair(world, disk)
    world.clock.advance(1000)
    expected = [b"tx"] if committed else []
    for topic in ("broken", "sound"):
        assert values(world, topic)[1:] == expected
        partition = world.partition(topic)
        assert partition.last_stable_offset == partition.log_end_offset
    assert world.ask_init("tx").error_code == ErrorCode.none


# -- damaged or missing files at the start ------------------------------------------------------------------------


def crash_and(world: World, change: Callable[[Path], object], lines: Lines) -> Lines:
    """Crash the world, change its files and start it again. Returns the log lines of the start."""
    world.abandon()
    change(world.path)
    world.cluster.restart()
    before = len(lines)
    world._open()
    world.node.replicas.recover()
    world.start()
    return lines[before:]


@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS])
@pytest.mark.parametrize("content", [b"7\n0\n", b"0\n2\nbroken 0 1\n", b"0\n1\nbroken zero 1\n", b"\xff"])
def test_an_invalid_checkpoint_counts_as_empty(world: World, lines: Lines, name: str, content: bytes):
    before = values(world, "broken")
    said = crash_and(world, lambda path: (path / name).write_bytes(content), lines)
    (line,) = [line for line in said if "checkpoint" in line["event"]]
    assert (line["log_level"], line["file"]) == ("warning", str(world.path / name))
    assert offline_lines(said) == []
    assert values(world, "broken") == before
    assert write(world, "broken") == ErrorCode.none


def replaced_by_directory(path: Path) -> None:
    """Put a directory in the place of a file, which makes it unreadable for root too."""
    path.rename(path.with_name("aside"))
    path.mkdir()


DAMAGES = {
    "partition.metadata of version 1": (
        "partition.metadata",
        lambda path: path.write_text("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
    ),
    "unreadable log": (f"{0:020d}.log", replaced_by_directory),
    "unreadable epochs": ("leader-epoch-checkpoint", replaced_by_directory),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_cannot_be_used_takes_one_partition_offline_until_it_is_mended(
    world: World, lines: Lines, damage: str
):
    name, change = DAMAGES[damage]
    before = values(world, "broken")
    path = world.path / "broken-0" / name
    kept = path.read_bytes()
    said = crash_and(world, lambda _: change(path), lines)
    assert offline_lines(said) == [("broken", name)]
    assert write(world, "broken") == OFFLINE
    assert write(world, "sound") == ErrorCode.none
    assert partition_row(world, "broken").leader_id == -1

    def mend(_: Path) -> None:
        if path.is_dir():
            path.rmdir()
        path.write_bytes(kept)

    assert offline_lines(crash_and(world, mend, lines)) == []
    assert values(world, "broken") == before
    assert write(world, "broken") == ErrorCode.none


# -- the end ------------------------------------------------------------------------------------------------------


async def test_a_stop_that_could_not_finish_is_no_clean_one(world: World, disk: Disk, lines: Lines):
    """A stop during which files could not be written does not count as clean. Otherwise the next start would trust an index
    that was not written."""
    before = values(world, "broken")
    disk.fail("write", code=errno.ENOSPC, path="*/broken-0/*")
    assert await world.node.replicas.close(clean=True) is False
    assert [topic for topic, _ in offline_lines(lines)] == ["broken"]
    after_repair(world, disk)
    assert values(world, "broken") == before


async def test_a_stop_after_a_partition_went_offline_is_no_clean_one(world: World, disk: Disk):
    disk.fail("pwritev", path="*/broken-0/*", times=1)
    write(world, "broken")
    assert await world.node.replicas.close(clean=True) is False


async def test_a_stop_without_failures_is_a_clean_one(world: World):
    assert await world.node.replicas.close(clean=True) is True


# -- a whole broker -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def running(disk: Disk) -> AsyncIterator[Cluster]:
    cluster = Cluster(parse(["--port", "0", "--data-dir", str(disk.root), "--topic", "sound:1"], {}))
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def asking(cluster: Cluster, version: int) -> RequestContext:
    return RequestContext(cluster.first.node, cluster.first.listeners[0], -1, version, "test", "/127.0.0.1")


def append_one(cluster: Cluster) -> int:
    """Append a record and return its offset."""
    partition = cluster.first.node.replicas.leader("sound", 0)
    assert isinstance(partition, Partition)
    result = partition.append(RecordBatch.parse(build_batch([(1, b"k", b"v")])), required_acks=-1)
    assert result.error is ErrorCode.none
    return result.base_offset


async def change_topics(cluster: Cluster) -> list[int]:
    """Create a topic, add partitions to a topic and delete a topic. Returns the three errors."""
    new = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="sound", count=2, assignments=None)])
    gone = DeleteTopicsRequest(topic_names=["sound"])
    return [
        (await create_topics(new, asking(cluster, 5))).topics[0].error_code,
        (await create_partitions(more, asking(cluster, 3))).results[0].error_code,
        (await delete_topics(gone, asking(cluster, 5))).responses[0].error_code,
    ]


@pytest.mark.parametrize("call", ["pwritev", "fsync"])
async def test_metadata_that_cannot_be_written_stays_as_it_is(disk: Disk, lines: Lines, call: str):
    async with running(disk) as cluster:
        disk.fail(call, code=errno.ENOSPC, path="*/__cluster_metadata-0/*.log")
        for _ in range(2):
            assert await change_topics(cluster) == [OFFLINE] * 3
        asked = FindCoordinatorRequest(coordinator_keys=["tx"], key_type=1)
        answer: Any = await find_coordinator(asked, asking(cluster, 6))
        assert answer.coordinators[0].error_code == ErrorCode.coordinator_not_available
        assert append_one(cluster) == 0
        assert set(cluster.first.node.metadata.topics) == {"sound"}
    said = [line for line in lines if line["event"] == "metadata cannot be changed any more"]
    assert [Path(line["file"]).parent.name for line in said] == ["__cluster_metadata-0"]
    assert [line for line in lines if "exc_info" in line] == []
    disk.mend()
    async with running(disk) as cluster:
        assert cluster.first.node.replicas.get("sound", 0).log_end_offset == 1  # type: ignore[union-attr]
        # A record that was written but not synced was not acknowledged, and in this test it survives the restart.
        new = ErrorCode.none if call == "pwritev" else ErrorCode.topic_already_exists
        assert await change_topics(cluster) == [new, ErrorCode.none, ErrorCode.none]


async def test_a_deleted_topic_whose_folder_cannot_be_renamed_is_gone_all_the_same(disk: Disk, lines: Lines):
    async with running(disk) as cluster:
        append_one(cluster)
        fault = disk.fail("rename", path="*/sound-0", times=1)
        deleted = await delete_topics(DeleteTopicsRequest(topic_names=["sound"]), asking(cluster, 5))
        assert (deleted.responses[0].error_code, fault.hits) == (ErrorCode.none, 1)
        said = [line for line in lines if line["event"] == "directory of a deleted topic not removed"]
        assert [line["file"] for line in said] == [str(disk.root / "sound-0")]
        again = CreateTopicsRequest(
            topics=[CreatableTopic(name="sound", num_partitions=1, replication_factor=1)]
        )
        assert (await create_topics(again, asking(cluster, 5))).topics[0].error_code == ErrorCode.none
        assert append_one(cluster) == 0
    assert len(list(disk.root.glob("sound-0.*-stray"))) == 1


async def test_a_read_only_disk_is_named_at_the_start_and_nothing_is_lost_by_trying(disk: Disk):
    async with running(disk):
        pass
    disk.read_only = True
    with pytest.raises(StartError, match=rf"{disk.root}.*the file system is read-only"):
        async with running(disk):
            pass
    disk.mend()
    async with running(disk) as cluster:
        assert set(cluster.first.node.metadata.topics) == {"sound"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("version=0\nnode.id=1\ncluster.id=x\n", "has version 0"),
        ("version=1\ncluster.id=x\n", "does not name the node.id"),
        ("", "is empty"),
    ],
)
async def test_an_identity_that_cannot_be_used_is_a_sentence_at_the_start(
    disk: Disk, content: str, complaint: str
):
    async with running(disk):
        pass
    path = disk.root / "meta.properties"
    kept = path.read_text()
    path.write_text(content)
    with pytest.raises(StartError, match=rf"{path}.*{complaint}"):
        async with running(disk):
            pass
    path.write_text(kept)
    async with running(disk) as cluster:
        assert set(cluster.first.node.metadata.topics) == {"sound"}
