"""Kafka's `DumpLogSegments` reads every kind of file of a log, and prints what was written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from protocol.batch import RecordBatch, build_batch
from protocol.records.group_log import OffsetCommitKey, OffsetCommitValue
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions
from storage.config import LogConfig
from storage.log import Log
from tests.storage.logs import NOW_MS, TOPIC_ID, aborted, append, contents, end, reopen
from tests.support.dump import dump, fields

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("jvm")]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log with every kind of batch in several segments, with two restarts, one of them after a kill."""
    directory = tmp_path_factory.mktemp("dump") / "orders-by-day-0"
    log = Log(directory, TOPIC_ID, LogConfig(segment_bytes=3000, index_interval_bytes=200))
    log.assign_epoch(2)
    for number in range(60):
        time = NOW_MS + number * 10 % 130
        append(
            log,
            1 + number % 3,
            timestamp_ms=time,
            leader_epoch=2,
            compression=number % 5,
            value=bytes(number),
        )
        append(log, 2, producer=(100, 1, 2 * number), timestamp_ms=time + 1, leader_epoch=2)
        append(log, 1, producer=(200, 3, number), timestamp_ms=time, leader_epoch=2, transactional=True)
        if number % 4 == 3:
            append(
                log, 1, producer=(201, 0, number // 4), timestamp_ms=time, leader_epoch=2, transactional=True
            )
            end(
                log, 200, committed=number % 8 == 3, epoch=3, coordinator_epoch=9, leader_epoch=2, now_ms=time
            )
            end(log, 201, committed=False, coordinator_epoch=9, leader_epoch=2, now_ms=time + 2)
        if number == 20:
            log.close(clean=True)
            log = reopen(log).log
        if number == 40:
            log = reopen(log, clean=False, recovery_point=log.segments[1].base_offset).log
    append(log, 1, producer=(200, 3, 60), transactional=True, leader_epoch=2)
    log.close(clean=True)
    assert len(log.segments) > 5
    return log


def files(log: Log, suffix: str) -> list[Path]:
    found = sorted(log.directory.glob(f"*.{suffix}"))
    assert found
    return found


@pytest.mark.smoke
def test_logs_hold_what_was_written(log: Log):
    printed = dump(files(log, "log"), "--print-data-log", "--deep-iteration")
    batches = [fields(line) for line in printed.splitlines() if line.startswith("baseOffset:")]
    records = [line for line in printed.splitlines() if line.startswith("| offset:")]
    written = list(log.batches(0))
    assert len(batches) == len(written)
    for seen, batch in zip(batches, written, strict=True):
        assert seen["baseOffset"] == str(batch.base_offset)
        assert seen["lastOffset"] == str(batch.last_offset)
        assert seen["count"] == str(batch.record_count)
        assert seen["baseSequence"] == str(batch.base_sequence)
        assert seen["lastSequence"] == str(batch.last_sequence)
        assert seen["producerId"] == str(batch.producer_id)
        assert seen["producerEpoch"] == str(batch.producer_epoch)
        assert seen["partitionLeaderEpoch"] == "2"
        assert seen["isTransactional"] == str(batch.is_transactional).lower()
        assert seen["isControl"] == str(batch.is_control).lower()
        assert seen["size"] == str(batch.size)
        assert seen["magic"] == "2"
        assert seen["compresscodec"] == ["none", "gzip", "snappy", "lz4", "zstd"][batch.compression]
        assert seen["crc"] == str(batch.crc)
        assert seen["isvalid"] == "true"
        assert seen["CreateTime"] == str(batch.max_timestamp)
    assert len(records) == sum(batch.record_count for batch in written)
    markers = [fields(line) for line in records if "endTxnMarker" in line]
    assert [(marker["endTxnMarker"], marker["coordinatorEpoch"]) for marker in markers] == [
        (kind, "9")
        for number in range(3, 60, 4)
        for kind in ("COMMIT" if number % 8 == 3 else "ABORT", "ABORT")
    ]
    assert {batch["size"] for batch in batches if batch["isControl"] == "true"} == {"78"}


@pytest.mark.parametrize("flags", [[], ["--index-sanity-check"], ["--verify-index-only"]], ids=str)
def test_indexes_agree_with_their_logs(log: Log, flags: list[str]):
    indexes = [*files(log, "index"), *files(log, "timeindex")]
    printed = dump(indexes, *flags)
    if flags == ["--index-sanity-check"]:
        assert len(re.findall(r"passed sanity check", printed)) == len(indexes)
    if not flags:
        entries = sum(len(content) // 8 for content in contents(log.directory, "index").values())
        times = sum(len(content) // 12 for content in contents(log.directory, "timeindex").values())
        assert entries > 50
        assert len(re.findall(r"^offset: \d+ position: \d+$", printed, re.M)) == entries
        assert len(re.findall(r"^timestamp: \d+ offset: \d+$", printed, re.M)) == times


def test_an_index_that_is_off_by_one_would_be_noticed(log: Log, tmp_path: Path):
    copy = tmp_path / log.directory.name
    shutil.copytree(log.directory, copy)
    for suffix, entry in (("index", 8), ("timeindex", 12)):
        path = copy / f"{log.segments[1].base_offset:020d}.{suffix}"
        content = bytearray(path.read_bytes())
        content[3 if suffix == "index" else entry - 1] ^= 1  # the last byte of the offset in the first entry
        path.write_bytes(content)
        with pytest.raises(AssertionError, match=r"ismatch|not found"):
            dump([path])


def test_aborted_transactions_and_snapshots_are_read(log: Log):
    printed = dump([*files(log, "txnindex"), *files(log, "snapshot")])
    seen = re.findall(
        r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)",
        printed,
        re.M,
    )
    written = [
        entry for content in contents(log.directory, "txnindex").values() for entry in aborted(content)
    ]
    assert len(written) == 22
    assert [tuple(map(int, entry)) for entry in seen] == written
    producers = [fields(line) for line in printed.splitlines() if line.startswith("producerId:")]
    last = {int(line["producerId"]): line for line in producers[-3:]}
    assert sorted(last) == [100, 200, 201]
    for producer_id, line in last.items():
        entry = log.producers.entries[producer_id]
        assert line["producerEpoch"] == str(entry.epoch)
        assert line["coordinatorEpoch"] == str(entry.coordinator_epoch)
        assert line["lastTimestamp"] == str(entry.last_timestamp_ms)
    assert re.search(r"producerId: 200 .*currentTxnFirstOffset: Optional(Long)?\[(\d+)\]", printed)


def internal_log(directory: Path, key: bytes, value: bytes) -> Path:
    log = Log(directory, TOPIC_ID, LogConfig())
    batch = RecordBatch.parse(build_batch([(NOW_MS, key, value), (NOW_MS, key, None)]))
    log.append_data(batch, 0, NOW_MS, NOW_MS)
    log.close(clean=True)
    return directory / f"{0:020d}.log"


def test_committed_offsets_are_decoded(tmp_path: Path):
    key = OffsetCommitKey(group="readers", topic="orders", partition=3)
    value = OffsetCommitValue(offset=77, leader_epoch=2, metadata="here", commit_timestamp_ms=NOW_MS)
    path = internal_log(tmp_path / "__consumer_offsets-7", key.encode(), value.encode(3))
    printed = dump([path], "--offsets-decoder")
    assert '"group":"readers"' in printed
    assert re.search(r'"offset":77,.*"metadata":"here"', printed)


def test_states_of_transactions_are_decoded(tmp_path: Path):
    value = TransactionLogValue(
        producer_id=4000,
        producer_epoch=5,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[TransactionPartitions("orders", [0, 2])],
    )
    key = TransactionLogKey("mover").encode()
    path = internal_log(tmp_path / "__transaction_state-1", key, value.encode(1))
    printed = dump([path], "--transaction-log-decoder")
    assert '"transactionalId":"mover"' in printed
    assert re.search(r'"producerId":4000,.*"partitionIds":\[0,2\]', printed)
