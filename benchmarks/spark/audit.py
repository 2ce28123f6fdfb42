"""Audit ten million records, written in transactions of 100 records per partition.

First in batches of 100 records, as producers write them; then in batches of one record. The second is the worst case: an
audit reads batch headers and not records, so it reads ten million headers.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import google_crc32c

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest
from benchmarks.spark import SparkRun
from protocol.batch import build_batch, end_txn_marker
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions

RECORDS: Final = 10_000_000
PARTITIONS: Final = 8
PER_TRANSACTION: Final = 100
LIMIT_S: Final = 60.0
NOW_MS: Final = 1_790_000_000_000
TOPIC: Final = "events"
VALUE: Final = bytes(100)
_EMPTY, _ONGOING, _PREPARE_COMMIT, _COMPLETE_COMMIT = 0, 1, 2, 4
_AFTER_MS: Final = {_EMPTY: 0, _ONGOING: 1, _PREPARE_COMMIT: 3, _COMPLETE_COMMIT: 7}
"""Transaction state -> milliseconds from the begin of a transaction to the coordinator's record of the state.

Markers follow at 5 ms.
"""
_PATCHED: Final = struct.Struct(">hi")
"""Epoch and base sequence, the last fields that differ between batches; the checksum covers them."""
_PATCHED_AT: Final = 51
_CRC_FROM: Final = 21


def measure(run: SparkRun) -> Iterator[Figure]:
    from odradek.spark.audit import audit

    records = run.scaled(RECORDS)
    rest = others_at_rest()
    for per_batch in (100, 1):
        data = run.scratch / f"audit-{per_batch}"
        run.say(f"writing {records:,} records in batches of {per_batch}")
        size = write(data, records, per_batch)
        took_s = []
        for _ in range(run.rounds or 2):
            began = time.perf_counter()
            report = audit(run.spark, data, run.scratch / "report", say=run.say)
            took_s.append(time.perf_counter() - began)
            if report.exit_code or report.figures["committed_records"] != records // unit() * unit():
                raise RuntimeError(report.verdict)
        yield Figure(
            f"audit of {records:,} records in batches of {per_batch}",
            min(took_s),
            "s",
            limit=LIMIT_S * run.scale if run.scale >= 1 else None,
            note=f"{size / 1e6:,.0f} MB, {report.figures['batches']:,} batches,"
            f" {report.figures['committed_transactions']:,} transactions; each time {', '.join(f'{s:.1f}' for s in took_s)}",
            other_cpu=rest,
        )


def unit() -> int:
    """Number of records of one transaction, summed over all partitions."""
    return PARTITIONS * PER_TRANSACTION


def write(data: Path, records: int, per_batch: int) -> int:
    """Write a log directory and return its size. One transactional id writes to all partitions (transaction version 2)."""
    transactions = records // unit()
    size = 0
    for partition in range(PARTITIONS):
        directory = data / f"{TOPIC}-{partition}"
        directory.mkdir(parents=True)
        with (directory / f"{0:020d}.log").open("wb") as log:
            for chunk in _partition(transactions, per_batch):
                size += log.write(chunk)
    directory = data / "__transaction_state-0"
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as log:
        for chunk in _coordinator(transactions):
            size += log.write(chunk)
    return size


def _partition(transactions: int, per_batch: int) -> Iterator[bytes]:
    """The batches of each transaction, made by patching fields of one encoded batch, and a marker of the next epoch."""
    row = (NOW_MS, b"key", VALUE)
    model = build_batch(
        [row] * per_batch,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    before, after = model[_CRC_FROM:_PATCHED_AT], model[_PATCHED_AT + _PATCHED.size :]
    head = struct.Struct(">qiibI")
    length = len(model) - 12
    extend, value = google_crc32c.extend, google_crc32c.value
    common = value(before)
    offset = 0
    for number in range(transactions):
        epoch = number % 32_000
        producer_id = number // 32_000 + 1
        if producer_id > 1 and epoch == 0:
            before = before[:22] + producer_id.to_bytes(8, "big")
            common = value(before)
        chunks = []
        for sequence in range(0, PER_TRANSACTION, per_batch):
            tail = _PATCHED.pack(epoch, sequence) + after
            chunks.append(head.pack(offset, length, 0, 2, extend(common, tail)) + before + tail)
            offset += per_batch
        chunks.append(
            end_txn_marker(
                producer_id,
                epoch + 1,
                committed=True,
                coordinator_epoch=0,
                timestamp_ms=NOW_MS + number * 10 + 5,
                base_offset=offset,
                leader_epoch=0,
            )
        )
        offset += 1
        yield b"".join(chunks)


def _coordinator(transactions: int) -> Iterator[bytes]:
    listed = [TransactionPartitions(topic=TOPIC, partition_ids=list(range(PARTITIONS)))]
    offset = 0
    for number in range(transactions):
        epoch, producer_id = number % 32_000, number // 32_000 + 1
        key = TransactionLogKey(transactional_id=f"loop-{producer_id}").encode()
        steps: list[tuple[int, int, list[TransactionPartitions] | None]] = [
            (_ONGOING, epoch, listed),
            (_PREPARE_COMMIT, epoch + 1, listed),
            (_COMPLETE_COMMIT, epoch + 1, []),
        ]
        if epoch == 0:
            steps.insert(0, (_EMPTY, 0, None))
        for status, at_epoch, partitions in steps:
            now_ms = NOW_MS + number * 10 + _AFTER_MS[status]
            value = TransactionLogValue(
                producer_id=producer_id,
                producer_epoch=at_epoch,
                transaction_timeout_ms=60_000,
                transaction_status=status,
                transaction_partitions=partitions,
                transaction_last_update_timestamp_ms=now_ms,
                transaction_start_timestamp_ms=-1 if status == _EMPTY else NOW_MS + number * 10,
                client_transaction_version=2,
            ).encode(1)
            yield build_batch([(now_ms, key, value)], base_offset=offset, leader_epoch=0)
            offset += 1
