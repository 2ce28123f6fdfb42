"""Log files can be opened when the process has no file descriptor left."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import files
from storage.descriptors import SPARES, Spares
from storage.files import (
    AppendFile,
    StorageError,
    read_file,
    remove_tree,
    replace_file,
    sync_directory,
    sync_file,
    write_file,
)
from storage.folder import Folder


class UsedUp:
    """A replacement for ``os.open``, ``os.close`` and ``os.scandir``, as in a process that may open only ``left`` more
    files."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._open, self._close, self._scandir = os.open, os.close, os.scandir

    def open(self, *arguments: object, **more: Any) -> int:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        fd = self._open(*arguments, **more)  # type: ignore[arg-type]
        self.left -= 1
        return fd

    def close(self, fd: int) -> None:
        self._close(fd)
        self.left += 1

    def scandir(self, path: Path) -> object:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._scandir(path)


@pytest.fixture
def used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UsedUp]:
    """A process that can open only two more descriptors."""
    # Close files of earlier tests in this process, each of which could free a descriptor.
    SPARES.drop()
    files.DESCRIPTORS.rest(len(files.DESCRIPTORS))
    process = UsedUp(2)
    monkeypatch.setattr(os, "open", process.open)
    monkeypatch.setattr(os, "close", process.close)
    monkeypatch.setattr(os, "scandir", process.scandir)
    monkeypatch.setattr(files.System, "open", staticmethod(process.open))
    monkeypatch.setattr(SPARES, "count", 2)
    SPARES.fill()
    assert (len(SPARES), process.left) == (2, 0)
    yield process
    SPARES.drop()
    monkeypatch.undo()


def test_files_are_read_written_and_synced_and_the_spares_come_back(used_up: UsedUp, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for content in (b"one", b"two"):
        replace_file(path, content)
        assert read_file(path) == content
        sync_file(path)
        sync_directory(tmp_path)
        assert (len(SPARES), used_up.left) == (2, 0)


def test_a_log_is_opened_and_gives_its_descriptor_back(used_up: UsedUp, tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "0.log", 0)
    assert file.append([b"batch"], 5) == 0
    assert len(SPARES) == 1
    file.close()
    assert len(SPARES) == 2


def test_a_folder_is_listed_and_removed(used_up: UsedUp, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    write_file(folder / "00000000000000000000.log", b"")
    found = Folder(folder)
    found.look()
    assert found.sizes == {0: 0}
    assert len(SPARES) == 2
    remove_tree(folder)
    assert not folder.exists()


def test_without_spares_it_is_an_error(used_up: UsedUp, tmp_path: Path) -> None:
    SPARES.drop()
    used_up.left = 0
    with pytest.raises(StorageError, match="Too many open files"):
        AppendFile(tmp_path / "0.log", 0).append([b"batch"], 5)


def test_another_error_takes_no_spare(tmp_path: Path) -> None:
    spares = Spares(2)
    spares.fill()
    with pytest.raises(FileNotFoundError):
        spares.open(os.open, tmp_path / "missing", os.O_RDONLY)
    assert len(spares) == 2
    spares.drop()
