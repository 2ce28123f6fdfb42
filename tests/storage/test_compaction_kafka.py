"""Kafka's `Cleaner` on a copy of the same directory leaves the same bytes as our compaction."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import RecordBatch, batches, build_batch
from storage.config import LogConfig
from storage.log import Log
from tests.storage.compacting import compact, part_of
from tests.storage.logs import NOW_MS, TOPIC_ID, contents, end, reopen
from tests.support.javaprog import JavaClients, java_clients

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("jvm")]

CLEANER = "org.apache.kafka.storage.internals.log.Compactor"
HOUR_MS = 3_600_000
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1500",
    "index.interval.bytes": "200",
    "delete.retention.ms": str(HOUR_MS),
}
MAP_BYTES = 1_000_000


@pytest.fixture(scope="module")
def java() -> JavaClients:
    return java_clients()


def clean(java: JavaClients, folder: Path, now_ms: int, **given: Any) -> dict[str, int]:
    """Run one pass of Kafka's cleaner and return its statistics."""
    order = {"checkpoint": -1, "upper_bound": -1, "map_bytes": MAP_BYTES} | given
    settings = [f"{name}={value}" for name, value in (SETTINGS | order.get("settings", {})).items()]
    ran = java.tool(
        CLEANER, folder, now_ms, order["checkpoint"], order["upper_bound"], order["map_bytes"], *settings
    )
    assert ran.status == 0, ran.err
    for path in folder.glob("*.deleted"):
        path.unlink()
    answer: dict[str, int] = json.loads(ran.out)
    return answer


def put(log: Log, keys: str, *, tombstones: str = "", step_ms: int = 0, **batch: Any) -> None:
    """Append a batch with a record for each letter of ``keys``. Records of the letters in ``tombstones`` have a null
    value."""
    now_ms = NOW_MS + log.log_end_offset
    records = [
        (
            now_ms + number * step_ms,
            key.encode() * 3 if key != "-" else None,
            None if key in tombstones else f"{key} at {log.log_end_offset + number}".encode() * 3,
            [("header", b"x"), ("none", None)] if number % 2 else [],
        )
        for number, key in enumerate(keys)
    ]
    producer_id, epoch, sequence = batch.pop("producer", (-1, -1, -1))
    made = RecordBatch.parse(
        build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **batch)
    )
    log.append_data(made, 0, now_ms, made.max_timestamp)


def plain(log: Log) -> None:
    """Write repeated keys, tombstones, records without a key, and several segments."""
    for number in range(60):
        put(
            log,
            "abcdefghij"[number % 5 : number % 7 + 4],
            tombstones="aceg"[number % 4],
            step_ms=number % 3 - 1,
        )
    put(log, "-x-", step_ms=5)
    for number in range(20):
        put(log, "zy" if number % 2 else "z")


def compressed(log: Log) -> None:
    for number in range(100):
        put(
            log,
            "abcdefg"[number % 6 :] + "hij"[number % 2 :],
            compression=number % 5,
            tombstones="bd",
            step_ms=1,
        )


def log_append_time(log: Log) -> None:
    for number in range(50):
        put(log, "abcdefg"[number % 6 :] + "hij", log_append_time_ms=NOW_MS + number, tombstones="bi")


