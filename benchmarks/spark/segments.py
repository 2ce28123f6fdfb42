"""Read segment files into Arrow in one process, in records per CPU second, compared with kafka-python and aiokafka.

Each reader reads key and value of every record: ours into Arrow columns, the others as bytes in lists. Ours and aiokafka's
check CRCs, kafka-python's does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import kafka.codec as kafka_codecs
import numpy as np
import pyarrow as pa
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from benchmarks.figures import Figure
from benchmarks.spark import SparkRun
from odradek.spark.records.encode import Rows, encode_batches
from odradek.spark.segments import Segments

RECORDS: Final = 400_000
# kafka-python reads a file with 1/PART of the records, because all would take minutes.
PART: Final = 10
BATCH_BYTES: Final = 16 * 1024
ROUNDS: Final = 5
GOALS: Final = {"none": 4.0, "lz4": 2.0}
FASTER: Final = 10.0


def measure(run: SparkRun) -> Iterator[Figure]:
    records = run.scaled(RECORDS)
    for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
        few = write(run.scratch / "few" / f"{codec}-0", codec, records // PART)
        directory = write(run.scratch / "all" / f"{codec}-0", codec, records)
        ours, theirs, slow = [], [], []
        by_segments(directory, None)  # compiles the functions, and loads the file into the page cache
        for _ in range(run.rounds or ROUNDS):
            ours.append(speed(partial(by_segments, directory, "key,value"), records))
            theirs.append(speed(partial(by_aiokafka, directory), records))
            if kafka_python_can(codec):
                slow.append(speed(partial(by_kafka_python, few), records // PART))
        rate, aiokafka = statistics.median(ours), statistics.median(theirs)
        kafka_python = statistics.median(slow) if slow else None
        whole = speed(partial(by_segments, directory, None), records)
        times = "" if kafka_python is None else f"{rate / kafka_python:.0f} times kafka-python; "
        yield Figure(
            f"segment files, {codec}",
            rate,
            "million records per CPU second",
            limit=max(GOALS.get(codec, 0.0), FASTER * (kafka_python or 0.0)) or None,
            higher_is_better=True,
            baseline=f"aiokafka {aiokafka:.2f}, kafka-python "
            + ("cannot read it here" if kafka_python is None else f"{kafka_python:.3f}"),
            note=f"{min(ours):.2f} to {max(ours):.2f}; {times}all 22 columns {whole:.2f};"
            f" {records:,} records of {size_bytes(directory) / records:.0f} bytes as stored",
        )
    yield from in_spark(run, records)


def write(directory: Path, codec: str, records: int) -> Path:
    """Write a partition with the sink's encoder: records of 86 bytes with keys of 14, about 110 bytes each uncompressed."""
    rng = np.random.default_rng(1)
    words = np.array([b"order ", b"created ", b"customer ", b"amount ", b"EUR ", b"warehouse ", b"pending "])
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}.log").open("wb") as log:
        for start in range(0, records, 100_000):
            count = min(100_000, records - start)
            numbers = [b"%040d" % number for number in rng.integers(0, 1 << 60, count)]
            texts = [b"".join(row) for row in words[rng.integers(0, len(words), (count, 7))]]
            values = pa.array([(a + b)[:86] for a, b in zip(texts, numbers, strict=True)], pa.binary())
            keys = pa.array([b"key-%010d" % number for number in range(start, start + count)], pa.binary())
            offset = start
            for batch in encode_batches(
                Rows.of(values, 1_700_000_000_000, keys=keys),
                np.arange(count),
                producer_id=1,
                epoch=0,
                base_sequence=start,
                compression=codec,
                batch_size_bytes=BATCH_BYTES,
            ):
                # As a broker does: the CRC does not cover the base offset.
                log.write(offset.to_bytes(8, "big") + bytes(batch.data)[8:])
                offset += batch.records
    return directory


def size_bytes(directory: Path) -> int:
    return (directory / f"{0:020d}.log").stat().st_size


def speed(read: Callable[[], int], records: int) -> float:
    """Millions of records that ``read`` reads in a second of CPU time. ``read`` returns the number of its records."""
    began = time.process_time()
    assert read() == records
    return records / (time.process_time() - began) / 1e6


def by_segments(directory: Path, columns: str | None) -> int:
    options = {"path": str(directory)} | ({"columns": columns} if columns else {})
    source = Segments(options)
    reader = source.reader(source.schema())
    batches: Iterator[Any] = (batch for task in reader.partitions() for batch in reader.read(task))
    return sum(batch.num_rows for batch in batches)


def by_aiokafka(directory: Path) -> int:
    records = AiokafkaRecords((directory / f"{0:020d}.log").read_bytes())
    keys, values = [], []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            keys.append(record.key)
            values.append(record.value)
    return len(values)


def kafka_python_can(codec: str) -> bool:
    """Whether the package is installed that kafka-python needs for the codec (all but gzip need one)."""
    return codec == "none" or bool(getattr(kafka_codecs, f"has_{codec}")())


def by_kafka_python(directory: Path) -> int:
    records: Any = KafkaPythonRecords((directory / f"{0:020d}.log").read_bytes())
    keys, values = [], []
    while records.has_next():
        for record in records.next_batch():
            keys.append(record.key)
            values.append(record.value)
    return len(values)


def in_spark(run: SparkRun, records: int) -> Iterator[Figure]:
    """Measure a query of all files, one for each of five codecs, including the transfer of rows to the JVM."""
    source = run.spark.read.format("odradek.segments").option("partitions.min", "2")
    rows = source.option("columns", "producer_id,value").load(str(run.scratch / "all"))
    took_s = []
    for _ in range((run.rounds or ROUNDS) + 1):
        began = time.perf_counter()
        [found] = rows.selectExpr("count(*)", "sum(length(value))", "count(distinct producer_id)").collect()
        assert found[0] == 5 * records
        took_s.append(time.perf_counter() - began)
    yield Figure(
        "segment files, count and sum in Spark",
        5 * records / statistics.median(took_s[1:]) / 1e6,
        "million records per second",
        higher_is_better=True,
        note=f"five codecs, {5 * records:,} records; the first run {took_s[0]:.1f} s, then"
        f" {min(took_s[1:]):.2f} to {max(took_s[1:]):.2f} s",
    )
