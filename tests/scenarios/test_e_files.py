"""Scenarios C8, E2, E3: Kafka's tools print a broker's files.

The console consumer's formatters print the internal topics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support import content
from tests.support.broker import Broker
from tests.support.content import Asked, Filled
from tests.support.dump import by_file, dump, fields
from tests.support.javaprog import java_clients

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("jvm")]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EMPTY, ONGOING, PREPARE_ABORT = "Empty", "Ongoing", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
"""Names of states, which the tools print since Kafka 4.4. Before, they printed numbers."""


@dataclass
class Left:
    """Directory of a stopped broker, and the records that its clients had read."""

    data_dir: Path
    filled: Filled
    seen: dict[str, Any]
    transaction_log: list[dict[str, Any]]
    offsets_and_groups: list[dict[str, Any]]

    def files(self, pattern: str, *, empty: bool = False) -> list[Path]:
        """Files that match the pattern. Empty files are included only with ``empty``."""
        return [path for path in sorted(self.data_dir.glob(pattern)) if empty or path.stat().st_size]


def formatted(broker: Broker, topic: str, *formatters: str) -> list[dict[str, Any]]:
    """All records as the console consumer's formatters print them, partition by partition, without a group."""
    records: list[dict[str, Any]] = []
    for partition, count in record_counts(broker, topic).items():
        for formatter in formatters:
            ran = java_clients().tool(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", partition),
                *("--offset", "earliest", "--max-messages", count, "--timeout-ms", 10_000),
                *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
            )
            assert ran.status == 0, ran
            records += _objects(ran.out)
    return records


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a text that has no separators between them."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        record, end = decoder.raw_decode(rest)
        yield record
        rest = rest[end:].lstrip()


def record_counts(broker: Broker, topic: str) -> dict[int, int]:
    """Partition -> number of its records for a read_uncommitted consumer. Empty partitions are left out."""
    with Asked(broker.host, broker.port) as ask:
        metadata = ask(
            "metadata", 12, topics=[{"topic_id": None, "name": topic}], allow_auto_topic_creation=False
        )
        served = {
            index: content.batches_of(ask, topic, index)
            for index in range(len(metadata["topics"][0]["partitions"]))
        }
    counts = {
        # Bit 5 of the attributes: control batch.
        index: sum(batch["count"] for batch in found if not batch["attributes"] & 0x20)
        for index, found in served.items()
    }
    return {index: count for index, count in counts.items() if count}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    broker = Broker(tmp_path_factory.mktemp("files"))
    with broker:
        filled = content.fill(broker.host, broker.port)
        seen = content.observe(broker.host, broker.port)
        states = formatted(broker, "__transaction_state", "TransactionLogMessageFormatter")
        offsets = formatted(
            broker, "__consumer_offsets", "OffsetsMessageFormatter", "GroupMetadataMessageFormatter"
        )
    return Left(broker.data_dir, filled, seen, states, offsets)


def test_logs_are_printed_as_they_were_served(left: Left):
    """Scenario E3: kafka-dump-log prints every batch that Fetch returned.

    It prints the type and coordinator epoch of each marker.
    """
    logs = [path for path in left.files("*/*.log") if not path.parent.name.startswith("__")]
    printed = by_file(dump(logs, "--print-data-log", "--deep-iteration"))
    batches: dict[str, list[dict[str, str]]] = {}
    for name, lines in printed.items():
        found = [fields(line) for line in lines if line.startswith("baseOffset:")]
        assert {batch["isvalid"] for batch in found} == {"true"}
        batches.setdefault(name.partition("/")[0], []).extend(found)
        _check_markers(lines)
    for partition, served in left.seen["partitions"].items():
        # The tool begins at the start of the file, Fetch at the log start offset (after DeleteRecords).
        shown = [one for one in batches.get(partition, []) if int(one["lastOffset"]) >= served["start"]]
        assert [_printed(one) for one in shown] == [_served(one) for one in served["uncommitted"]["batches"]]


def _check_markers(lines: list[str]) -> None:
    for header, record in pairwise(lines):
        if "isControl: true" in header:
            assert fields(header)["size"] == "78"
            assert re.search(
                r"keySize: 4 valueSize: 6 .*endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: 0$", record
            ), record


def _printed(batch: dict[str, str]) -> tuple[object, ...]:
    return (
        *(int(batch[name]) for name in ("baseOffset", "lastOffset", "count")),
        *(int(batch[name]) for name in ("producerId", "producerEpoch", "baseSequence")),
        *(int(batch[name]) for name in ("partitionLeaderEpoch", "CreateTime")),
        *(batch[name] == "true" for name in ("isTransactional", "isControl")),
        CODECS.index(batch["compresscodec"]),
    )


