"""Disks with short writes, full disks, and disks that fail at any call: acknowledged batches are there after a restart.

``ODRADEK_DISK_FAILURES=100`` runs a hundred times as many seeds.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from random import Random

import pytest

from storage.files import StorageError
from storage.log import Log
from tests.storage.conftest import MakeLog
from tests.storage.load import (
    Acknowledged,
    Flush,
    Load,
    check,
    check_files,
    check_producers,
    next_numbers,
    open_logs,
)
from tests.storage.logs import NOW_MS, append, end, reopen
from tests.support.disk import CALLS, Disk

TIMES = int(os.environ.get("ODRADEK_DISK_FAILURES", "1"))
STEPS = 120
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Story:
    """The logs of a broker on a failing disk. After a failure the logs are closed, the disk is repaired, and the logs are
    opened again.
    """

    def __init__(self, disk: Disk, rng: Random) -> None:
        self.disk = disk
        self.rng = rng
        self.acknowledged: list[Acknowledged] = []
        self.failures = 0
        self.logs: list[Log] = []
        self.open()

    def open(self) -> None:
        """Open and check the logs. If the disk fails during that, the disk is repaired and the logs are opened again."""
        for log in self.logs:
            log.close(clean=False)
        while True:
            try:
                self.logs = open_logs(self.disk.root)
                break
            except StorageError:
                self.failures += 1
                self.disk.mend()
        self.disk.mend()
        check(self.logs, self.acknowledged)
        self.load = Load(self.logs, self.rng, self.acknowledged.append, next_numbers(self.acknowledged))

    def break_something(self) -> None:
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            self.disk.room = rng.randrange(3000)
        elif kind == 1:
            self.disk.short_writes = rng.random()
        else:
            calls = rng.sample(CALLS, rng.randint(1, 3))
            self.disk.fail(*calls, code=rng.choice(CODES), after=rng.randrange(4), times=1)

    def step(self) -> None:
        if self.rng.random() < 0.1:
            self.break_something()
        try:
            self.load.step()
            if self.rng.random() < 0.1:
                flush = Flush(self.disk.root, self.logs)
                flush.run()
                flush.finish()
        except StorageError:
            self.failures += 1
            if self.rng.random() < 0.5:
                self.disk.mend()
            self.open()


@pytest.mark.parametrize("seed", range(20 * TIMES))
def test_what_was_acknowledged_survives_a_failing_disk(tmp_path, seed):
    disk = Disk(tmp_path)
    with disk.in_use():
        story = Story(disk, Random(seed))
        for _ in range(STEPS):
            story.step()
        assert story.failures > 0
        disk.mend()
        story.open()
        for log in story.logs:
            check_files(log)
        check(open_logs(tmp_path, clean=True), story.acknowledged)


# -- unexpected files ---------------------------------------------------------------------------------------------


def old_message(magic: int, offset: int, value: bytes) -> bytes:
    """A message of the old format ``magic`` (0 or 1) without a key. In format 1 it has a timestamp."""
    stamp = NOW_MS.to_bytes(8, "big") if magic else b""
    body = (
        bytes([magic, 0])
        + stamp
        + (-1).to_bytes(4, "big", signed=True)
        + len(value).to_bytes(4, "big")
        + value
    )
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_old_format_are_refused_and_kept(make_log: MakeLog, magic: int, clean: bool):
    log = make_log()
    append(log, 3)
    log.close(clean=True)
    path = log.segments[0].log.path
    old = old_message(magic, 3, bytes(5000))
    path.write_bytes(path.read_bytes() + old)
    content = path.read_bytes()
    with pytest.raises(
        StorageError, match=rf"{path}: .*format {magic} at position {len(content) - len(old)}"
    ):
        reopen(log, clean=clean)
    assert path.read_bytes() == content
    # An incomplete message is handled like a missing one.
    path.write_bytes(content[:-1])
    recovered = reopen(log, clean=clean)
    assert (recovered.log.log_end_offset, recovered.cut_bytes) == (3, len(old) - 1)


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_in_a_file_s_place_is_named(make_log: MakeLog, clean: bool):
    """The error names the path at which there is a directory instead of a file. The directory makes the path unreadable even
    for root."""
    log = make_log()
    append(log, 3)
    log.close(clean=True)
    for name in (f"{0:020d}.log", "leader-epoch-checkpoint"):
        path = log.directory / name
        path.rename(log.directory / "aside")
        path.mkdir()
        with pytest.raises(StorageError, match=name):
            reopen(log, clean=clean)
        path.rmdir()
        (log.directory / "aside").rename(path)
        assert reopen(log, clean=clean).log.log_end_offset == 3


@pytest.mark.parametrize(
    "content", [b"1\n1\n0 0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\nzero 0\n", b"\xff\xfe"]
)
def test_epochs_of_an_unknown_version_or_kind_are_rebuilt_from_the_log(make_log: MakeLog, content: bytes):
    log = make_log()
    append(log, 3)
    log.close(clean=True)
    path = log.directory / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.write_bytes(content)
    recovered = reopen(log, clean=False)
    assert recovered.log.log_end_offset == 3
    assert [str(path) in reason for reason in recovered.rebuilt] == [True]
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"\x00\x02", b"\x7f\xff"])
@pytest.mark.parametrize("suffix", ["snapshot", "txnindex"])
def test_a_snapshot_or_aborted_index_of_an_unknown_version_is_made_anew(
    make_log: MakeLog, suffix: str, damage: bytes
):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=False)
    log.close(clean=True)
    (path,) = log.directory.glob(f"*.{suffix}")
    before = path.read_bytes()
    path.write_bytes(damage + before[2:])
    again = reopen(log).log
    check_producers(again)
    again.close(clean=True)
    assert path.read_bytes() == before
