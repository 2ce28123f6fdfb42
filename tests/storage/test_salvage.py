"""A damaged log is read past the damage: every valid batch is found, and each damaged range is reported once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.batch import HEADER_BYTES, RecordBatch
from storage.config import LogConfig
from storage.log import Log
from storage.salvage import Damaged
from tests.storage.logs import TOPIC_ID, append

BATCHES = 40


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log in two segments, with batches of two records at offsets 0, 2, 4 and so on, and sparse index entries."""
    made = Log(tmp_path / "t-0", TOPIC_ID, LogConfig(index_interval_bytes=200, segment_bytes=2048))
    for number in range(BATCHES):
        append(made, 2, value=b"value %d" % number)
    made.active.save_indexes()
    assert len(made.segments) > 1
    return made


def places(log: Log) -> list[tuple[Path, int, int, int]]:
    """(file, position, size, base offset) of each batch."""
    found = []
    for segment in log.segments:
        position = 0
        for batch in segment.batches():
            found.append((segment.path("log"), position, batch.size, batch.base_offset))
            position += batch.size
    return found


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def flip(path: Path, position: int, bit: int) -> None:
    data = path.read_bytes()
    overwrite(path, position, bytes([data[position] ^ (1 << bit)]))


def read(log: Log, offset: int = 0) -> tuple[list[int], list[Damaged]]:
    """(base offsets of the valid batches, damaged ranges) from this offset on."""
    found = list(log.sound_batches(offset))
    damaged = [each for each in found if isinstance(each, Damaged)]
    return [each.base_offset for each in found if isinstance(each, RecordBatch)], damaged


def test_a_sound_log_is_read_as_it_is(log: Log) -> None:
    assert read(log) == ([2 * number for number in range(BATCHES)], [])
    assert read(log, 11)[0][0] == 10


@pytest.mark.parametrize("field", [0, 5, 7, 8, 11, 16, 17, 22, 23, 57, HEADER_BYTES + 3])
@pytest.mark.parametrize("number", [0, 1, 17, BATCHES - 1])
def test_one_damaged_byte_costs_one_batch(log: Log, number: int, field: int) -> None:
    path, position, size, base_offset = places(log)[number]
    flip(path, position + field, 2)
    offsets, (damaged,) = read(log)
    assert offsets == [2 * each for each in range(BATCHES) if each != number]
    assert damaged[:5] == (str(path), position, size, base_offset, base_offset + 2)
    assert damaged.reason
    assert len(damaged.content) == size


def test_any_flipped_bit_costs_at_most_one_batch_and_its_neighbour(log: Log) -> None:
    """A flipped bit hides at most one batch and its neighbour. The CRC does not cover the base offset, so a flipped base
    offset may be that of the next batch."""
    rng = random.Random(5)
    for _ in range(300):
        path, position, size, base_offset = rng.choice(places(log))
        place, bit = position + rng.randrange(size), rng.randrange(8)
        flip(path, place, bit)
        offsets, damaged = read(log)
        flip(path, place, bit)
        if place - position in range(12, 16):
            assert (len(offsets), damaged) == (BATCHES, [])  # the CRC does not cover the leader epoch
        else:
            assert len(offsets) >= BATCHES - 2, (place - position, bit)
            assert damaged, (place - position, bit)
            assert damaged[0].offset <= base_offset + 1


def test_a_stretch_without_any_header_is_searched_through(log: Log) -> None:
    found = places(log)
    path, position, _, base_offset = found[3]
    end = found[6][1]
    overwrite(path, position, b"\xff" * (end - position))
    offsets, (damaged,) = read(log)
    assert offsets == [2 * each for each in range(BATCHES) if each not in (3, 4, 5)]
    assert (damaged.position, damaged.length) == (position, end - position)
    assert (damaged.offset, damaged.next_offset) == (base_offset, base_offset + 6)


def test_zeros_at_the_end_of_a_segment_hide_its_last_batches_only(log: Log) -> None:
    found = places(log)
    last = max(number for number, place in enumerate(found) if place[0] == log.segments[0].path("log"))
    path, position, size, base_offset = found[last]
    overwrite(path, position, bytes(size))
    offsets, (damaged,) = read(log)
    assert offsets == [2 * each for each in range(BATCHES) if each != last]
    assert (damaged.offset, damaged.next_offset) == (base_offset, base_offset + 2)


def test_reading_continues_in_the_middle_of_damage(log: Log) -> None:
    """A read from any offset finds all valid batches behind the offset, and reports the damaged ranges behind it, also if
    the offset is inside a range. Loaders read in slices."""
    path, position, _, base_offset = places(log)[5]
    overwrite(path, position + 8, b"\x7f\xff\xff\xff")
    for offset in range(2 * BATCHES):
        offsets, damaged = read(log, offset)
        assert offsets == [2 * each for each in range(offset // 2, BATCHES) if each != 5]
        assert len(damaged) == (1 if offset <= base_offset + 1 else 0)


def test_a_file_that_has_become_shorter_is_damage(log: Log) -> None:
    path, position, _, base_offset = places(log)[-3]
    with path.open("r+b") as file:
        file.truncate(position + 10)
    offsets, (damaged,) = read(log)
    assert offsets[-1] == base_offset - 2
    assert (damaged.offset, damaged.next_offset) == (base_offset, 2 * BATCHES)
