"""The table of records equals the result of the broker's own reader, row by row, on Kafka's logs and generated batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from protocol import batch as judge
from protocol.compression import CODEC_NAMES
from tests.support.segment_tables import RECORDED, plain, read, recorded, segment

TIMES_MS = st.integers(-1, 2**42)


@pytest.fixture(scope="module", params=RECORDED)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(request.param, tmp_path_factory.mktemp(request.param))


def judged(log: Path) -> Iterator[dict[str, Any]]:
    topic, _, partition = log.parent.name.rpartition("-")
    for batch in judge.batches(log.read_bytes()):
        marker = judge.parse_end_txn_marker(batch) if batch.is_control else None
        for record in batch.records():
            yield {
                "log_dir": str(log.parent.parent),
                "topic": topic,
                "partition": int(partition),
                "offset": record.offset,
                "timestamp": None if record.timestamp < 0 else record.timestamp * 1000,
                "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
                "key": record.key,
                "value": record.value,
                "headers": [
                    {"key": name.encode(errors="surrogateescape").decode(errors="replace"), "value": value}
                    for name, value in record.headers
                ],
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "sequence": record.sequence,
                "transactional": batch.is_transactional,
                "control": batch.is_control,
                "marker": None if marker is None else ["abort", "commit"][marker.committed],
                "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
                "leader_epoch": batch.partition_leader_epoch,
                "codec": CODEC_NAMES[batch.compression],
                "batch_offset": batch.base_offset,
                "file": log.name,
                "position": batch.start,
                "error": None,
            }


def all_judged(logs: Iterable[Path]) -> list[dict[str, Any]]:
    return [row for log in sorted(logs) for row in judged(log)]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def is_data(log: Path) -> bool:
    return not log.parent.name.startswith("__") and log.parent.name.rpartition("-")[2].isdecimal()


def test_every_record_that_kafka_wrote_is_a_row(directory: Path):
    expected = all_judged(log for log in directory.glob("*/*.log") if is_data(log))
    assert {row["codec"] for row in expected} == set(CODEC_NAMES)
    assert {row["marker"] for row in expected} == {None, "commit", "abort"}
    assert any(row["headers"] for row in expected)
    assert in_order(plain(read(directory))) == in_order(expected)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_records_of_an_internal_topic_are_read_when_they_are_asked_for(directory: Path, topic: str):
    assert plain(read(directory, topics=topic)) == all_judged(directory.glob(f"{topic}-*/*.log"))


def test_only_the_columns_that_are_named_are_made(directory: Path):
    found = read(directory, columns="offset, topic")
    assert found.column_names == ["offset", "topic"]
    whole = read(directory)
    assert found.to_pylist() == whole.select(["offset", "topic"]).to_pylist()


# ---- batches of all kinds

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(TIMES_MS, st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200), HEADERS),
    min_size=1,
    max_size=20,
)


@st.composite
def a_log(draw: st.DrawFn) -> bytes:
    """Batches as logs contain them: gaps between offsets, records removed by compaction, empty batches."""
    log, offset = [], draw(st.sampled_from([0, 7, 2**30]))
    for records in draw(st.lists(RECORDS, max_size=6)):
        one = judge.build_batch(
            records,
            base_offset=offset,
            leader_epoch=draw(st.integers(-1, 9)),
            producer_id=draw(st.sampled_from([-1, 0, 2**62])),
            producer_epoch=draw(st.sampled_from([-1, 0, 32767])),
            base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 3])),
            transactional=draw(st.booleans()),
            compression=draw(st.integers(0, 4)),
            log_append_time_ms=draw(st.none() | TIMES_MS),
        )
        if draw(st.booleans()):
            parsed = judge.RecordBatch.parse(one)
            kept = [record for record in parsed.records() if draw(st.booleans())]
            one = judge.retain(parsed, kept, draw(st.none() | TIMES_MS))
        log.append(one)
        offset += len(records) + draw(st.sampled_from([0, 0, 1, 1000]))
        if draw(st.booleans()):
            log.append(
                judge.end_txn_marker(
                    5,
                    draw(st.integers(0, 32767)),
                    committed=draw(st.booleans()),
                    coordinator_epoch=draw(st.integers(0, 2**31 - 1)),
                    timestamp_ms=draw(st.integers(0, 2**42)),
                    base_offset=offset,
                )
            )
            offset += 1
    return b"".join(log)


@settings(max_examples=150, deadline=None)
@given(a_log(), st.integers(1, 30))
def test_batches_of_all_kinds_are_read_as_the_broker_reads_them(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, rows_max: int
):
    log = segment(tmp_path_factory.mktemp("log") / "a-topic-3", data)
    assert plain(read(log.parent, rows_max=str(rows_max))) == list(judged(log))


@settings(max_examples=60, deadline=None)
@given(a_log(), st.data())
def test_filters_give_the_rows_that_meet_them(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, draw: st.DataObject
):
    log = segment(tmp_path_factory.mktemp("log") / "a-topic-3", data)
    rows = list(judged(log))
    column = draw.draw(
        st.sampled_from(["offset", "producer_id", "batch_offset", "leader_epoch", "partition"])
    )
    values = sorted({row[column] for row in rows} | {0, 3, 11})
    low, high = draw.draw(st.sampled_from(values)), draw.draw(st.sampled_from(values))
    few = draw.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    filters, meets = draw.draw(
        st.sampled_from(
            [
                (
                    [spark.GreaterThan((column,), low), spark.LessThan((column,), high)],
                    lambda v: low < v < high,
                ),
                ([spark.LessThanOrEqual((column,), high), spark.IsNotNull((column,))], lambda v: v <= high),
                ([spark.GreaterThanOrEqual((column,), low)], lambda v: v >= low),
                ([spark.EqualTo((column,), low)], lambda v: v == low),
                ([spark.In((column,), tuple(few))], lambda v: v in few),
                ([spark.Not(spark.In((column,), tuple(few)))], lambda v: v not in few),
                ([spark.Not(spark.EqualTo((column,), low))], lambda v: v != low),
            ]
        )
    )
    assert plain(read(log.parent, filters)) == [row for row in rows if meets(row[column])]


def test_aiokafka_reads_the_same_records(directory: Path):
    """aiokafka shares no code with either reader. The comparison omits only what aiokafka does not return."""
    for log in sorted(directory.glob("*/*.log")):
        if not is_data(log) or not log.stat().st_size:
            continue
        theirs, memory = [], MemoryRecords(log.read_bytes())
        while memory.has_next():
            batch = memory.next_batch()
            assert batch.validate_crc()
            for record in batch:
                time_ms = record.timestamp
                theirs.append((record.offset, time_ms, record.key, record.value, list(record.headers)))
        ours = [
            (
                row["offset"],
                row["timestamp"] // 1000,
                row["key"],
                row["value"],
                [(header["key"], header["value"]) for header in row["headers"]],
            )
            for row in plain(read(log.parent))
            if row["file"] == log.name
        ]
        assert ours == theirs, log
