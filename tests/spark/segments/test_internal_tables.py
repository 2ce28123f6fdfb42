"""Decoded keys and values of the coordinators' topics, compared with Kafka's own classes and the broker's readers."""

from __future__ import annotations

import base64
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from odradek.spark.segments.coordinator_records import Malformed, decode
from odradek.spark.segments.coordinator_tables import TOPICS
from odradek.spark.segments.internal import STATES
from protocol import batch as judge
from protocol.records import group_log, transaction_log
from tests.support.segment_tables import RECORDED, plain, read, recorded, segment

REFERENCE = json.loads((Path(__file__).parent / "data" / "coordinator_records.json").read_text("utf-8"))
RENAMED = {"transaction_status": "status", "transaction_partitions": "partitions", "group_id": "group"}
RENAMED |= {f"transaction_{name}_timestamp_ms": name for name in ("last_update", "start")}


def snake(name: str) -> str:
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return RENAMED.get(found, found)


def as_kafka_says_it(value: Any) -> Any:
    """Kafka's JSON value with our field names. Bytes and ids stay as they are in Kafka's JSON."""
    if isinstance(value, dict):
        return {snake(name): as_kafka_says_it(part) for name, part in value.items()}
    return [as_kafka_says_it(part) for part in value] if isinstance(value, list) else value


def as_json(value: Any, said: Any) -> Any:
    """Our value in the form of Kafka's JSON, with only the fields in ``said``, since Kafka omits defaults."""
    if isinstance(value, dict):
        assert set(said) <= set(value)
        left_out = {name: part for name, part in value.items() if name not in said}
        assert all(part in (None, 0, -1, [], ()) for part in left_out.values()), left_out
        return {name: as_json(value[name], part) for name, part in said.items()}
    if isinstance(value, list):
        return [as_json(part, other) for part, other in zip(value, said, strict=True)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
        return base64.urlsafe_b64encode(uuid.UUID(value).bytes).decode().rstrip("=")
    return value


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"{case['kafka']['kind']}-{case['value'][:4]}")
def test_records_are_read_as_kafka_reads_them(case: dict[str, Any]):
    found = decode(case["topic"], bytes.fromhex(case["key"]), bytes.fromhex(case["value"]))
    key, value = as_kafka_says_it(case["kafka"]["key"]), as_kafka_says_it(case["kafka"]["value"])
    assert as_json(found.key, key.get("data", key)) == key.get("data", key)
    assert as_json(found.value, value.get("data", value)) == value.get("data", value)


def test_every_type_and_version_has_a_reference():
    seen = {(case["topic"], int(case["key"][:4], 16), int(case["value"][:4], 16)) for case in REFERENCE}
    for topic, types in TOPICS.items():
        for number, record in types.items():
            highest = 0 if number == 0 else record.value.highest
            assert {(topic, number, version) for version in range(highest + 1)} <= seen


@pytest.mark.parametrize("case", REFERENCE[::7], ids=lambda case: case["kafka"]["kind"])
def test_a_record_that_is_cut_is_malformed(case: dict[str, Any]):
    key, value = bytes.fromhex(case["key"]), bytes.fromhex(case["value"])
    for end in range(len(value)):
        with pytest.raises(Malformed):
            decode(case["topic"], key, value[:end])
    for end in range(len(key)):
        with pytest.raises(Malformed):
            decode(case["topic"], key[:end], value)


