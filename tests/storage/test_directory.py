"""The log directory: its lock, the marker file of a clean stop, its checkpoint files, its partitions (`LogManager`)."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.uuids import parse_uuid, uuid_text
from storage.checkpoints import (
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from storage.directory import CLEAN_MARK, RECOVERY_POINTS, DirectoryInUse, LogDirectory
from storage.files import StorageError
from tests.support.deadlines import HANG_S

TOPIC_ID = uuid.UUID(bytes=bytes.fromhex("a7ad32e0e8b64c0a94710dfd971c20a9"))


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], LogDirectory]:
    return lambda: LogDirectory(tmp_path)


# -- lock and mark ----------------------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from storage.directory import LogDirectory\n"
        "LogDirectory(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryInUse, match=str(tmp_path)):
            LogDirectory(tmp_path)
        other.stdin.close()
        other.wait(HANG_S)
    LogDirectory(tmp_path).close(clean=True)
    assert (tmp_path / ".lock").read_bytes() == b""


def test_a_directory_is_open_once_in_a_process_whose_own_lock_would_not_see_it(
    opened: Callable[[], LogDirectory], tmp_path: Path
):
    first = opened()
    with pytest.raises(DirectoryInUse, match="in use by another node of this process"):
        LogDirectory(tmp_path / "." / ".." / tmp_path.name)
    first.close(clean=False)
    opened().close(clean=False)


def test_the_mark_is_there_only_after_a_clean_stop(opened: Callable[[], LogDirectory], tmp_path: Path):
    (tmp_path / "orders-0").mkdir()
    directory = opened()
    assert not directory.was_clean
    directory.close(clean=True, broker_epoch=11)
    assert (tmp_path / CLEAN_MARK).read_bytes() == b'{"version":0,"brokerEpoch":11}'
    directory = opened()
    assert directory.was_clean
    assert not (tmp_path / CLEAN_MARK).exists()  # removed before clients are served
    directory.close(clean=False)
    assert not opened().was_clean


def test_a_directory_without_partitions_is_clean(opened: Callable[[], LogDirectory], tmp_path: Path):
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert opened().was_clean


# -- partition directories --------------------------------------------------------------------------------------


def test_names_are_split_at_the_last_dash_and_others_are_no_partitions(
    opened: Callable[[], LogDirectory], tmp_path: Path
):
    for name in (
        "orders-0",
        "orders-by-day-12",
        "__consumer_offsets-49",
        "__cluster_metadata-0",
        f"orders-0.{TOPIC_ID.hex}-delete",
        f"orders-0.{TOPIC_ID.hex}-future",
        f"orders-0.{TOPIC_ID.hex}-stray",
        "-0",
        "orders-",
        "orders-²",
        "orders",
        "orders--1",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_bytes(b"")
    directory = opened()
    assert sorted(key for key, _ in directory.partition_directories()) == [
        ("__consumer_offsets", 49),
        ("orders", 0),
        ("orders-", 1),
        ("orders-by-day", 12),
    ]
    assert all(directory.partition_path(*key) == path for key, path in directory.partition_directories())
    assert [path.name for path in directory.doomed_directories()] == [f"orders-0.{TOPIC_ID.hex}-delete"]


@pytest.mark.parametrize("topic", ["orders", "orders-by-day", "o" * 249])
def test_a_deleted_partition_frees_its_name_at_once(
    opened: Callable[[], LogDirectory], tmp_path: Path, topic: str
):
    directory = opened()
    directory.partition_path(topic, 12).mkdir()
    (directory.partition_path(topic, 12) / "file").write_bytes(b"data")
    doomed = directory.mark_for_deletion(topic, 12)
    assert doomed is not None
    assert len(doomed.name) <= 255
    assert re.search(r"-12\.[0-9a-f]{32}-delete$", doomed.name)
    assert doomed.name.startswith(topic[:200])
    assert list(directory.doomed_directories()) == [doomed]
    assert not directory.partition_path(topic, 12).exists()
    directory.remove(doomed)
    assert not doomed.exists()
    assert directory.mark_for_deletion(topic, 12) is None


def test_a_partition_is_deleted_again_before_the_files_of_the_last_time_are_gone(
    opened: Callable[[], LogDirectory],
):
    directory = opened()
    for _ in range(2):
        directory.partition_path("orders", 0).mkdir()
        (directory.partition_path("orders", 0) / "file").write_bytes(b"data")
        directory.mark_for_deletion("orders", 0)
    assert len(list(directory.doomed_directories())) == 2


# -- checkpoint files -------------------------------------------------------------------------------------------


def test_partition_metadata_is_43_bytes(tmp_path: Path):
    write_partition_metadata(tmp_path, parse_uuid("p06y4Oi2TAqUcN9-lvxwgQ"))
    content = (tmp_path / "partition.metadata").read_bytes()
    assert content == b"version: 0\ntopic_id: p06y4Oi2TAqUcN9-lvxwgQ"
    assert len(content) == 43
    assert uuid_text(read_partition_metadata(tmp_path) or uuid.UUID(int=0)) == "p06y4Oi2TAqUcN9-lvxwgQ"


def test_a_newline_behind_partition_metadata_is_read_too(tmp_path: Path):
    (tmp_path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: p06y4Oi2TAqUcN9-lvxwgQ\n")
    assert read_partition_metadata(tmp_path) == parse_uuid("p06y4Oi2TAqUcN9-lvxwgQ")


@pytest.mark.parametrize(
    "content",
    [
        b"version: 1\ntopic_id: p06y4Oi2TAqUcN9-lvxwgQ",
        b"version: 0",
        b"topic_id: p06y4Oi2TAqUcN9-lvxwgQ",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: \xff",
    ],
)
def test_malformed_partition_metadata_is_refused_by_name(tmp_path: Path, content: bytes):
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(StorageError, match=r"partition\.metadata"):
        read_partition_metadata(tmp_path)


def test_no_partition_metadata_is_no_topic_id(tmp_path: Path):
    assert read_partition_metadata(tmp_path) is None
    (tmp_path / "partition.metadata").write_bytes(b"")
    assert read_partition_metadata(tmp_path) is None


def test_checkpoints_are_kafka_s_and_read_the_same(opened: Callable[[], LogDirectory], tmp_path: Path):
    offsets = {("plain", 1): 3, ("orders-by-day", 0): 2**40}
    directory = opened()
    directory.write_checkpoint(RECOVERY_POINTS, offsets)
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert path.read_bytes() == b"0\n2\nplain 1 3\norders-by-day 0 1099511627776\n"
    assert directory.read_checkpoint(RECOVERY_POINTS) == offsets
    assert [entry.name for entry in tmp_path.glob("*.tmp")] == []


def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path: Path):
    assert read_offsets(tmp_path / "cleaner-offset-checkpoint") == {}
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"")
    assert read_offsets(tmp_path / "cleaner-offset-checkpoint") == {}
    write_offsets(tmp_path / "cleaner-offset-checkpoint", {})
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert read_offsets(tmp_path / "cleaner-offset-checkpoint") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n",
        b"0\nmany\n",
        b"0\n-1\n",
        b"0\n1\n",
        b"0\n1\nplain 1 3\nplain 2 3\n",
        b"0\n2\nplain 1 3\n",
        b"0\n1\nplain 1\n",
        b"0\n1\nplain 1 3 4\n",
        b"0\n1\nplain one 3\n",
        b"0\n1\nplain 1 three\n",
        b"0\n1\nplain\xff 1 3\n",
    ],
)
def test_a_malformed_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="recovery-point-offset-checkpoint"):
        read_offsets(path)


@pytest.mark.parametrize("content", [b"", bytes(43), b"\0\0\n\0"])
def test_what_a_power_cut_left_of_a_file_that_was_never_written_is_no_content(tmp_path: Path, content: bytes):
    (tmp_path / "partition.metadata").write_bytes(content)
    (tmp_path / RECOVERY_POINTS).write_bytes(content)
    assert read_partition_metadata(tmp_path) is None
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {}