def idempotent(log: Log) -> None:
    """Write batches of producers whose last batch has only superseded records, at each position of a segment."""
    for number in range(40):
        put(log, "ab", producer=(7 + number // 5, 0, 2 * (number % 5)), compression=number % 2)
    for number in range(40):
        put(log, "abcd", tombstones="d", producer=(99, 1, 4 * number))
    for _ in range(20):
        put(log, "abcd")


def transactional(log: Log) -> None:
    """Write commits, aborts, empty transactions, transactions over several segments, interleaved producers, and an open
    transaction."""
    sequence = {1: 0, 2: 0, 3: 0}
    for number in range(60):
        for producer_id in (1, 2, 3):
            keys = "abcdefgh"[(number + producer_id) % 5 :][: 1 + number % 3]
            put(
                log,
                keys,
                tombstones="cf",
                producer=(producer_id, number // 50, sequence[producer_id] if number != 50 else 0),
                transactional=True,
                compression=number % 2,
            )
            sequence[producer_id] = (sequence[producer_id] if number != 50 else 0) + len(keys)
            if (number + producer_id) % (2 + 2 * producer_id) == 0:
                end(
                    log,
                    producer_id,
                    committed=(number + producer_id) % 3 != 0,
                    epoch=number // 50,
                    now_ms=NOW_MS + number,
                )
        if number % 7 == 0:
            put(log, "abc")
            end(log, 4, committed=number % 2 == 0, epoch=number, now_ms=NOW_MS + number)
    for producer_id in (1, 2, 3):
        end(log, producer_id, committed=producer_id == 1, epoch=2, now_ms=NOW_MS + 100)
    for _ in range(60):
        put(log, "abcdefgh")
    put(log, "a", producer=(5, 0, 0), transactional=True)
    for _ in range(20):
        put(log, "abcdefgh")


SCENES: list[Callable[[Log], None]] = [plain, compressed, log_append_time, idempotent, transactional]


def make(directory: Path, scene: Callable[[Log], None], **settings: Any) -> Log:
    given: dict[str, Any] = {
        "cleanup_policy": ("compact",),
        "segment_bytes": 1500,
        "index_interval_bytes": 200,
        "delete_retention_ms": HOUR_MS,
    }
    log = Log(directory, TOPIC_ID, LogConfig(**(given | settings)))
    scene(log)
    log.close(clean=True)
    return reopen(log).log


def same(ours: Path, theirs: Path) -> None:
    """Check that both directories have the same segments and batches, byte for byte. Only compressed bytes may differ."""
    mine, kafkas = contents(ours, "log"), contents(theirs, "log")
    assert list(mine) == list(kafkas)
    for base, content in mine.items():
        pairs = list(zip(batches(content), batches(kafkas[base]), strict=True))
        for left, right in pairs:
            if left.data != right.data:
                assert left.compression
                assert list(left.records()) == list(right.records())
                assert header(left) == header(right)
        if content == kafkas[base]:
            for suffix in ("index", "timeindex"):
                name = f"{base:020d}.{suffix}"
                index = (ours / name).read_bytes()
                # Kafka 4.4 closes an index without removing the zeros behind its entries.
                assert (theirs / name).read_bytes().removeprefix(index).strip(b"\0") == b""
    assert aborted(ours) == aborted(theirs)


def header(batch: RecordBatch) -> list[object]:
    return [
        getattr(batch, name) for name in batch.__slots__ if name not in ("buffer", "start", "size", "crc")
    ]


def aborted(folder: Path) -> dict[int, bytes]:
    return {base: content for base, content in contents(folder, "txnindex").items() if content}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_four_passes_leave_what_kafkas_leave(java: JavaClients, tmp_path: Path, scene: Callable[[Log], None]):
    log = make(tmp_path / "topic-0", scene)
    assert len(log.segments) > 6
    theirs = tmp_path / "kafka" / "topic-0"
    shutil.copytree(log.directory, theirs)
    before = log.size
    last = part_of(log).upper_bound
    # A third of the log, a second third before any delete horizon, then all of it after the first horizon.
    below = [segment.base_offset for segment in log.segments if segment.base_offset < last]
    bounds = [below[len(below) // 3], below[2 * len(below) // 3]]
    checkpoint = -1
    for bound, now_ms in zip([*bounds, last], [0, HOUR_MS // 2, HOUR_MS + 99], strict=True):
        now_ms += NOW_MS
        answer = clean(java, theirs, now_ms, checkpoint=checkpoint, upper_bound=bound)
        part = part_of(log, None if checkpoint < 0 else checkpoint, now_ms)
        assert answer["first_dirty"] == part.first_dirty_offset
        checkpoint_after = compact(
            log, None if checkpoint < 0 else checkpoint, now_ms=now_ms, upper_bound=bound
        )
        assert checkpoint_after == answer["end_offset"]
        same(log.directory, theirs)
        checkpoint = answer["end_offset"]
    # The whole log again, as after a lost checkpoint, when every horizon has passed.
    answer = clean(java, theirs, NOW_MS + 10 * HOUR_MS)
    assert compact(log, now_ms=NOW_MS + 10 * HOUR_MS) == answer["end_offset"]
    same(log.directory, theirs)
    assert log.size < before / 2


def test_the_scenes_have_it_all(tmp_path: Path):
    """The compared logs contain the rare cases, such as empty batches of producers and markers with and without a delete
    horizon."""
    log = make(tmp_path / "idempotent-0", idempotent)
    compact(log)
    assert [batch.producer_id for batch in log.batches() if not batch.record_count] == [*range(7, 15), 99]

    log = make(tmp_path / "transactional-0", transactional)
    markers = sum(batch.is_control for batch in log.batches())
    compact(log)
    first = list(log.batches())
    assert sum(batch.is_control and batch.has_delete_horizon for batch in first) > 5
    assert any(batch.is_control and not batch.has_delete_horizon for batch in first)
    assert any(contents(log.directory, "txnindex").values())
    # The second pass finds markers without data, the third one markers whose delete horizon has passed.
    compact(log, now_ms=NOW_MS + 2 * HOUR_MS)
    compact(log, now_ms=NOW_MS + 4 * HOUR_MS)
    then = list(log.batches())
    assert sum(batch.is_control for batch in then) < markers / 4
    # Of each producer the marker with its current epoch is kept.
    assert [batch.producer_id for batch in then if batch.is_control and not batch.record_count] == [
        4,
        1,
        2,
        3,
    ]


def test_a_small_map_takes_more_passes(java: JavaClients, tmp_path: Path):
    """With an offset map of nine keys, each pass of both cleaners ends at the same offset.

    Kafka's map has ten entries of 24 bytes, of which a tenth stays free.
    """
    log = make(tmp_path / "topic-0", compressed)
    theirs = tmp_path / "kafka" / "topic-0"
    shutil.copytree(log.directory, theirs)
    checkpoint, passes = -1, 0
    while part_of(log, max(checkpoint, 0)).dirty_bytes:
        answer = clean(java, theirs, NOW_MS, checkpoint=checkpoint, map_bytes=10 * 24)
        assert compact(log, max(checkpoint, 0), map_capacity=9) == answer["end_offset"]
        same(log.directory, theirs)
        assert answer["end_offset"] > checkpoint
        checkpoint, passes = answer["end_offset"], passes + 1
    assert passes > 3


@pytest.mark.parametrize(
    "settings",
    [
        {"internal.segment.bytes": "4000", "segment.index.bytes": "72"},
        {"internal.segment.bytes": "4000"},
        {"internal.segment.bytes": "1000000"},
    ],
    ids=str,
)
def test_neighbours_are_joined_alike(java: JavaClients, tmp_path: Path, settings: dict[str, str]):
    log = make(tmp_path / "topic-0", plain)
    theirs = tmp_path / "kafka" / "topic-0"
    shutil.copytree(log.directory, theirs)
    clean(java, theirs, NOW_MS, settings=settings)
    log.config = LogConfig.from_properties(SETTINGS | settings)
    compact(log)
    same(log.directory, theirs)
    snapshots = {path.name for path in theirs.glob("*.snapshot")}
    assert {path.name for path in log.directory.glob("*.snapshot")} == snapshots


@pytest.mark.parametrize("settings", [{}, {"min.compaction.lag.ms": "150"}], ids=str)
@pytest.mark.parametrize("scene", [plain, transactional], ids=lambda scene: scene.__name__)
def test_what_may_be_compacted(
    java: JavaClients, tmp_path: Path, scene: Callable[[Log], None], settings: dict[str, str]
):
    log = make(tmp_path / "topic-0", scene)
    log.config = LogConfig.from_properties(SETTINGS | settings)
    base = log.segments[2].base_offset
    for checkpoint in (-1, 0, base, base + 3, log.active.base_offset, log.log_end_offset + 1):
        now_ms = NOW_MS + log.log_end_offset
        answer = clean(java, log.directory, now_ms, checkpoint=checkpoint, map_bytes=0, settings=settings)
        ours = part_of(log, None if checkpoint < 0 else checkpoint, now_ms)
        assert answer == {
            "first_dirty": ours.first_dirty_offset,
            "upper_bound": ours.upper_bound,
            "clean_bytes": ours.clean_bytes,
            "dirty_bytes": ours.dirty_bytes,
        }


def test_kafkas_tool_reads_what_is_left(java: JavaClients, tmp_path: Path):
    """kafka-dump-log reports the same for both directories: missing offsets, and nothing else."""
    log = make(tmp_path / "topic-0", transactional)
    theirs = tmp_path / "kafka" / "topic-0"
    shutil.copytree(log.directory, theirs)
    clean(java, theirs, NOW_MS)
    compact(log)
    for suffix, flags in (
        ("log", ["--print-data-log", "--deep-iteration"]),
        ("index", ["--index-sanity-check"]),
        ("timeindex", []),
        ("txnindex", []),
    ):
        ran = []
        for folder in (log.directory, theirs):
            given = ",".join(str(path) for path in sorted(folder.glob(f"*.{suffix}")) if path.stat().st_size)
            dumped = java.tool("org.apache.kafka.tools.DumpLogSegments", *flags, "--files", given)
            assert dumped.status == 0
            # The order of its final messages is undefined.
            said = sorted(dumped.err.replace(str(folder), "").splitlines())
            assert all("Non-consecutive offsets" in line or "is followed by" in line for line in said)
            ran.append((dumped.out.replace(str(folder), ""), said))
        assert ran[0] == ran[1]
