"""A kill between any two system calls of a compaction, or of the recovery after it, loses and duplicates no record."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.batch import Record
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import open_log
from tests.storage.compacting import (
    Countdown,
    calls_of,
    compact,
    consumed,
    latest,
)
from tests.storage.dying import Killed, survived
from tests.storage.logs import NOW_MS, TOPIC_ID, end, options
from tests.storage.test_compaction import keyed
from tests.support.disk import Disk

CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, delete_retention_ms=1000, index_interval_bytes=100
)
LATER_MS = NOW_MS + 5000


class Before(NamedTuple):
    """The directory of a closed log, and the content that a consumer must find in it later."""

    folder: Path
    end_offset: int
    first_dirty: int
    committed: dict[bytes, tuple[int, bytes]]
    records: dict[int, Record]
    last_batches: dict[int, tuple[int, int, int]]
    """(epoch, last sequence, last offset) of each producer."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A temporary directory, in memory if possible, as the disk does not matter here."""
    where = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
    with tempfile.TemporaryDirectory(prefix="compaction-", dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def before(scratch: Path) -> Before:
    """A log that was compacted once, so that its tombstones have delete horizons, and has a dirty part again."""
    folder = scratch / "before" / "topic-0"
    log = Log(folder, TOPIC_ID, CONFIG)
    first_dirty = 0
    for turn in range(2):
        for number in range(6):
            sequence = 2 * (6 * turn + number)
            keyed(log, (f"k{number % 4}", f"{turn}-{number}"), ("old", f"{turn}"), compression=number % 2)
            keyed(
                log,
                (f"t{number % 3}", "in a transaction"),
                (f"k{number % 5}", "x"),
                producer=(7, 0, sequence),
                transactional=True,
            )
            end(log, 7, committed=number % 3 != 1)
            keyed(
                log,
                (f"gone{turn}", "v"),
                (f"gone{turn}", None if number % 2 else "v"),
                producer=(8 + turn, 0, 2 * number),
            )
        keyed(log, ("old", None))
        log.roll(NOW_MS)
        if turn == 0:
            compacted = compact(log)
            assert compacted is not None
            first_dirty = compacted
    log.close(clean=True)
    opened = opening(folder, clean=True)
    assert len(opened.segments) > 5
    return Before(
        folder,
        opened.log_end_offset,
        first_dirty,
        latest(consumed(opened, read_committed=True)),
        {record.offset: record for record in consumed(opened, read_committed=False)},
        last_batches(opened),
    )


def opening(folder: Path, *, clean: bool = False, recovery_point: int = 0) -> Log:
    return open_log(folder, options(clean, config=CONFIG, recovery_point=recovery_point)).log


def last_batches(log: Log) -> dict[int, tuple[int, int, int]]:
    return {entry.producer_id: entry[1:4] for entry in log.producers.snapshot()}


def copy(before: Before, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before.folder, folder)
    return folder


def work_on(log: Log, before: Before) -> int | None:
    return compact(log, before.first_dirty, now_ms=LATER_MS)


def check(before: Before, folder: Path, recovery_point: int) -> None:
    """Open the copy ``folder`` of the directory and check that it has the content ``before``.

    Records that compaction may remove may be missing.
    """
    log = opening(folder, recovery_point=recovery_point)
    assert (log.log_start_offset, log.log_end_offset) == (0, before.end_offset)
    offsets = [(batch.base_offset, batch.last_offset) for batch in log.batches()]
    assert all(last < base for (_, last), (base, _) in pairwise(offsets))
    assert latest(consumed(log, read_committed=True)) == before.committed
    for record in consumed(log, read_committed=False):
        assert record == before.records[record.offset]
    assert last_batches(log) == before.last_batches
    # Files with the suffix .deleted are removed by a thread.
    names = {path.suffix for path in folder.iterdir() if not path.name.endswith(".deleted")}
    assert names <= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ""}
    log.close(clean=False)


def points(before: Before, folder: Path) -> Iterator[int]:
    log = opening(copy(before, folder), clean=True)
    total = calls_of(lambda: work_on(log, before))
    assert total > 50
    yield from range(total + 1)


def test_a_kill_between_any_two_system_calls(before: Before, scratch: Path):
    folder = scratch / "topic-0"
    for calls in points(before, folder):
        log = opening(copy(before, folder), clean=True)
        survived(lambda log=log: work_on(log, before), calls)  # type: ignore[misc]
        # With the recovery point 0 recovery reads the whole log.
        check(before, folder, before.end_offset if calls % 2 else 0)
        # The log can be compacted as usual.
        again = opening(folder, clean=True)
        assert work_on(again, before) is not None
        assert latest(consumed(again, read_committed=True)) == before.committed


def test_a_kill_during_the_recovery_too(before: Before, scratch: Path):
    folder = scratch / "topic-0"
    half_done = scratch / "half-done"
    checked = 0
    for calls in points(before, folder):
        log = opening(copy(before, folder), clean=True)
        survived(lambda log=log: work_on(log, before), calls)  # type: ignore[misc]
        if not list(folder.glob("*.swap")):
            continue
        shutil.rmtree(half_done, ignore_errors=True)
        folder.rename(half_done)
        for more in range(calls % 2, 10, 3):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(half_done, folder)
            survived(lambda: opening(folder), more)
            check(before, folder, 0)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_between_any_two_system_calls(before: Before, scratch: Path, seed: int):
    """A power cut loses and duplicates no record, although unsynced content and the last renames in the directory may be
    lost."""
    folder, left = scratch / "whole" / "topic-0", scratch / "left"
    for calls in points(before, folder):
        if calls % 3 != seed:
            continue
        log = opening(copy(before, folder), clean=True)
        disk = Disk(folder.parent)
        countdown = Countdown(calls)
        disk.before = lambda call, _, countdown=countdown: countdown(call)
        with disk.in_use(), contextlib.suppress(Killed):
            work_on(log, before)
        for cut in range(2):
            shutil.rmtree(left, ignore_errors=True)
            disk.power_cut(left, seed=100 * calls + cut)
            check(before, left / "topic-0", before.end_offset)