def _served(batch: dict[str, Any]) -> tuple[object, ...]:
    attributes = batch["attributes"]
    return (
        *(batch["base_offset"], batch["base_offset"] + batch["last_delta"], batch["count"]),
        *(batch["producer_id"], batch["epoch"], batch["sequence"]),
        *(batch["leader_epoch"], batch["max_timestamp"]),
        *(bool(attributes & 0x10), bool(attributes & 0x20)),
        attributes & 7,
    )


def test_records_are_printed_with_key_value_and_headers(left: Left):
    printed = dump(left.files("plain-0/*.log") + left.files("flow-0/*.log"), "--print-data-log")
    lines = by_file(printed)["plain-0/00000000000000000000.log"]
    assert any(re.search(r"headerKeys: \[trace,none\] key: k0 payload: a$", line) for line in lines), lines
    assert any(re.search(r"valueSize: -1 .*key: k1$", line) for line in lines), lines
    assert "payload: undecided" in printed


@pytest.mark.parametrize("flags", [[], ["--index-sanity-check"], ["--verify-index-only"]], ids=str)
def test_every_index_agrees_with_its_log(left: Left, flags: list[str]):
    indexes = left.files("*/*.index", empty=True) + left.files("*/*.timeindex", empty=True)
    logs = left.files("*/*.log", empty=True)
    assert len(indexes) == 2 * len([log for log in logs if log.parent.name != "__cluster_metadata-0"])
    printed = by_file(dump(indexes, *flags))
    if not flags:
        entries = [line for line in printed["segments-0/00000000000000000000.index"] if "position:" in line]
        assert len(entries) > 10
        times = [
            line for line in printed["segments-0/00000000000000000000.timeindex"] if "timestamp:" in line
        ]
        assert times


def test_aborted_transactions_are_listed_as_readers_heard_of_them(left: Left):
    printed = by_file(dump(left.files("*/*.txnindex")))
    listed: dict[str, list[list[int]]] = {}
    for name, lines in printed.items():
        rows = [fields(line) for line in lines if line.startswith("version: 0 ")]
        assert rows
        for row in rows:
            assert int(row["firstOffset"]) < int(row["lastOffset"]) < int(row["lastStableOffset"])
        found = [[int(row["producerId"]), int(row["firstOffset"])] for row in rows]
        listed.setdefault(name.partition("/")[0], []).extend(found)
    heard = {name: part["committed"]["aborted"] for name, part in left.seen["partitions"].items()}
    assert {name: sorted(rows) for name, rows in listed.items()} == {
        name: sorted(rows) for name, rows in heard.items() if rows
    }
    assert len(listed["segments-0"]) == 10
    assert len([name for name in printed if name.startswith("segments-0/")]) == 3


def test_snapshots_show_each_producer_s_last_batch(left: Left):
    """Scenario C8: kafka-dump-log prints each producer's id and epoch.

    It also prints the sequences and the last offset of the producer's last batch.
    """
    printed = by_file(dump(left.files("*/*.snapshot")))
    newest = {name.partition("/")[0]: lines for name, lines in sorted(printed.items())}
    for partition, served in left.seen["partitions"].items():
        expected = _last_batches(served["uncommitted"]["batches"])
        shown = {}
        for line in newest.get(partition, []):
            row = {name: int(value) for name, value in fields(line).items() if re.fullmatch(r"-?\d+", value)}
            if row and row["lastOffset"] >= 0:
                shown[row["producerId"]] = (
                    row["producerEpoch"],
                    row["firstSequence"],
                    row["lastSequence"],
                    row["lastOffset"],
                )
        assert shown == expected, partition
    open_ = left.filled.open
    [line] = [line for line in newest["orders-0"] if f"producerId: {open_.producer_id} " in line]
    assert re.search(r"currentTxnFirstOffset: OptionalLong\[\d+\]", line)


def _last_batches(served: list[dict[str, Any]]) -> dict[int, tuple[int, int, int, int]]:
    found = {}
    for batch in served:
        if batch["producer_id"] >= 0 and not batch["attributes"] & 0x20:
            first, last_offset = batch["sequence"], batch["base_offset"] + batch["last_delta"]
            found[batch["producer_id"]] = (
                batch["epoch"],
                first,
                first + batch["last_delta"],
                last_offset,
            )
    return found


