"""Index files are read entry by entry, without Spark."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from odradek.spark.audit.index_files import FLAW, OFFSET, TRANSACTION, Entry, entries
from odradek.spark.segments.finding import Partition
from tests.support.segment_tables import segment

LOG = f"{100:020d}.log"
OFFSETS, TIMES, TRANSACTIONS = Struct(">ii"), Struct(">qi"), Struct(">hqqqq")


def found(tmp_path: Path, suffix: str, data: bytes) -> list[Entry]:
    directory = tmp_path / "orders-0"
    segment(directory, b"", 100).with_suffix(f".{suffix}").write_bytes(data)
    return list(entries(Partition(str(tmp_path), "orders", 0, str(directory))))


def test_offsets_are_counted_from_the_base_offset_and_end_where_zeros_begin(tmp_path: Path) -> None:
    data = OFFSETS.pack(5, 4096) + OFFSETS.pack(9, 8192) + bytes(8 * 1000)
    name = LOG.replace("log", "index")
    assert found(tmp_path, "index", data) == [
        Entry(name, LOG, OFFSET, 0, 105, 4096),
        Entry(name, LOG, OFFSET, 8, 109, 8192),
    ]


def test_a_time_index_says_nothing_unless_it_falls(tmp_path: Path) -> None:
    rising = TIMES.pack(1000, 5) + TIMES.pack(1000, 9) + bytes(12)
    assert found(tmp_path, "timeindex", rising) == []
    (flaw,) = found(tmp_path, "timeindex", TIMES.pack(1000, 5) + TIMES.pack(999, 9))
    assert (flaw.kind, flaw.position) == (FLAW, 12)


def test_zeros_between_entries_are_no_end(tmp_path: Path) -> None:
    lost = OFFSETS.pack(5, 4096) + bytes(8) + OFFSETS.pack(9, 8192) + bytes(8 * 1000)
    _, flaw = found(tmp_path / "1", "index", lost)
    assert (flaw.kind, flaw.position) == (FLAW, 8)
    (flaw,) = found(tmp_path / "2", "timeindex", TIMES.pack(1000, 5) + bytes(12) + TIMES.pack(1001, 9))
    assert (flaw.kind, flaw.position) == (FLAW, 12)
    # A first record with the timestamp 0 has such an entry (TimeIndex.maybeAppend).
    assert found(tmp_path / "3", "timeindex", bytes(12) + TIMES.pack(1001, 9) + bytes(12)) == []


def test_aborted_transactions_are_listed(tmp_path: Path) -> None:
    name = LOG.replace("log", "txnindex")
    (entry,) = found(tmp_path, "txnindex", TRANSACTIONS.pack(0, 7, 101, 105, 101))
    assert entry == Entry(name, LOG, TRANSACTION, 0, 101, 105, 7)
    (flaw,) = found(tmp_path, "txnindex", TRANSACTIONS.pack(1, 7, 101, 105, 101))
    assert flaw.text == "the entry at byte 0 has version 1"


def test_a_file_that_was_cut_says_so(tmp_path: Path) -> None:
    whole = TRANSACTIONS.pack(0, 7, 101, 105, 101)
    *listed, flaw = found(tmp_path, "txnindex", whole + whole[:20])
    assert len(listed) == 1
    assert flaw.text == "20 bytes at the end are not an entry, which has 34: the file was truncated"
