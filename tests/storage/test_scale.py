"""Logs with very many segments: look-ups cost as much as in few segments, whichever segments have open files."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.records import producer_snapshot
from storage import segment as segment_module
from storage.config import LogConfig
from storage.files import DESCRIPTORS, Recent
from storage.log import Log
from storage.recovery import open_log
from storage.segment import Segment, file_name
from storage.segment_list import SegmentList
from tests.storage.conftest import MakeLog
from tests.storage.logs import NOW_MS, append, data, end, options

BATCHES_EACH = 3


def generate(directory: Path, segments: int) -> tuple[Log, list[int]]:
    """Write a log of ``segments`` segments as a clean stop leaves it, and open it. Returns the log, and its timestamps
    by offset (each batch has one record).

    The files of each segment are written directly, because appending batch by batch would be slow. Timestamps rise and
    fall from segment to segment, so the largest timestamp up to a segment may be in an earlier one.
    """
    directory.mkdir()
    template = bytearray(data().data)
    times: list[int] = []
    rng = Random(segments)
    for number in range(segments):
        base = number * BATCHES_EACH
        stamps = [10 * number + rng.randrange(-500, 500) for _ in range(BATCHES_EACH)]
        content, entries, latest = bytearray(), bytearray(), bytearray()
        for index, stamp in enumerate(stamps):
            struct.pack_into(">q", template, 0, base + index)
            struct.pack_into(">qq", template, 27, stamp, stamp)  # the first and the largest timestamp
            if index:
                entries += struct.pack(">ii", index, len(content))
            if stamp == max(stamps) and not latest:
                latest += struct.pack(">qi", stamp, index)
            content += template
        for suffix, what in (("log", content), ("index", entries), ("timeindex", latest)):
            fd = os.open(f"{directory}/{file_name(base, suffix)}", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, what)
            os.close(fd)
        times += stamps
    snapshot = directory / file_name(segments * BATCHES_EACH, "snapshot")
    snapshot.write_bytes(producer_snapshot.encode([]))
    recovered = open_log(directory, options(config=LogConfig(index_interval_bytes=0)))
    assert recovered.scanned_bytes == 0
    return recovered.log, times


def check_searches(log: Log, times: list[int], searches: int) -> None:
    size = data().size
    rng = Random(1)
    largest: list[int] = []
    for stamp in times:
        largest.append(max(stamp, largest[-1] if largest else stamp))
    for _ in range(searches):
        offset = rng.randrange(len(times))
        place = log.locate(offset)
        assert place is not None
        assert place.segment.base_offset == offset // BATCHES_EACH * BATCHES_EACH
        assert (place.position, place.size) == (offset % BATCHES_EACH * size, size)
        until = rng.randrange(offset, len(times) + 1)
        assert log.bytes_between(offset, until) == (until - offset) * size
        wanted = rng.randrange(min(times), max(times) + 1)
        found = log.find_timestamp(wanted)
        assert found is not None
        assert found.offset == next(at for at, stamp in enumerate(largest) if stamp >= wanted)
    assert log.find_timestamp(max(times) + 1) is None
    newest = log.find_max_timestamp()
    assert newest is not None
    assert newest.offset == times.index(max(times))
    assert log.size == len(times) * size


def test_in_many_segments_offsets_and_times_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Offsets and timestamps are found in a thousand segments, of which only a few have their files open at a time."""
    held: Recent[Segment] = Recent(limit=16)
    monkeypatch.setattr(segment_module, "OPEN_SEGMENTS", held)
    monkeypatch.setattr(DESCRIPTORS, "limit", 8)
    log, times = generate(tmp_path / "topic-0", 1000)
    check_searches(log, times, 500)
    assert len(held) <= 16
    assert len(DESCRIPTORS) <= 8
    # Deleted segments are not found any more, and new ones are.
    dropped = log.drop_oldest(300, NOW_MS)
    assert len(dropped) == 900
    assert log.size == (len(times) - 900) * data().size
    append(log, timestamp_ms=10**9)
    log.roll(NOW_MS)
    found = log.find_timestamp(10**9)
    assert found is not None
    assert found.offset == len(times)
    earliest = log.find_timestamp(min(times[900:]))
    assert earliest is not None
    assert earliest.offset == 900
    log.close(clean=True)


