"""Tests of the fake disk, on which the tests of power cuts depend."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.files import (
    AppendFile,
    StorageError,
    remove,
    replace_file,
    sync_directory,
    sync_file,
    write_file,
)
from tests.support.disk import PAGE_BYTES, Disk

SEEDS = range(60)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = Disk(root)
    with disk.in_use():
        yield disk


def left(disk: Disk, name: str) -> set[bytes | None]:
    """Contents of a file after power cuts with many seeds; None if the file does not exist."""
    found: set[bytes | None] = set()
    for seed in SEEDS:
        target = disk.root.parent / str(seed)
        disk.power_cut(target, seed)
        path = target / name
        found.add(path.read_bytes() if path.exists() else None)
        for each in target.iterdir():
            each.unlink()
    return found


def test_what_was_there_or_was_synced_with_its_name_is_always_left(disk: Disk):
    assert left(disk, "old") == {b"old"}
    write_file(disk.root / "new", b"new")
    assert left(disk, "new") == {None, b"", b"new", bytes(3)}
    sync_file(disk.root / "new")
    assert left(disk, "new") == {None, b"new"}
    sync_directory(disk.root)
    assert left(disk, "new") == {b"new"}
    remove(disk.root / "new")
    assert left(disk, "new") == {b"new", None}


def test_of_what_came_after_the_sync_each_page_may_be_lost(disk: Disk):
    file = AppendFile(disk.root / "log")
    file.append((b"a" * 100,), 100)
    file.sync()
    sync_directory(disk.root)
    file.append((b"b" * PAGE_BYTES * 3,), PAGE_BYTES * 3)
    found = left(disk, "log")
    assert all(content is not None and content.startswith(b"a" * 100) for content in found)
    assert len(found) > 5
    assert any(content is not None and b"\0" in content and content.endswith(b"b") for content in found)
    file.sync()
    assert left(disk, "log") == {b"a" * 100 + b"b" * PAGE_BYTES * 3}
    file.close()


def test_names_are_left_in_the_order_of_their_changes(disk: Disk):
    for name in ("one", "two"):
        write_file(disk.root / name, name.encode())
    remove(disk.root / "old")
    for seed in SEEDS:
        target = disk.root.parent / str(seed)
        disk.power_cut(target, seed)
        names = {path.name for path in target.iterdir()}
        assert names in ({"old"}, {"old", "one"}, {"old", "one", "two"}, {"one", "two"})


def test_a_durable_replacement_leaves_the_old_content_or_the_new(disk: Disk):
    replace_file(disk.root / "old", b"new")
    assert left(disk, "old") == {b"new"}
    replace_file(disk.root / "old", b"newer", durable=False)
    assert left(disk, "old") >= {b"new", b"newer", b""}


def test_the_same_seed_leaves_the_same_content(disk: Disk):
    write_file(disk.root / "new", bytes(range(256)) * 100)
    for seed in SEEDS:
        contents = []
        for attempt in range(2):
            target = disk.root.parent / f"{seed} {attempt}"
            disk.power_cut(target, seed)
            contents.append({path.name: path.read_bytes() for path in target.iterdir()})
        assert contents[0] == contents[1]


def test_calls_fail_as_configured(disk: Disk):
    fault = disk.fail("write", code=errno.EDQUOT, path="*/some*", after=1, times=1)
    write_file(disk.root / "some", b"1")
    write_file(disk.root / "other", b"1")
    with pytest.raises(StorageError, match=r"some: .*quota"):
        write_file(disk.root / "some", b"2")
    write_file(disk.root / "some", b"3")
    assert fault.hits == 1


def test_a_disk_fills_up(disk: Disk):
    disk.room = 5
    with pytest.raises(StorageError, match="No space left"):
        write_file(disk.root / "new", b"too much")
    assert (disk.root / "new").read_bytes() == b"too m"
    disk.mend()
    write_file(disk.root / "new", b"enough")


def test_a_disk_is_read_only_and_the_rest_of_the_machine_is_not(disk: Disk, tmp_path: Path):
    disk.read_only = True
    with pytest.raises(StorageError, match="Read-only"):
        write_file(disk.root / "new", b"")
    with pytest.raises(StorageError, match="Read-only"):
        remove(disk.root / "old")
    write_file(tmp_path / "elsewhere", b"")
    assert os.listdir(disk.root) == ["old"]
