"""Encode Arrow columns as record batches, compared with aiokafka's compiled builder, which takes single rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest
from benchmarks.spark import SparkRun

RECORD_BYTES: Final = 100
RECORDS: Final = 100_000
CPU_SECONDS: Final = 2.0
BATCH_SIZE_BYTES: Final = 256 * 1024
LIMITS: Final = {"none": 1.5}
NOW_MS: Final = 1_700_000_000_000


def measure(run: SparkRun) -> Iterator[Figure]:
    from odradek.spark.records.compress import CODECS
    from odradek.spark.records.encode import Rows, encode_batches

    rest = others_at_rest()
    texts = [b"%09d" % number + b"value, " * 13 for number in range(RECORDS)]
    keys, values = pa.array([text[:9] for text in texts]), pa.array(texts)

    def ours(codec: str) -> None:
        rows = Rows.of(values, NOW_MS, keys=keys)
        encode_batches(
            rows,
            np.arange(RECORDS),
            producer_id=1,
            epoch=0,
            base_sequence=0,
            compression=codec,
            batch_size_bytes=BATCH_SIZE_BYTES,
        )

    for number, codec in enumerate(CODECS):
        speed = millions_per_cpu_second(lambda codec=codec: ours(codec), run.scale)  # type: ignore[misc]
        other = millions_per_cpu_second(lambda number=number: theirs(number, keys, values), run.scale)  # type: ignore[misc]
        yield Figure(
            f"rows to batches, {codec}",
            speed,
            "million records per CPU second",
            limit=LIMITS.get(codec),
            higher_is_better=True,
            baseline=f"aiokafka's builder {other:.2f}",
            note=f"{RECORD_BYTES}-byte values with a key, batches of {BATCH_SIZE_BYTES // 1024} KiB",
            other_cpu=rest,
        )


def theirs(codec: int, keys: pa.Array, values: pa.Array) -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    def builder() -> DefaultRecordBatchBuilder:
        return DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            batch_size=BATCH_SIZE_BYTES,
        )

    batch = builder()
    offset = 0
    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        if batch.append(offset, NOW_MS, key, value, []) is None:
            batch.build()
            batch, offset = builder(), 0
            batch.append(offset, NOW_MS, key, value, [])
        offset += 1
    batch.build()


def millions_per_cpu_second(work: Callable[[], None], scale: float) -> float:
    """Millions of records that one thread encodes with ``work`` in a second of its CPU time.

    ``scale`` multiplies the CPU time of the measurement. The first call, which compiles functions, is not measured.
    """
    work()
    began = time.thread_time()
    times = 0
    while (took_s := time.thread_time() - began) < CPU_SECONDS * scale or not times:
        work()
        times += 1
    return times * RECORDS / took_s / 1e6
