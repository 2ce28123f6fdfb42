"""The table of batches equals the result of the broker's own reader, on directories that Apache Kafka wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol import batch as judge
from protocol.compression import CODEC_NAMES
from tests.support.dump import dump
from tests.support.segment_tables import RECORDED, plain, read, recorded


@pytest.fixture(scope="module", params=RECORDED)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(request.param, tmp_path_factory.mktemp(request.param))


def judged(log: Path) -> Iterator[dict[str, Any]]:
    topic, _, partition = log.parent.name.rpartition("-")
    for one in judge.batches(log.read_bytes()):
        assert one.has_valid_crc()
        marker = judge.parse_end_txn_marker(one) if one.is_control else None
        yield {
            "log_dir": str(log.parent.parent),
            "topic": topic,
            "partition": int(partition),
            "base_offset": one.base_offset,
            "last_offset": one.last_offset,
            "leader_epoch": one.partition_leader_epoch,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "base_sequence": one.base_sequence,
            "last_sequence": one.last_sequence,
            "records": one.record_count,
            "timestamp": _known(one.base_timestamp) if not one.has_delete_horizon else None,
            "max_timestamp": _known(one.max_timestamp),
            "timestamp_type": "LogAppendTime" if one.is_log_append_time else "CreateTime",
            "transactional": one.is_transactional,
            "control": one.is_control,
            "marker": None if marker is None else ["abort", "commit"][marker.committed],
            "coordinator_epoch": None if marker is None else marker.coordinator_epoch,
            "codec": CODEC_NAMES[one.compression],
            "size_bytes": one.size,
            "file": log.name,
            "position": one.start,
            "error": None,
        }


def _known(time_ms: int) -> int | None:
    return None if time_ms < 0 else time_ms * 1000


def test_every_batch_that_kafka_wrote_is_a_row(directory: Path):
    expected = [row for log in directory.glob("*-[0-9]*/*.log") if _is_data(log) for row in judged(log)]
    assert len(expected) > 100
    key = ("topic", "partition", "base_offset")
    found = plain(read(directory, table="batches"))
    assert sorted(found, key=lambda row: [row[name] for name in key]) == sorted(
        expected, key=lambda row: [row[name] for name in key]
    )


def _is_data(log: Path) -> bool:
    return not log.parent.name.startswith("__") and log.parent.name.rpartition("-")[2].isdecimal()


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_an_internal_topic_is_read_when_it_is_asked_for(directory: Path, topic: str):
    found = plain(read(directory, table="batches", topics=topic))
    expected = [row for log in sorted(directory.glob(f"{topic}-*/*.log")) for row in judged(log)]
    assert {row["topic"] for row in found} == {topic}
    assert found == expected


@pytest.mark.java
@pytest.mark.more
@pytest.mark.xdist_group("jvm")
def test_kafka_dump_log_prints_the_same_batches(directory: Path):
    logs = [log for log in sorted(directory.glob("*/*.log")) if _is_data(log) and log.stat().st_size]
    said = []
    for line in dump(logs).splitlines():
        if line.startswith("Dumping "):
            log = Path(line.removeprefix("Dumping "))
        elif line.startswith("baseOffset: "):
            fields = dict(re.findall(r"(\w+): (\S+)", line))
            said.append({"file": log.parent.name + log.name} | {name: fields[name] for name in SAID.values()})
    rows = plain(read(directory, table="batches"))
    found = [
        {"file": f"{row['topic']}-{row['partition']}{row['file']}"}
        | {theirs: str(row[ours]).lower() for ours, theirs in SAID.items()}
        for row in rows
    ]
    key = ("file", "position")
    assert sorted(found, key=lambda row: [row[name] for name in key]) == sorted(
        said, key=lambda row: [row[name] for name in key]
    )


SAID = {
    "base_offset": "baseOffset",
    "last_offset": "lastOffset",
    "records": "count",
    "base_sequence": "baseSequence",
    "last_sequence": "lastSequence",
    "producer_id": "producerId",
    "producer_epoch": "producerEpoch",
    "leader_epoch": "partitionLeaderEpoch",
    "transactional": "isTransactional",
    "control": "isControl",
    "position": "position",
    "size_bytes": "size",
    "codec": "compresscodec",
}
