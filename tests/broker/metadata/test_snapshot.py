"""Metadata snapshots bound what a start has to read, and contain the whole image."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

import broker.metadata.log as log_module
from broker.metadata.deltas import apply
from broker.metadata.framing import CorruptMetadata, Quorum
from broker.metadata.image import Image
from broker.metadata.replay import replay
from broker.metadata.snapshot import read_snapshot, snapshots
from broker.metadata.values import MetadataDelta
from protocol.batch import batches, build_batch
from protocol.records.kraft import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_control_record,
    encode_control_record,
)
from tests.broker.metadata.test_log import Opened, closed_with, topic
from tests.broker.metadata.world import NOW_MS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "__cluster_metadata-0"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every start write a snapshot of the image that it has read."""
    monkeypatch.setattr(log_module, "SNAPSHOT_FROM_BYTES", 0)
    monkeypatch.setattr(log_module, "SNAPSHOT_RATIO", 0)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".checkpoint"))


def test_a_small_log_is_left_alone(directory):
    closed_with(directory, 3)
    Opened(directory).log.abandon()
    assert names(directory) == [f"{0:020d}.log"]


def test_a_snapshot_replaces_the_log_before_it(directory, eager):
    before = closed_with(directory, 3)
    end = before.offset + 1
    opened = Opened(directory)
    opened.add(4)
    opened.log.abandon()
    assert names(directory) == [f"{end:020d}-0000000001.checkpoint", f"{end:020d}.log"]
    assert (directory / "leader-epoch-checkpoint").read_text() == f"0\n1\n2 {end}\n"
    image = Image()
    replay(directory, image)
    assert list(image.topics) == ["t1", "t2", "t3", "t4"]
    assert image.topics == opened.image.topics


def test_a_snapshot_keeps_the_voters_that_kafka_wrote(directory, eager):
    """A snapshot contains the voters of a KIP-853 quorum, as the log does. Without voters Kafka could not elect a controller
    after a downgrade."""
    closed_with(directory, 1)
    voter = Voter(
        1, UUID(int=7), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),), KRaftVersionFeature(0, 1)
    )
    version, voters = KRaftVersionRecord(1), VotersRecord((voter,))
    [path] = directory.glob("*.log")
    offset = list(batches(path.read_bytes()))[-1].next_offset
    values = [(NOW_MS, *encode_control_record(record)) for record in (version, voters)]
    with path.open("ab") as file:
        file.write(build_batch(values, base_offset=offset, leader_epoch=1, control=True))
    for _ in range(2):  # the first start writes a snapshot of the log, the second a snapshot of that snapshot
        Opened(directory).log.abandon()
        [snapshot] = snapshots(directory)
        header, *_ = batches(snapshot.path.read_bytes())
        _, *kept = [decode_control_record(record.key, record.value) for record in header.records()]
        assert kept == [version, voters]
    state = replay(directory, Image())
    assert state.quorum == Quorum(version, voters)


def test_a_snapshot_begins_and_ends_as_kafkas(directory, eager):
    closed_with(directory, 2)
    Opened(directory).log.abandon()
    [snapshot] = snapshots(directory)
    whole = list(batches(snapshot.path.read_bytes()))
    [[header], [footer]] = ([*whole[0].records()], [*whole[-1].records()])
    assert decode_control_record(header.key, header.value) == SnapshotHeaderRecord(NOW_MS)
    assert decode_control_record(footer.key, footer.value) == SnapshotFooterRecord()
    assert (whole[0].base_offset, whole[-1].base_offset) == (0, whole[1].next_offset)
    assert {batch.partition_leader_epoch for batch in whole} == {1}


def test_only_the_newest_snapshot_is_kept_and_read(directory, eager):
    for number in range(1, 5):
        opened = Opened(directory)
        opened.add(number)
        opened.log.abandon()
    assert len(names(directory)) == 2
    assert list(Opened(directory).image.topics) == ["t1", "t2", "t3", "t4"]


def test_a_crash_between_snapshot_and_cleaning_up_costs_nothing(directory, eager, monkeypatch):
    before = closed_with(directory, 3)

    class Killed(BaseException):
        pass

    def killed(self: Path, missing_ok: bool = False) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(Killed):
            Opened(directory)
    assert len(names(directory)) == 2
    opened = Opened(directory)
    assert opened.image.topics == before.topics
    opened.log.abandon()


def test_a_log_that_ends_before_the_snapshot_is_continued_in_a_new_file(directory, eager):
    before = closed_with(directory, 3)
    opened = Opened(directory)
    opened.log.abandon()
    [log_file] = directory.glob("*.log")
    log_file.unlink()
    log_file.with_name(f"{0:020d}.log").touch()
    again = Opened(directory)
    assert again.image.topics == before.topics
    again.add(4)
    again.log.abandon()
    assert list(Opened(directory).image.topics) == ["t1", "t2", "t3", "t4"]


def test_batches_that_the_snapshot_has_are_skipped(directory):
    """A start skips batches that are older than the snapshot. Kafka keeps log segments for some time after it has written a
    snapshot."""
    before = closed_with(directory, 3)
    image = Image()
    state = replay(directory, image)
    log_module.take_snapshot(directory, image, state, NOW_MS)
    [snapshot] = snapshots(directory)
    other = directory.with_name("other")
    closed_with(other, 4)
    snapshot.path.rename(other / snapshot.path.name)
    seen = Image()
    replay(other, seen)
    assert list(seen.topics) == ["t1", "t2", "t3", "t4"]
    assert before.topics.keys() < seen.topics.keys()


def test_an_unfinished_snapshot_is_refused(directory, eager):
    closed_with(directory, 3)
    Opened(directory).log.abandon()
    [snapshot] = snapshots(directory)
    data = snapshot.path.read_bytes()
    snapshot.path.write_bytes(data[: len(data) - 20])
    with pytest.raises(CorruptMetadata, match="is incomplete"):
        Opened(directory)


def test_other_files_are_no_snapshots(directory):
    directory.mkdir()
    for name in (
        "x.checkpoint",
        f"{1:020d}-{1:010d}.checkpoint.part",
        f"{1:020d}-{1:010d}.checkpoint.deleted",
    ):
        (directory / name).touch()
    assert snapshots(directory) == []


def test_large_images_are_written_in_several_batches(directory, eager, monkeypatch):
    monkeypatch.setattr("broker.metadata.snapshot.BATCH_RECORDS_MAX", 7)
    opened = Opened(directory)
    opened.log.commit_now([topic(1, partitions=30)], NOW_MS)
    opened.log.abandon()
    Opened(directory).log.abandon()
    [snapshot] = snapshots(directory)
    assert len(list(batches(snapshot.path.read_bytes()))) == 2 + 5
    image = Image()
    read_snapshot(snapshot, image, Quorum())
    assert image.topics == opened.image.topics
    apply(image, topic(2)[0], MetadataDelta())
    assert image.topics_by_id[UUID(int=2)].partitions == []
