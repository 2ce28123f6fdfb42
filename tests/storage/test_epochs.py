"""Leader epochs and OffsetForLeaderEpoch (KIP-101, KIP-279), and their file (`LeaderEpochCheckpointFile`)."""

from pathlib import Path

import pytest

from storage.epochs import UNDEFINED, LeaderEpochs
from storage.files import StorageError

ENTRIES = [(1, 10), (3, 20), (7, 50)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, UNDEFINED),
        (8, UNDEFINED),
        (7, (7, 90)),
        (6, (3, 50)),
        (3, (3, 50)),
        (2, (1, 20)),
        (1, (1, 20)),
        (0, (0, 10)),
    ],
)
def test_the_end_offset_of_an_epoch(epoch: int, answer: tuple[int, int]):
    assert LeaderEpochs(ENTRIES).end_offset_for(epoch, 90) == answer


def test_without_epochs_every_answer_is_undefined():
    assert LeaderEpochs().end_offset_for(0, 90) == UNDEFINED
    assert LeaderEpochs().latest == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (19, 1), (20, 3), (50, 7), (1000, 7)])
def test_the_epoch_of_an_offset(offset: int, epoch: int):
    assert LeaderEpochs(ENTRIES).epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (8, 60, [*ENTRIES, (8, 60)]),
        (8, 50, [(1, 10), (3, 20), (8, 50)]),
        (8, 15, [(1, 10), (8, 15)]),
        (8, 0, [(8, 0)]),
        (7, 60, ENTRIES),
        (2, 60, ENTRIES),
    ],
)
def test_epochs_and_offsets_both_strictly_rise(epoch: int, start: int, entries: list[tuple[int, int]]):
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(epoch, start)
    assert epochs.entries() == entries
    assert epochs.dirty == (entries != ENTRIES)


@pytest.mark.parametrize(
    ("end", "entries"), [(100, ENTRIES), (50, ENTRIES[:2]), (49, ENTRIES[:2]), (20, ENTRIES[:1]), (10, [])]
)
def test_truncation_from_the_end(end: int, entries: list[tuple[int, int]]):
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end)
    assert epochs.entries() == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, ENTRIES),
        (10, ENTRIES),
        (15, [(1, 15), (3, 20), (7, 50)]),
        (20, [(3, 20), (7, 50)]),
        (49, [(3, 49), (7, 50)]),
        (90, [(7, 90)]),
    ],
)
def test_when_the_log_start_advances_the_first_entry_s_start_is_raised(
    start: int, entries: list[tuple[int, int]]
):
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start)
    assert epochs.entries() == entries
    assert epochs.dirty == (entries != ENTRIES)


def test_the_file_is_kafka_s_and_reads_the_same(tmp_path: Path):
    path = tmp_path / "leader-epoch-checkpoint"
    LeaderEpochs(ENTRIES).save(path)
    assert path.read_bytes() == b"0\n3\n1 10\n3 20\n7 50\n"
    assert LeaderEpochs.load(path).entries() == ENTRIES
    assert LeaderEpochs.load(tmp_path / "missing").entries() == []


def test_lines_that_contradict_each_other_are_resolved_as_in_kafka(tmp_path: Path):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n3\n1 10\n3 20\n4 15\n")
    assert LeaderEpochs.load(path).entries() == [(1, 10), (4, 15)]


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\n1 10\n", b"0\n1\n1 10 20\n", b"0\n1\none 10\n", b"\xff\xfe"]
)
def test_a_malformed_file_is_refused_by_name(tmp_path: Path, content: bytes):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        LeaderEpochs.load(path)


def test_an_epoch_wants_to_be_saved_once_there_are_records_of_it():
    epochs = LeaderEpochs()
    epochs.assign(3, 100)
    assert epochs.unsaved_below(100) is None
    assert epochs.dirty
    assert epochs.unsaved_below(101) == b"0\n1\n3 100\n"
    assert epochs.unsaved_below(101) is None
    assert not epochs.dirty
    epochs.assign(4, 150)
    epochs.truncate_from_start(120)
    assert epochs.unsaved_below(121) == b"0\n2\n3 120\n4 150\n"
    epochs.truncate_from_end(150)
    assert epochs.unsaved_below(150) is None
    assert epochs.unsaved_below(151) == b"0\n1\n3 120\n"
