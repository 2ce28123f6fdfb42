"""Kafka's kafka-dump-log reads our metadata log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import broker.metadata.log as log_module
from broker.metadata import MorePartitions, NewTopic
from broker.metadata.files import LOG_DIRECTORY
from tests.broker.metadata.world import open_cluster
from tests.support.dump import dump

pytestmark = pytest.mark.java


async def fill(directory: Path) -> None:
    cluster = open_cluster(directory)
    await cluster.replication_control.create_topics(
        [NewTopic("a", 2, configs={"retention.ms": "5"}), NewTopic("b")]
    )
    await cluster.replication_control.create_partitions([MorePartitions("a", 3)])
    await cluster.auto_topic_creation.ensure_internal_topic("__transaction_state")
    deleted = cluster.topic("b")
    assert deleted is not None
    await cluster.replication_control.delete_topics([deleted.topic_id])
    await cluster.change_config(4, "", {"min.insync.replicas": "1"})
    await cluster.update_features({"transaction.version": 1})
    allocated = cluster.allocate_producer_id()
    assert not isinstance(allocated, int)
    await allocated
    await cluster.close()


def dumped(path: Path) -> tuple[str, list[dict]]:
    text = dump([path], "--cluster-metadata-decoder")
    return text, [json.loads(payload) for payload in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]


async def test_kafka_dumps_our_log(tmp_path):
    await fill(tmp_path)
    again = open_cluster(tmp_path)
    again.abandon()
    text, found = dumped(tmp_path / LOG_DIRECTORY / f"{0:020d}.log")
    assert "Could not deserialize" not in text
    assert "isvalid: false" not in text
    assert text.count("LeaderChange") == 2
    kinds = [payload["type"] for payload in found]
    assert kinds[:7] == [*["FEATURE_LEVEL_RECORD"] * 5, "CONFIG_RECORD", "REGISTER_BROKER_RECORD"]
    assert kinds.count("PRODUCER_IDS_RECORD") == 1
    assert kinds.count("PARTITION_RECORD") == 4 + 50
    # After a kill, each partition loses its leader and its ISR, and is led again.
    assert kinds.count("PARTITION_CHANGE_RECORD") == 2 * (3 + 50)
    topic = next(payload for payload in found if payload["type"] == "TOPIC_RECORD")
    assert topic["data"]["name"] == "a"


async def test_kafka_dumps_our_snapshot(tmp_path, monkeypatch):
    await fill(tmp_path)
    monkeypatch.setattr(log_module, "SNAPSHOT_FROM_BYTES", 0)
    monkeypatch.setattr(log_module, "SNAPSHOT_RATIO", 0)
    open_cluster(tmp_path).abandon()
    [snapshot] = (tmp_path / LOG_DIRECTORY).glob("*.checkpoint")
    text, found = dumped(snapshot)
    assert "isvalid: false" not in text
    assert "SnapshotHeader" in text
    assert "SnapshotFooter" in text
    kinds = [payload["type"] for payload in found]
    assert kinds[0] == "FEATURE_LEVEL_RECORD"
    assert (kinds.count("TOPIC_RECORD"), kinds.count("PARTITION_RECORD")) == (2, 53)
