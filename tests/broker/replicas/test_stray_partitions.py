"""Partition directories that the metadata does not know, and damaged `partition.metadata` files: one log line for each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import structlog

from storage.checkpoints import PARTITION_METADATA, read_offsets, write_offsets
from storage.directory import CLEAN_MARK, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from tests.support.background import no_threads
from tests.support.world import World

TOPIC = "orders"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create(TOPIC, 2)
    for index in (0, 1):
        made.produce(TOPIC, index, b"value")
        made.partition(TOPIC, index).log.close(clean=True)
    return made


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_logs_of_a_topic_that_the_metadata_has_lost_are_one_line(world: World, clean: bool) -> None:
    del world.cluster.topics[TOPIC]
    if clean:
        (world.path / CLEAN_MARK).touch()
    with structlog.testing.capture_logs() as lines:
        world.crash()
    (line,) = [line for line in lines if "not in the cluster metadata" in line["event"]]
    assert (line["topic"], line["partitions"]) == (TOPIC, [0, 1])
    assert (world.path / "orders-0" / "00000000000000000000.log").stat().st_size


@pytest.mark.parametrize("place", [0, 3, 9, 12, 21, 22, 30, 42])
def test_a_flipped_partition_metadata_costs_nothing(world: World, place: int) -> None:
    path = world.path / "orders-0" / PARTITION_METADATA
    sound = path.read_bytes()
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    with structlog.testing.capture_logs() as lines:
        world.crash()
    assert world.partition(TOPIC, 0).log_end_offset == 1
    assert world.partition(TOPIC, 0).offline is None
    written = [line for line in lines if line["event"] == "damaged partition.metadata rewritten"]
    # The last character of a topic id has two unused bits.
    assert written or place == 42
    assert place == 42 or path.read_bytes() == sound
    assert written == [] or written[0]["directory"] == str(path.parent)


def test_a_folder_of_an_earlier_topic_is_set_aside_with_a_line(world: World) -> None:
    path = world.path / "orders-0" / PARTITION_METADATA
    path.write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    with structlog.testing.capture_logs() as lines:
        world.crash()
    (line,) = [line for line in lines if line["event"] == "folder of an earlier topic set aside"]
    assert Path(line["moved_to"]).is_dir()
    assert world.partition(TOPIC, 0).log_end_offset == 0


@pytest.mark.parametrize("has_folder", [True, False])
def test_checkpoints_of_an_earlier_topic_are_not_those_of_the_next_by_its_name(
    world: World, has_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoint entries of a deleted topic do not apply to a topic of the same name that was created while the node was
    down."""
    no_threads(monkeypatch)
    folder = world.path / "orders-0"
    if has_folder:
        (folder / PARTITION_METADATA).write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    else:
        shutil.rmtree(folder)
    for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
        write_offsets(world.path / name, {(TOPIC, 0): 7})
    world.crash()
    partition = world.partition(TOPIC, 0)
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (0, 0, 0)
    assert partition.log.recovery_point == 0


def test_a_deleted_topic_leaves_the_checkpoint_files_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint files lose a topic's entries when the topic is deleted. After a crash they would apply to a new topic
    of the same name (Kafka: ``LogManager.asyncDelete``)."""
    no_threads(monkeypatch)
    for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
        write_offsets(world.path / name, {(TOPIC, 0): 1})
    world.crash()
    world.cluster.delete(TOPIC)
    world.create(TOPIC)
    world.produce(TOPIC, 0, b"value")
    world.crash()
    partition = world.partition(TOPIC, 0)
    assert (partition.log_start_offset, partition.log.recovery_point) == (0, 0)
    assert read_offsets(world.path / HIGH_WATERMARKS) == {}