@given(st.sampled_from(REFERENCE), st.data())
def test_any_bytes_are_a_record_or_malformed(case: dict[str, Any], data: st.DataObject):
    key, value = bytearray.fromhex(case["key"]), bytearray.fromhex(case["value"])
    for part in (key, value):
        for _ in range(data.draw(st.integers(0, 3))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(case["topic"], bytes(key), bytes(value))
    except Malformed as error:
        assert str(error)  # noqa: PT017 - both outcomes are correct, and no other exception may be raised


# ---- the tables


@pytest.fixture(scope="module", params=RECORDED)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(request.param, tmp_path_factory.mktemp(request.param))


def records(directory: Path, topic: str) -> list[tuple[int, judge.RecordBatch, judge.Record]]:
    return [
        (int(log.parent.name.rpartition("-")[2]), batch, record)
        for log in sorted(directory.glob(f"{topic}-*/*.log"))
        for batch in judge.batches(log.read_bytes())
        for record in batch.records()
    ]


def test_the_states_of_transactions_that_kafka_wrote(directory: Path):
    expected = []
    for partition, _, record in records(directory, "__transaction_state"):
        key = transaction_log.TransactionLogKey.decode(record.key or b"")
        value = transaction_log.TransactionLogValue.decode(record.value or b"")
        expected.append(
            {
                "partition": partition,
                "offset": record.offset,
                "transactional_id": key.transactional_id,
                "producer_id": value.producer_id,
                "producer_epoch": value.producer_epoch,
                "previous_producer_id": value.previous_producer_id,
                "next_producer_id": value.next_producer_id,
                "transaction_timeout_ms": value.transaction_timeout_ms,
                "state": STATES[value.transaction_status],
                "partitions": None
                if value.transaction_partitions is None
                else [
                    {"topic": one.topic, "partition": each}
                    for one in value.transaction_partitions
                    for each in one.partition_ids
                ],
                "last_update": value.transaction_last_update_timestamp_ms * 1000,
                "start": None
                if value.transaction_start_timestamp_ms < 0
                else value.transaction_start_timestamp_ms * 1000,
                "client_transaction_version": value.client_transaction_version,
                "tombstone": False,
                "error": None,
            }
        )
    assert {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"} <= {row["state"] for row in expected}
    columns = ",".join(expected[0])
    assert plain(read(directory, table="transaction_state", columns=columns)) == expected


def test_the_offsets_that_kafka_wrote(directory: Path):
    expected = []
    for partition, batch, record in records(directory, "__consumer_offsets"):
        row: dict[str, Any] = {"log_partition": partition, "offset": record.offset, "kind": None}
        row |= {"group": None, "topic": None, "partition": None, "committed_offset": None, "metadata": None}
        row |= {
            "commit_timestamp": None,
            "producer_id": batch.producer_id,
            "transactional": batch.is_transactional,
        }
        row |= {"control": batch.is_control, "error": None}
        key: Any = None if batch.is_control else group_log.decode_key(record.key or b"")
        if isinstance(key, group_log.OffsetCommitKey):
            value: Any = group_log.decode_value(key, record.value)
            row |= {"kind": "offset", "group": key.group, "topic": key.topic, "partition": key.partition}
            row |= {"committed_offset": value.offset, "metadata": value.metadata}
            row["commit_timestamp"] = value.commit_timestamp_ms * 1000
        elif key is not None:
            row |= {"kind": "group", "group": key.group}
        expected.append(row)
    assert {row["kind"] for row in expected} == {None, "offset", "group"}
    assert plain(read(directory, table="offsets", columns=",".join(expected[0]))) == expected


def test_a_foreign_record_in_an_internal_topic_is_a_row_with_an_error(tmp_path: Path):
    good = transaction_log.TransactionLogKey("tx").encode()
    log = judge.build_batch(
        [(1, b"\0\x09", b""), (2, good, b"\0\x07"), (3, good, None), (4, None, b"x"), (5, good, b"\0\0cut")]
    )
    segment(tmp_path / "__transaction_state-4", log)
    found = plain(read(tmp_path / "__transaction_state-4", table="transaction_state"))
    assert [row["tombstone"] for row in found] == [None, None, True, None, None]
    assert [row["transactional_id"] for row in found] == [None, None, "tx", None, None]
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4]
    said = [row["error"] and row["error"].split(" (")[0] for row in found]
    assert said == [
        "a key of type 9 is unknown",
        "version 7 of the value of transaction is unknown",
        None,
        "the record has no key",
        "the record ends early",
    ]


def test_filters_of_the_internal_tables(directory: Path):
    whole = plain(read(directory, table="offsets"))
    few = plain(
        read(
            directory,
            [spark.EqualTo(("log_partition",), 3), spark.GreaterThan(("offset",), 2)],
            table="offsets",
        )
    )
    assert few == [row for row in whole if row["log_partition"] == 3 and row["offset"] > 2]
    assert few
