from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from protocol.batch import build_batch, end_txn_marker
from protocol.records.producer_snapshot import ProducerSnapshotEntry, encode
from protocol.records.share_state_log import ShareUpdateKey, ShareUpdateValue, StateBatch
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from storage.index import ABORTED_ENTRY, OFFSET_ENTRY, TIME_ENTRY
from tools.commands.dump import dump

BASE = f"{100:020d}"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """The directory of a partition with a transaction, an index of each kind, and a producer snapshot."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batch = build_batch(
        [(1000, b"k", b"v", (("h", b"1"),)), (1001, None, b"w")],
        base_offset=100,
        producer_id=7,
        producer_epoch=3,
        base_sequence=4,
        transactional=True,
        compression=4,
    )
    marker = end_txn_marker(7, 3, committed=False, coordinator_epoch=2, timestamp_ms=1002, base_offset=102)
    (folder / f"{BASE}.log").write_bytes(batch + marker)
    (folder / f"{BASE}.index").write_bytes(OFFSET_ENTRY.pack(2, len(batch)))
    (folder / f"{BASE}.timeindex").write_bytes(TIME_ENTRY.pack(1002, 2))
    (folder / f"{BASE}.txnindex").write_bytes(ABORTED_ENTRY.pack(0, 7, 100, 102, 103))
    (folder / f"{BASE}.snapshot").write_bytes(encode([ProducerSnapshotEntry(7, 3, 5, 101, 1, 1001)]))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 100\n")
    return folder


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(dump, [*map(str, words)], catch_exceptions=False)


def rows(*words: str | Path) -> list[dict[str, object]]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def test_batches_and_records_are_printed(partition: Path) -> None:
    first, one, two, last, marker = rows(partition, "--records")
    assert (first["base_offset"], first["last_offset"], first["count"], first["compression"]) == (
        100,
        101,
        2,
        "zstd",
    )
    assert (first["producer_id"], first["base_sequence"], first["last_sequence"]) == (7, 4, 5)
    assert (first["transactional"], first["crc_valid"]) == (True, True)
    assert (one["offset"], one["key"], one["value"], one["headers"]) == (100, "k", "v", [["h", "1"]])
    assert (two["offset"], two["key"], two["sequence"]) == (101, None, 5)
    assert (last["control"], marker["marker"], marker["coordinator_epoch"]) == (True, "ABORT", 2)
    text = run(partition, "-r").output
    assert "100-101  2 records  at 0," in text
    assert "producer 7 epoch 3 sequence 4-5" in text
    assert "marker=ABORT" in text
    assert "key=null" in text


def test_indexes_and_snapshots_are_printed(partition: Path) -> None:
    assert rows(partition / f"{BASE}.index")[0]["offset"] == 102
    assert rows(partition / f"{BASE}.timeindex") == [{"entry": 0, "timestamp": 1002, "offset": 102}]
    (aborted,) = rows(partition / f"{BASE}.txnindex")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_stable_offset"]) == (7, 100, 103)
    assert rows(partition / f"{BASE}.snapshot")[0]["last_sequence"] == 5
    assert run(partition / "leader-epoch-checkpoint").output == "0\n1\n0 100\n"


def test_the_records_of_coordinators_are_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "__transaction_state-3"
    folder.mkdir()
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=5,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=-1,
    )
    sound = build_batch([(1, TransactionLogKey(transactional_id="etl").encode(), value.encode(1))])
    torn = build_batch([(1, TransactionLogKey(transactional_id="etl").encode(), b"\0\1x")], base_offset=1)
    (folder / f"{0:020d}.log").write_bytes(sound + torn)
    done = run(folder, "-r", "--json")
    assert done.exit_code == 1
    found = [json.loads(line) for line in done.output.splitlines()]
    assert (found[1]["key"]["transactional_id"], found[1]["state"]) == ("etl", "CompleteAbort")
    assert "damaged" in found[3]


def test_the_states_of_share_partitions_are_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "__share_group_state-3"
    folder.mkdir()
    batch = StateBatch(first_offset=5, last_offset=7, delivery_state=2, delivery_count=1)
    key = ShareUpdateKey(group_id="g", topic_id=UUID(int=1), partition=0)
    value = ShareUpdateValue(start_offset=5, state_batches=[batch])
    records = [(1, key.encode(), value.encode(0)), (2, b"\0\x09", b"of a later type")]
    (folder / f"{0:020d}.log").write_bytes(build_batch(records))
    _, found, unknown = map(json.loads, run(folder, "-r", "--json").output.splitlines())
    assert (found["key"]["type"], found["value"]["state_batches"][0]["delivery_state"]) == (
        "ShareUpdateKey",
        2,
    )
    assert unknown["value"] == "of a later type"


@pytest.mark.parametrize("damage", ["crc", "torn", "magic"])
def test_damage_is_named_with_its_place(partition: Path, damage: str) -> None:
    path = partition / f"{BASE}.log"
    data = bytearray(path.read_bytes())
    if damage == "crc":
        data[70] ^= 1
    elif damage == "torn":
        del data[-5:]
    else:
        data[len(data) - 78 + 16] = 9
    path.write_bytes(data)
    done = run(partition)
    assert done.exit_code == 1
    assert "DAMAGED" in done.output
    assert {"crc": "is wrong", "torn": "are not a complete batch", "magic": "magic 9"}[damage] in done.output


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1")
    assert "not a .log, .index" in run(tmp_path / "meta.properties").output
    assert "give a partition's directory" in run(tmp_path).output
    assert run(tmp_path / "nothing").exit_code == 2
