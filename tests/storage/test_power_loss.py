"""Power cuts between any two system calls: synced batches are there, and the log is a prefix of what was written.

``ODRADEK_POWER_CUTS=100`` runs a hundred times as many seeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from storage import files
from storage.checkpoints import read_offsets
from storage.config import LogConfig
from storage.directory import RECOVERY_POINTS
from storage.log import Log
from storage.power_loss import forget_unsynced
from tests.storage.load import (
    Acknowledged,
    Flush,
    Load,
    check,
    check_files,
    check_log,
    open_logs,
    path_of,
)
from tests.storage.logs import NOW_MS, append
from tests.support.disk import Disk, Unsynced

TIMES = int(os.environ.get("ODRADEK_POWER_CUTS", "1"))
STEPS = 80
CUTS_PER_RUN = 8
FIRST_SYNCS = (10, 11)
"""Numbers of the load's steps after which all logs are synced, so that each has a recovery point. In a log without a
recovery point, a gap between segments may be the result of a compaction."""


class Outages:
    """Snapshots of the disk after power cuts at some of the system calls, each in a new directory."""

    def __init__(self, disk: Disk, target: Path, rng: Random, calls: int, look: Callable[[], int]) -> None:
        self.folders: list[tuple[Path, int]] = []
        self.calls = 0
        self._disk = disk
        self._target = target
        self._rng = rng
        self._at = set(rng.sample(range(calls), min(CUTS_PER_RUN, calls)))
        self._look = look

    def begin(self) -> None:
        self._disk.before = self._passed

    def _passed(self, call: str, path: str) -> None:
        if self.calls in self._at:
            folder = self._target / str(self.calls)
            self._disk.power_cut(folder, self._rng.getrandbits(32))
            self.folders.append((folder, self._look()))
        self.calls += 1


def run(root: Path, seed: int, *, sync_always: bool, calls: int) -> tuple[Outages, list[Acknowledged]]:
    """Run a load. Returns the outages, with the number of written and acknowledged batches at each, and all batches."""
    rng = Random(seed)
    (root / "disk").mkdir(parents=True)
    disk = Disk(root / "disk")
    written: list[Acknowledged] = []
    acknowledged = 0
    outages = Outages(disk, root, rng, calls, lambda: acknowledged)
    with disk.in_use():
        logs = open_logs(disk.root)
        load = Load(logs, rng, written.append)
        for partition in (0, 1, 2) * 2:  # twice, as the recovery point does not cover the last flushed record
            load.append(partition)
        for step in range(STEPS):
            load.step()
            if step == FIRST_SYNCS[-1] + 1:
                outages.begin()
            sealed_only = not sync_always and step not in FIRST_SYNCS and rng.random() < 0.8
            if sync_always or step in FIRST_SYNCS or rng.random() < 0.2:
                once = Flush(disk.root, logs, sealed_only=sealed_only)
                once.run()
                once.finish()
                acknowledged = acknowledged if sealed_only else len(written)
        for log in logs:
            log.close(clean=False)
    return outages, written


@pytest.fixture(autouse=True)
def _no_fsync() -> Iterator[None]:
    before = files.use_system(Unsynced())
    yield
    files.use_system(before)


def check_outage(folder: Path, written: list[Acknowledged], acknowledged: int) -> None:
    points = read_offsets(folder / RECOVERY_POINTS)
    logs = open_logs(folder)
    check(logs, written[:acknowledged])
    for partition, log in enumerate(logs):
        appended = {
            one.base_offset: (one.last_offset, one.crc) for one in written if one.partition == partition
        }
        assert check_log(log).items() <= appended.items()
        assert log.log_end_offset >= points.get(("orders", partition), 0)
    for log in logs:
        check_files(log)


@pytest.mark.parametrize("sync_always", [True, False], ids=["each batch synced", "synced now and then"])
@pytest.mark.parametrize("seed", range(10 * TIMES))
def test_a_power_cut_leaves_what_was_synced_and_a_beginning_of_the_rest(tmp_path, seed, sync_always):
    calls = run(tmp_path / "count", seed, sync_always=sync_always, calls=0)[0].calls
    outages, written = run(tmp_path / "run", seed, sync_always=sync_always, calls=calls)
    assert len(outages.folders) > 0
    for folder, acknowledged in outages.folders:
        check_outage(folder, written, acknowledged)


@pytest.mark.parametrize("seed", range(10 * TIMES))
def test_a_staged_power_loss_leaves_what_was_synced_and_no_byte_more(tmp_path, seed):
    rng = Random(seed)
    disk = Disk(tmp_path)
    written: list[Acknowledged] = []
    acknowledged = 0
    with disk.in_use():
        logs = open_logs(disk.root)
        load = Load(logs, rng, written.append)
        for step in range(STEPS):
            load.step()
            if step in FIRST_SYNCS or rng.random() < 0.1:
                flush(disk, logs)
                acknowledged = len(written)
        for log in logs:
            log.close(clean=False)
        ends: list[list[int]] = []
        for log in logs:
            ends.append([log.log_end_offset])
            forget_unsynced(log, ends[-1].append)
        for log in logs:
            for path in log.directory.glob("*.log"):
                assert path.read_bytes() == disk.synced(path)[: path.stat().st_size], path
    check_outage(tmp_path, written, acknowledged)
    assert [log.log_end_offset for log in open_logs(tmp_path)] == [each[-1] for each in ends]


CUTS = range(20)
"""Seeds of power cuts: some lose everything that was not synced, others keep all or a part of it."""


def after_each_cut(disk: Disk, target: Path, *, clean: bool = False) -> Iterator[list[Log]]:
    for seed in CUTS:
        disk.power_cut(target / str(seed), seed)
        yield open_logs(target / str(seed), clean=clean)


def flush(disk: Disk, logs: list[Log], *, sealed_only: bool = False) -> None:
    """Sync the logs and write a checkpoint of the synced offsets."""
    for _ in range(2):
        once = Flush(disk.root, logs, sealed_only=sealed_only)
        once.run()
        once.finish()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with disk.in_use():
        yield disk


def test_a_segment_that_was_synced_to_its_end_and_then_sealed_is_not_vouched_for(disk, tmp_path):
    logs = open_logs(disk.root)
    for number in range(4):
        append(logs[0], timestamp_ms=NOW_MS + number, value=b"%0500d" % number)
    flush(disk, logs)
    assert logs[0].recovery_point == 3
    logs[0].roll(NOW_MS)
    assert logs[0].flush_targets()[0] is logs[0].segments[0]
    Flush(disk.root, logs)
    for recovered in after_each_cut(disk, tmp_path):
        check(recovered, [])
        check_files(recovered[0])


def test_a_clean_stop_leaves_indexes_that_a_power_cut_does_not_take(disk, tmp_path):
    logs = open_logs(disk.root)
    for number in range(4):
        append(logs[0], timestamp_ms=NOW_MS + number, value=b"%0500d" % number)
    flush(disk, logs)
    logs[0].close(clean=True)
    assert logs[0].recovery_point == 4
    for seed in CUTS:
        disk.power_cut(tmp_path / str(seed), seed)
        for suffix in ("index", "timeindex"):
            name = f"{0:020d}.{suffix}"
            left = path_of(tmp_path / str(seed), 0) / name
            assert left.read_bytes() == (path_of(disk.root, 0) / name).read_bytes() != b""


def test_a_log_whose_records_were_synced_has_a_name_afterwards(disk, tmp_path):
    logs = open_logs(disk.root)
    logs[0].assign_epoch(3)
    append(logs[0], leader_epoch=3)
    logs[0].active.sync()
    for recovered in after_each_cut(disk, tmp_path):
        assert recovered[0].log_end_offset == 1
        assert recovered[0].epochs.entries() == [(3, 0)]


SMALL_FILES = (
    RECOVERY_POINTS,
    "orders-0/partition.metadata",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/*.snapshot",
    "orders-0/*.index",
    "orders-0/*.timeindex",
    "orders-0/*.txnindex",
)


@pytest.mark.parametrize("state", ["missing", "empty", "zeros", "old"])
@pytest.mark.parametrize("pattern", SMALL_FILES)
def test_a_small_file_that_is_missing_or_empty_or_old_stops_no_start(tmp_path, pattern, state):
    """Logs open although their small files of one kind are missing, empty, full of zeros, or old. A crash can leave such
    files; index files only above the recovery point."""
    logs = open_logs(tmp_path)
    written: list[Acknowledged] = []
    load = Load(logs, Random(5), written.append)
    old: dict[Path, bytes] = {}
    for steps in (30, 60):
        for _ in range(steps):
            load.step()
        old = old or {path: path.read_bytes() for path in tmp_path.glob(pattern)}
        if not pattern.endswith("index"):
            flush(Disk(tmp_path), logs)
    for log in logs:
        log.close(clean=False)
    paths = [path for path in tmp_path.glob(pattern) if path.stem != f"{0:020d}" or state != "old"]
    assert paths or not pattern.endswith("snapshot")
    for path in paths:
        content = {"empty": b"", "zeros": bytes(path.stat().st_size), "old": old.get(path, b"")}.get(state)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    logs = open_logs(tmp_path)
    check(logs, written)
    for log in logs:
        check_files(log)


@pytest.mark.parametrize("compact", [False, True])
def test_a_gap_between_segments_that_were_not_synced_ends_the_log_unless_it_may_be_a_compaction_s(
    disk, compact
):
    config = LogConfig(cleanup_policy=("compact",)) if compact else LogConfig()
    logs = open_logs(disk.root, config=config)
    append(logs[0], 2)
    flush(disk, logs)
    append(logs[0], 2)
    logs[0].roll(NOW_MS)
    append(logs[0], 2)
    logs[0].close(clean=False)
    first = logs[0].segments[0].log
    os.truncate(first.path, first.size // 2)
    recovered = open_logs(disk.root, config=config)[0]
    assert [batch.base_offset for batch in recovered.batches()] == ([0, 4] if compact else [0])