@pytest.mark.slow
def test_in_a_hundred_thousand_segments_offsets_and_times_are_found(tmp_path: Path):
    log, times = generate(tmp_path / "topic-0", 100_000)
    check_searches(log, times, 200)
    log.close(clean=False)


def test_reading_everything_of_a_log_holds_the_files_of_few_segments(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
):
    held: Recent[Segment] = Recent(limit=4)
    monkeypatch.setattr(segment_module, "OPEN_SEGMENTS", held)
    log = make_log(segment_bytes=2 * data().size, index_interval_bytes=0)
    for number in range(60):
        append(log, producer=(1, 0, number), transactional=True, timestamp_ms=NOW_MS + number)
        if number % 7 == 0:
            end(log, 1, committed=False)
    offset, seen, aborted = 0, 0, set()
    while offset < log.log_end_offset:
        span = log.read(offset, log.log_end_offset, 100, whole_first_batch=True)
        assert span is not None
        assert len(span.bytes()) == span.length
        aborted |= set(log.aborted_transactions(offset, span))
        offset, seen = offset + 1, seen + 1
        assert len(held) <= 4
    assert seen == log.log_end_offset
    assert len(aborted) == 9
    in_use = [each for each in log.segments if each._log is not None]
    assert len(in_use) <= 5


def test_a_segment_that_rests_keeps_what_only_it_knows(make_log: MakeLog):
    log = make_log(index_interval_bytes=0)
    for number in range(5):
        append(log, timestamp_ms=NOW_MS + number)
    active = log.active
    active.rest()  # closes the files, while some index entries are only in memory
    assert active.offset_index.last_position() == 4 * data().size
    log.flush_targets()
    active.rest()
    assert active._log is None
    append(log, timestamp_ms=NOW_MS + 5)
    assert active.offset_index.last_position() == 5 * data().size
    assert [batch.base_offset for batch in log.batches()] == list(range(6))


# -- the compact arrays, compared with a plain list -------------------------------------------------------------


@dataclass(eq=False)
class Plain:
    """A stand-in for a segment, with only the attributes that a list of segments uses."""

    base_offset: int
    size: int
    max_timestamp_ms: int
    has_aborted: bool


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "pop", "drop", "replace", "ask"]),
        st.integers(0, 100),
        st.integers(0, 100),
        st.booleans(),
    ),
    max_size=40,
)


@given(CHANGES)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_the_list_of_segments_knows_what_a_walk_would_find(changes: list[tuple[str, int, int, bool]]):
    plain: list[Any] = []
    made = SegmentList([])
    next_base = 0
    for kind, one, other, flag in [*changes, ("ask", 0, 0, True)]:
        if kind == "append":
            next_base += 1 + one % 3
            segment: Any = Plain(next_base, one, other, flag)
            made.append(segment)
            plain.append(segment)
        elif kind == "pop" and len(plain) > 1:
            assert made.pop() is plain.pop()
        elif kind == "drop" and len(plain) > 1:
            count = one % len(plain)
            made.take_out(0, count, None)
            del plain[:count]
        elif kind == "replace" and len(plain) > 1:
            first = one % (len(plain) - 1)
            last = first + 1 + other % (len(plain) - 1 - first)
            instead: Any = Plain(plain[first].base_offset, one, other, flag) if flag or first == 0 else None
            made.take_out(first, last, instead)
            plain[first:last] = [] if instead is None else [instead]
        elif kind == "ask":
            check_list(made, plain, one)


def check_list(made: SegmentList, plain: list[Any], timestamp_ms: int) -> None:
    assert made.all == plain
    assert made.size == sum(segment.size for segment in plain)
    assert made.largest_timestamp_ms() == max((segment.max_timestamp_ms for segment in plain), default=-1)
    if not plain:
        return
    since = [at for at, segment in enumerate(plain[:-1]) if segment.max_timestamp_ms >= timestamp_ms]
    assert made.first_since(timestamp_ms) == (since[0] if since else len(plain) - 1)
    for first, segment in enumerate(plain):
        assert made.index_of(segment.base_offset) == first
        following = plain[first + 1].base_offset if first + 1 < len(plain) else None
        assert made.next_base(first) == following
        assert list(made.aborting_from(first)) == [each for each in plain[first:] if each.has_aborted]
        for last in range(first, len(plain)):
            assert made.bytes_from(first, last) == sum(each.size for each in plain[first:last])
