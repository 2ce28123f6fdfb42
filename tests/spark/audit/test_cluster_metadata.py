"""The topics that an audit reads from ``__cluster_metadata`` of Apache Kafka, and of logs that are damaged or incomplete."""

from __future__ import annotations

import uuid
from dataclasses import replace
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
    directory = look_at(str(data))
    assert found.broker_ids == {directory.node_id} == {1}
    assert found.log_dir_ids == {1: {directory.id}}
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
    assert after(values) == ClusterMetadata(complete=True, end_offset=3)
    assert not cluster_metadata.Reading().follows(row(0, values[0][:9]))


def row(offset: int, value: bytes) -> dict[str, Any]:
    return {"offset": offset, "timestamp": None, "value": value, "control": False, "error": None}


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
    found = cluster_metadata.read([str(data)])
    assert found == ClusterMetadata(end_offset=found.end_offset)


def test_a_copy_of_the_metadata_log_that_ends_early_does_not_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the metadata log that ends early is not trusted if another copy is longer.

    The log of a controller that was killed early lacks a later deletion of a topic.
    """
    topic_id, index = bytes(range(16)), (0).to_bytes(4, "big")
    topic = b"\x01\x02\x00" + b"\x07orders" + topic_id + b"\x00"
    partition = b"\x01\x03\x00" + index + topic_id
    compacts = b"\x01\x04\x00" + b"\x02\x07orders" + b"\x0fcleanup.policy" + b"\x08compact" + b"\x00"
    removed = b"\x01\x09\x00" + topic_id + b"\x00"
    whole = [row(offset, value) for offset, value in enumerate([topic, partition, compacts, removed])]
    logs = {"early": whole[:3], "late": whole, "behind a snapshot": whole[3:]}
    for name in logs:
        (tmp_path / name / "__cluster_metadata-0").mkdir(parents=True)
    monkeypatch.setattr(cluster_metadata, "_rows", lambda log_dir: logs[log_dir.name])

    def of(*names: str) -> ClusterMetadata:
        return cluster_metadata.read([str(tmp_path / name) for name in names])

    assert (of("early").complete, set(of("early").created_ms)) == (True, {("orders", 0)})
    assert (of("early", "late").complete, of("early", "late").created_ms) == (True, {})
    assert not of("early", "behind a snapshot").complete
    assert of("early", "behind a snapshot").compacted == {"orders"}


def test_a_partition_may_lie_on_a_disk_of_a_broker_that_is_not_seen() -> None:
    here, elsewhere = uuid.UUID(int=1), uuid.UUID(int=2)
    registered = (
        b"\x01\x00\x03"  # RegisterBrokerRecord
        + (1).to_bytes(4, "big")  # broker id
        + b"\x00"  # no broker in migration
        + bytes(16 + 8)  # incarnation id, broker epoch
        + b"\x02\x02P\x02h" + bytes(2 + 2 + 1)  # one endpoint
        + b"\x02\x02f" + bytes(2 + 2 + 1)  # one feature
        + b"\x00\x00\x00"  # no rack, neither fenced nor about to stop
        + b"\x01\x00\x21\x03" + here.bytes + elsewhere.bytes  # log dirs, a tagged field
    )  # fmt: skip
    found = after([registered])
    assert found.broker_ids == {1}
    assert found.log_dir_ids == {1: {here, elsewhere}}
    metadata = replace(found, complete=True, created_ms={("orders", 0): 5})
    one, two = (
        LogDirectory(f"/{number}", node_id=1, id=each) for number, each in enumerate((here, elsewhere))
    )
    assert presence.absent(metadata, [], [one]) == []
    assert len(presence.absent(metadata, [], [one, two])) == 1


def test_partitions_are_missed_only_where_all_brokers_are_seen() -> None:
    metadata = ClusterMetadata(True, 9, {1, 2}, {}, {("orders", 0): 5, ("orders", 1): 5})
    one, two = LogDirectory("/1", node_id=1), LogDirectory("/2", node_id=2)
    missing = [{"topic": "orders", "partition": 1, "created_ms": 5}]
    assert presence.absent(metadata, [("orders", 0)], [one, two]) == missing
    assert presence.absent(metadata, [("orders", 0)], [one]) == []
    assert presence.absent(ClusterMetadata(), [], [one, two]) == []


def having(*numbers: int, node_id: int | None = None, id: uuid.UUID | None = None) -> LogDirectory:
    return LogDirectory(f"/{node_id}", node_id=node_id, id=id, coordinator_partitions=frozenset(numbers))


def test_coordinators_that_lie_elsewhere_are_missed() -> None:
    def all_coordinators(*directories: LogDirectory) -> bool:
        return presence.has_all_coordinators(ClusterMetadata(), directories)

    assert not all_coordinators(having())
    assert not all_coordinators(having(0, 2))
    assert all_coordinators(having(0, 2), having(1, 2))


def test_coordinators_without_a_folder_have_written_nothing_if_they_can_be_nowhere_else() -> None:
    """A partition of __transaction_state without a directory has no records, if no broker's directory is missing.

    A broker creates the directory of a partition at its first append.
    """
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    created = {("__transaction_state", number): 5 for number in range(3)}
    metadata = ClusterMetadata(True, 9, {1, 2}, {1: {one}, 2: {two}}, created)
    here = having(1, node_id=1, id=one)
    assert presence.has_all_coordinators(metadata, [here, having(node_id=2, id=two)])
    assert presence.has_all_coordinators(metadata, [having(node_id=1, id=one), having(node_id=2, id=two)])
    assert not presence.has_all_coordinators(metadata, [here])
    # All directories are here, but not all brokers; then their numbers have no gap, but some are missing.
    assert presence.has_all_coordinators(metadata, [having(0, 1, 2, node_id=1, id=one)])
    assert not presence.has_all_coordinators(metadata, [having(0, 1, node_id=1, id=one)])
    # Brokers before Kafka 3.7 do not register their log directories: the partition may be in another one.
    silent = replace(metadata, log_dir_ids={})
    assert not presence.has_all_coordinators(silent, [here, having(node_id=2, id=two)])
    # Without the topic no coordinator can have written anything.
    unwritten = replace(metadata, created_ms={("orders", 0): 5})
    assert not presence.has_all_coordinators(
        unwritten, [having(node_id=1, id=one), having(node_id=2, id=two)]
    )
