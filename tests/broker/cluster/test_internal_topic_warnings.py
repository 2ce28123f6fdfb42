"""Internal topics that --topic creates, and warnings about internal topics whose cleanup policy loses coordinator
state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.metadata import ApiError, MorePartitions, NewTopic
from broker.metadata.topics import CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.metadata.values import TOPIC_RESOURCE
from lab.cluster.reset import reset
from tests.support.in_process import InProcess

RETENTION = "retention deletes"
MOVED = "after a restart"


def said(lines: list[Any], words: str) -> list[tuple[str, int]]:
    return [(line["topic"], line["partitions"]) for line in lines if words in line["event"]]


def shape(broker: InProcess, name: str) -> tuple[int, dict[str, str]]:
    topic = broker.cluster.metadata.topic(name)
    assert topic is not None
    return len(topic.partitions), dict(topic.configs)


def commits(broker: InProcess) -> tuple[int, int]:
    """Indexes of the partitions that store the group ``g`` and the transactional id ``g``."""
    [node] = broker.cluster.running_nodes()
    return node.groups.partition_for("g"), node.transactions.partition_for("g")


def test_an_internal_topic_of_the_command_line_is_the_coordinators(tmp_path: Path):
    """Coordinators use internal topics that --topic creates, also after a reset, which starts the nodes before it
    creates the topics."""
    topics = ("--topic", f"{CONSUMER_OFFSETS}:3:segment.bytes=1048576", "--topic", f"{TRANSACTION_STATE}:1")
    with capture_logs() as lines, InProcess(tmp_path, *topics) as broker:
        for _ in range(2):
            partitions, configs = shape(broker, CONSUMER_OFFSETS)
            assert (partitions, configs["cleanup.policy"], configs["segment.bytes"]) == (
                3,
                "compact",
                "1048576",
            )
            partitions, configs = shape(broker, TRANSACTION_STATE)
            assert (partitions, configs["cleanup.policy"], configs["segment.bytes"]) == (
                1,
                "compact",
                "104857600",
            )
            assert broker.call(lambda: commits(broker)) == (ord("g") % 3, 0)
            broker.run(reset(broker.cluster))
    assert said(lines, RETENTION) == said(lines, MOVED) == []


def test_without_a_number_it_has_that_of_the_setting(tmp_path: Path):
    with InProcess(tmp_path, "--topic", CONSUMER_OFFSETS) as broker:
        assert shape(broker, CONSUMER_OFFSETS)[0] == 50


def test_a_topic_that_is_not_compacted_is_warned_of_at_each_start(tmp_path: Path):
    """Each start logs a warning about an internal topic without compaction, which an earlier release could create. The
    coordinator uses the topic anyway, like Kafka's coordinator."""
    with capture_logs() as lines, InProcess(tmp_path) as broker:
        broker.run(
            broker.cluster.metadata.replication_control.create_topics(
                [NewTopic(CONSUMER_OFFSETS, 1), NewTopic("orders")]
            )
        )
        assert said(lines, RETENTION) == [(CONSUMER_OFFSETS, 1)]
        assert said(lines, MOVED) == [(CONSUMER_OFFSETS, 1)]
        assert broker.call(lambda: commits(broker))[0] == ord("g") % 50
    with capture_logs() as lines, InProcess(tmp_path) as broker:
        assert said(lines, RETENTION) == [(CONSUMER_OFFSETS, 1)]
        assert "--set cleanup.policy=compact" in next(line["cure"] for line in lines if "cure" in line)
        assert said(lines, MOVED) == []
        assert broker.call(lambda: commits(broker))[0] == 0


@pytest.mark.parametrize(
    ("policy", "warned"), [("delete", True), ("compact,delete", True), ("compact", False), (None, True)]
)
def test_a_change_of_the_policy_is_warned_of(tmp_path: Path, policy: str | None, warned: bool):
    with InProcess(tmp_path) as broker:
        metadata = broker.cluster.metadata
        broker.run(metadata.auto_topic_creation.ensure_internal_topic(TRANSACTION_STATE))
        with capture_logs() as lines:
            change = {"cleanup.policy": policy}
            broker.run(metadata.change_config(TOPIC_RESOURCE, TRANSACTION_STATE, change))
        assert said(lines, RETENTION) == [(TRANSACTION_STATE, 50)] * warned


def test_more_partitions_are_warned_of(tmp_path: Path):
    with InProcess(tmp_path) as broker:
        metadata = broker.cluster.metadata
        broker.run(metadata.auto_topic_creation.ensure_internal_topic(CONSUMER_OFFSETS))
        with capture_logs() as lines:
            broker.run(metadata.replication_control.create_partitions([MorePartitions(CONSUMER_OFFSETS, 53)]))
        assert said(lines, MOVED) == [(CONSUMER_OFFSETS, 53)]


def test_the_metadata_log_is_no_topic(tmp_path: Path):
    with InProcess(tmp_path) as broker:
        metadata = broker.cluster.metadata

        async def create() -> object:
            metadata.auto_topic_creation.create_in_background([CLUSTER_METADATA])
            await metadata.auto_topic_creation.settled()
            [refusal] = await metadata.replication_control.create_topics([NewTopic(CLUSTER_METADATA)])
            return refusal

        assert isinstance(broker.run(create()), ApiError)
        assert metadata.topic(CLUSTER_METADATA) is None