def test_states_of_transactions_are_decoded(left: Left):
    """kafka-dump-log and the console consumer's formatter (scenario E1) print the same __transaction_state."""
    printed = dump(left.files("__transaction_state-*/*.log"), "--transaction-log-decoder")
    records = [
        (json.loads(key), json.loads(value))
        for key, value in re.findall(r" key: (\{.*?\}\}) payload: (\{.*\})$", printed, re.M)
    ]
    in_topic = [(record["key"], record["value"]) for record in left.transaction_log]
    assert sorted(map(_plain, records)) == sorted(map(_plain, in_topic))
    by_id: dict[str, list[str]] = {}
    for record in left.transaction_log:
        assert record["key"]["type"] == 0
        value = record["value"]["data"]
        by_id.setdefault(record["key"]["data"]["transactionalId"], []).append(value["transactionStatus"])
        assert value["transactionLastUpdateTimestampMs"] > 0
        assert (value["transactionStartTimestampMs"] > 0) == (value["transactionStatus"] != EMPTY)
    assert by_id["segments"] == [EMPTY] + 10 * [ONGOING, PREPARE_ABORT, COMPLETE_ABORT]
    assert by_id["mover"][-1] == COMPLETE_COMMIT
    [*_, last] = [one for one in left.transaction_log if one["key"]["data"]["transactionalId"] == "open"]
    data, open_ = last["value"]["data"], left.filled.open
    assert (data["producerId"], data["producerEpoch"]) == (open_.producer_id, open_.producer_epoch)
    assert (data["transactionTimeoutMs"], data["transactionStatus"]) == (900_000, ONGOING)
    partitions = {row["topic"]: row["partitionIds"] for row in data["transactionPartitions"]}
    assert (partitions.pop("flow"), partitions.pop("orders")) == ([0], [0])
    assert list(partitions) == ["__consumer_offsets"]


def _plain(record: tuple[Any, Any]) -> str:
    """A record in a common form, from kafka-dump-log or a formatter.

    kafka-dump-log prints versions and types as text, the formatter as numbers. Members' metadata is left out.
    """
    key, value = record
    data = dict(value["data"])
    if "members" in data:
        opaque = ("subscription", "assignment")
        data["members"] = [
            {name: each[name] for name in each if name not in opaque} for each in data["members"]
        ]
    return json.dumps([int(key["type"]), key["data"], int(value["version"]), data], sort_keys=True)


def test_offsets_and_groups_are_decoded(left: Left):
    """kafka-dump-log and the console consumer's formatters (scenario E2) print the same __consumer_offsets."""
    printed = dump(left.files("__consumer_offsets-*/*.log"), "--offsets-decoder")
    records = [
        (json.loads(key), json.loads(value))
        for key, value in re.findall(r" key: (\{.*?\}\}) payload: (\{.*\})$", printed, re.M)
    ]
    shown = [(record["key"], record["value"]) for record in left.offsets_and_groups]
    assert sorted(map(_plain, records)) == sorted(map(_plain, shown))
    offsets = {
        (key["data"]["group"], key["data"]["topic"], value["data"]["offset"], value["data"]["metadata"])
        for key, value in records
        if key["type"] == "1"
    }
    assert {
        ("simple", "plain", 1, "here"),
        ("movers", "plain", 2, ""),
        ("movers", "plain", 3, "here"),
    } < offsets
    assert any(row[:2] == ("readers", "codecs") and row[2] >= 50 for row in offsets)
    members = [
        value["data"]["members"]
        for key, value in records
        if key["type"] == "2" and key["data"]["group"] == "readers"
    ]
    [joined] = [one for one in members if one]
    assert joined[0]["assignment"]["assignedPartitions"] == [{"topic": "codecs", "partitions": [0]}]
    assert members[-1] == []
    assert printed.count("endTxnMarker: COMMIT coordinatorEpoch: 0") == 1


def test_the_metadata_log_is_decoded(left: Left):
    printed = dump(left.files("__cluster_metadata-0/*.log"), "--cluster-metadata-decoder")
    payloads = [json.loads(each) for each in re.findall(r"payload: (\{.*\})$", printed, re.M)]
    kinds = [each["type"] for each in payloads]
    topics = {each["data"]["name"]: each["data"] for each in payloads if each["type"] == "TOPIC_RECORD"}
    assert set(left.seen["topics"]) == set(topics) - {"gone-topic"}
    assert kinds.count("REMOVE_TOPIC_RECORD") == 1
    epoch = payloads[-1]["data"]["brokerEpoch"]
    shutdown = {"brokerId": 1, "brokerEpoch": epoch, "inControlledShutdown": 1}
    data = [each["data"] for each in payloads]
    stop = data.index(shutdown)
    assert set(kinds[stop + 1 : -1]) == {"PARTITION_CHANGE_RECORD"}
    assert data[-1] == {"brokerId": 1, "brokerEpoch": epoch, "fenced": 1}
