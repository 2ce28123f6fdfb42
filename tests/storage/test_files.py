"""Writes that fail or stop half-way: the file then ends at a batch boundary, and the error names the file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage import files
from storage.files import AppendFile, StorageError, make_directory, remove_tree, replace_file
from storage.index import ABORTED_ENTRY
from storage.log import Log
from tests.storage.conftest import MakeLog
from tests.storage.logs import append, contents, data, end, reopen
from tests.support.batches import stored

SIZE = data().size
Buffers = Sequence[bytes | memoryview]


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    log = make_log()
    append(log, producer=(1, 0, 0))
    return log


def short_write(length: int) -> Callable[[int, Buffers, int], int]:
    """A pwritev that writes at most ``length`` bytes."""

    def pwritev(fd: int, chunks: Buffers, position: int) -> int:
        return os.pwrite(fd, b"".join(chunks)[:length], position)

    return pwritev


def failing_after(length: int, code: int) -> Callable[[int, Buffers, int], int]:
    """A pwritev that writes ``length`` bytes in all and then raises an error, as on a full or broken disk."""

    def pwritev(fd: int, chunks: Buffers, position: int) -> int:
        os.pwrite(fd, b"".join(chunks)[:length], position)
        raise OSError(code, os.strerror(code))

    return pwritev


@pytest.mark.parametrize("length", [1, 16, 17, 60, SIZE - 1, SIZE])
def test_a_short_write_is_completed(log: Log, monkeypatch: pytest.MonkeyPatch, length: int):
    monkeypatch.setattr(files.System, "pwritev", staticmethod(short_write(length)))
    assert append(log, 3, value=bytes(100)) == 1
    assert append(log) == 4
    assert [batch.base_offset for batch in log.batches()] == [0, 1, 4]
    assert all(batch.has_valid_crc() for batch in log.batches())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("length", [0, 1, 61, SIZE])
def test_a_failed_write_is_cut_off_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, directory: Path, code: int, length: int
):
    before = log.producers.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(files.System, "pwritev", staticmethod(failing_after(length, code)))
        with pytest.raises(StorageError, match=r"0000\.log.*" + os.strerror(code)) as raised:
            append(log, producer=(1, 0, 1))
    assert raised.value.path == str(directory / f"{0:020d}.log")
    assert log.log_end_offset == 1
    assert log.producers.snapshot() == before
    assert len(list(stored(contents(directory, "log")[0]))) == 1
    # The disk has space again.
    assert append(log, producer=(1, 0, 1)) == 1
    log.close(clean=True)
    assert [batch.base_offset for batch in reopen(log).log.batches()] == [0, 1]


def test_a_disk_that_fills_up_in_the_rest_of_a_short_write(log: Log, monkeypatch: pytest.MonkeyPatch):
    def full(fd: int, content: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwritev(fd: int, chunks: Buffers, position: int) -> int:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, b"".join(chunks)[:10])

    monkeypatch.setattr(files.System, "pwritev", staticmethod(pwritev))
    monkeypatch.setattr(files.System, "pwrite", staticmethod(full))
    with pytest.raises(StorageError, match="No space left"):
        append(log)
    assert log.active.log.path.stat().st_size == log.size


def test_a_tail_that_cannot_be_cut_off_is_written_over_or_recovered(
    log: Log, monkeypatch: pytest.MonkeyPatch, directory: Path
):
    def broken(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(files.System, "pwritev", staticmethod(failing_after(30, errno.EIO)))
        patch.setattr(files.System, "ftruncate", staticmethod(broken))
        with pytest.raises(StorageError, match="Input/output error"):
            append(log)
    assert (directory / f"{0:020d}.log").stat().st_size > log.size
    recovered = reopen(log, clean=False)
    assert recovered.cut_bytes == 30
    assert append(log) == 1
    assert len(list(stored(contents(directory, "log")[0]))) == 2


def test_an_abort_whose_index_entry_did_not_fit_is_indexed_at_the_next_start(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, directory: Path
):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    write = os.pwritev

    def log_only(fd: int, chunks: Buffers, position: int) -> int:
        if sum(map(len, chunks)) == ABORTED_ENTRY.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, chunks, position)

    with monkeypatch.context() as patch:
        patch.setattr(files.System, "pwritev", staticmethod(log_only))
        with pytest.raises(StorageError, match="txnindex"):
            end(log, 1, committed=False)
    for clean in (True, False):
        entries = reopen(log, clean=clean).log.active.transaction_index.entries()
        assert entries == [(1, 0, 1, 2)]


def test_a_process_killed_before_a_write_leaves_the_file_as_it_was(log: Log, monkeypatch: pytest.MonkeyPatch):
    class Killed(BaseException):
        pass

    def kill(fd: int, chunks: object, position: int) -> int:
        raise Killed

    before = log.active.log.path.read_bytes()
    monkeypatch.setattr(files.System, "pwritev", staticmethod(kill))
    with pytest.raises(Killed):
        append(log)
    assert log.active.log.path.read_bytes() == before


def test_a_read_error_names_the_file(log: Log, monkeypatch: pytest.MonkeyPatch):
    def broken(fd: int, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    span = log.read(0, 1, 100, whole_first_batch=True)
    assert span is not None
    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StorageError, match=r"0000\.log.*Input/output error"):
        span.bytes()


def test_a_read_that_comes_in_pieces_is_put_together(log: Log, monkeypatch: pytest.MonkeyPatch):
    read = os.pread
    whole = log.active.log.read(0, log.size)
    monkeypatch.setattr(os, "pread", lambda fd, length, position: read(fd, min(length, 7), position))
    assert log.active.log.read(0, log.size) == whole


def test_what_was_not_written_since_is_not_synced_again(log: Log, monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    monkeypatch.setattr(files.System, "fsync", staticmethod(synced.append))
    for segment in log.flush_targets():
        segment.sync()
    first = len(synced)
    assert first > 0
    log.active.sync()
    assert len(synced) == first
    append(log)
    log.active.sync()
    assert len(synced) == first + 1


def test_making_a_partition_needs_no_fsync(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    monkeypatch.setattr(files.System, "fsync", staticmethod(synced.append))
    log = make_log(segment_bytes=3 * SIZE)
    log.assign_epoch(0)
    for _ in range(9):
        append(log)
    assert synced == []


def test_a_partition_that_cannot_be_made_is_named(tmp_path: Path, make_log: MakeLog, directory: Path):
    directory.write_bytes(b"a file is in the way")
    with pytest.raises(StorageError, match=directory.name):
        append(make_log())


def test_a_small_file_is_the_old_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "checkpoint"
    replace_file(path, b"old")

    def full(fd: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.System, "write", staticmethod(full))
    with pytest.raises(StorageError, match="checkpoint"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_truncation_and_appending_agree_on_the_size(tmp_path: Path):
    file = AppendFile(tmp_path / "file")
    file.append([b"first", b"second"], 11)
    file.truncate(5)
    assert file.append([b"third"], 5) == 5
    file.close()
    assert AppendFile(tmp_path / "file").read(0, 100) == b"firstthird"


# -- sync -------------------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_and_has_grown_again_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[int] = []
    monkeypatch.setattr(files.System, "fsync", staticmethod(synced.append))
    file = AppendFile(tmp_path / "file")
    file.append([b"first"], 5)
    file.sync()
    file.truncate(0)
    file.append([b"other"], 5)
    file.sync()
    assert len(synced) == 2
    file.sync()
    assert len(synced) == 2


def test_what_comes_while_a_sync_runs_is_not_taken_for_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = AppendFile(tmp_path / "file")
    file.append([b"first"], 5)
    synced: list[int] = []

    def meanwhile(fd: int) -> None:
        """Truncate the file and write as many bytes again, as the event loop may do while a thread waits for the disk."""
        if not synced:
            file.truncate(0)
            file.append([b"other"], 5)
        synced.append(fd)

    monkeypatch.setattr(files.System, "fsync", staticmethod(meanwhile))
    file.sync()
    file.sync()
    assert len(synced) == 2
    file.sync()
    assert len(synced) == 2


def test_a_file_whose_sync_failed_stays_failed(log: Log, monkeypatch: pytest.MonkeyPatch):
    """After a failed fsync every later sync of this file fails: the operating system reports lost pages only once, and its
    next fsync succeeds."""

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(files.System, "fsync", staticmethod(broken))
        with pytest.raises(StorageError, match="Input/output error"):
            log.active.sync()
    log.active.rest()  # closes its files, so the failure must be known elsewhere
    append(log)
    with pytest.raises(StorageError, match="Input/output error"):
        log.active.sync()


# -- directories ------------------------------------------------------------------------------------------------


def test_folders_are_made_and_removed_with_what_they_lie_in_and_what_is_in_them(tmp_path: Path):
    deep = tmp_path / "a" / "b" / "c"
    make_directory(deep)
    make_directory(deep)
    (deep / "file").write_bytes(b"x")
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    remove_tree(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    remove_tree(tmp_path / "a")
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StorageError, match="file"):
        make_directory(tmp_path / "file")
    with pytest.raises(StorageError, match="file"):
        make_directory(tmp_path / "file" / "below")
