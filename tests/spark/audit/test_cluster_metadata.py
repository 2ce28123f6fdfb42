"""What an audit knows of topics from ``__cluster_metadata``: of Apache Kafka's directories, and of what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.spark.audit import cluster_metadata, presence
from odradek.spark.audit.cluster_metadata import ClusterMetadata
from odradek.spark.audit.directories import LogDirectory, look_at
from tests.support.segment_tables import recorded


def test_topics_partitions_and_brokers_of_apache_kafka(tmp_path: Path) -> None:
    data = recorded("clean", tmp_path)
    found = cluster_metadata.read([str(data)])
    assert found.complete
    assert found.broker_ids == {look_at(str(data)).node_id} == {1}
    assert ("orders", 0) in found.created_ms
    assert min(found.created_ms.values()) > 1_700_000_000_000
    assert found.compacted == {"compacted", "__consumer_offsets", "__transaction_state"}


def test_a_deleted_topic_has_no_partitions() -> None:
    topic_id, index = bytes(range(16)), (0).to_bytes(4, "big")
    values = [
        b"\x01\x02\x00" + b"\x07orders" + topic_id + b"\x00",  # TopicRecord
        b"\x01\x03\x00" + index + topic_id,  # PartitionRecord, as far as it is read
        b"\x01\x09\x00" + topic_id + b"\x00",  # RemoveTopicRecord
    ]
    assert set(after(values[:2]).created_ms) == {("orders", 0)}
    assert after(values) == ClusterMetadata(complete=True)
    assert not cluster_metadata.Reading().follows(row(0, values[0][:9]))


def row(offset: int, value: bytes) -> dict[str, Any]:
    return {"offset": offset, "timestamp": None, "value": value, "control": False}


def after(values: list[bytes]) -> ClusterMetadata:
    reading = cluster_metadata.Reading()
    assert all(reading.follows(row(offset, value)) for offset, value in enumerate(values))
    return reading.cluster


@pytest.mark.parametrize("damage", [b"\xff", b""], ids=["flipped", "cut off"])
def test_a_metadata_log_that_cannot_be_read_says_nothing(tmp_path: Path, damage: bytes) -> None:
    data = recorded("clean", tmp_path)
    (log,) = (data / "__cluster_metadata-0").glob("*.log")
    content = log.read_bytes()
    middle = len(content) // 2
    log.write_bytes(content[:middle] + damage + content[middle + 1 :] if damage else b"")
    assert cluster_metadata.read([str(data)]) == ClusterMetadata()


def test_partitions_are_missed_only_where_all_brokers_are_seen() -> None:
    metadata = ClusterMetadata(True, {1, 2}, {("orders", 0): 5, ("orders", 1): 5})
    one, two = LogDirectory("/1", node_id=1), LogDirectory("/2", node_id=2)
    missing = [{"topic": "orders", "partition": 1, "created_ms": 5}]
    assert presence.absent(metadata, [("orders", 0)], [one, two]) == missing
    assert presence.absent(metadata, [("orders", 0)], [one]) == []
    assert presence.absent(ClusterMetadata(), [], [one, two]) == []
