"""Disks that write a part, are full, or fail at any call: what was acknowledged is there after the next opening.

``ODRADEK_DISK_FAILURES=100`` runs so many times as many seeds.
"""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from storage.files import StorageError
from storage.log import Log
from tests.storage.load import Acknowledged, Flush, Load, check, check_files, next_numbers, open_logs
from tests.support.disk import CALLS, Disk

TIMES = int(os.environ.get("ODRADEK_DISK_FAILURES", "1"))
STEPS = 120
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Story:
    """A broker's storage: a failure takes it out of service, and after some repairs it is opened again."""

    def __init__(self, disk: Disk, chance: Random) -> None:
        self.disk = disk
        self.chance = chance
        self.acknowledged: list[Acknowledged] = []
        self.failures = 0
        self.logs: list[Log] = []
        self.open()

    def open(self) -> None:
        """The disk may fail once more while the logs are opened; that must do no harm either."""
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
        self.load = Load(self.logs, self.chance, self.acknowledged.append, next_numbers(self.acknowledged))

    def break_something(self) -> None:
        chance = self.chance
        kind = chance.randrange(4)
        if kind == 0:
            self.disk.room = chance.randrange(3000)
        elif kind == 1:
            self.disk.short_writes = chance.random()
        else:
            calls = chance.sample(CALLS, chance.randint(1, 3))
            self.disk.fail(*calls, code=chance.choice(CODES), after=chance.randrange(4), times=1)

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self.break_something()
        try:
            self.load.step()
            if self.chance.random() < 0.1:
                flush = Flush(self.disk.root, self.logs)
                flush.run()
                flush.finish()
        except StorageError:
            self.failures += 1
            if self.chance.random() < 0.5:
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
