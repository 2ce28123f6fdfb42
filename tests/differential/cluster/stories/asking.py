"""Requests that many stories send."""

from __future__ import annotations

from typing import Any

from tests.differential.cluster.story import ClusterStory
from tests.differential.story import Body, Topic


def list_offsets(
    s: ClusterStory, t: Topic, at: int, v: int = 10, timestamp: int = -1, epoch: int = -1, **more: Any
) -> None:
    row = {"partition_index": more.pop("partition", 0), "timestamp": timestamp, "current_leader_epoch": epoch}
    body: dict[str, Any] = {"replica_id": -1, "topics": [{"name": t.name, "partitions": [row]}]}
    s.ask("list_offsets", v, at=at, **(body | more))


def epoch_end(
    s: ClusterStory, t: Topic, at: int, epoch: int, current: int = -1, v: int = 4, **more: Any
) -> None:
    """Send OffsetForLeaderEpoch: the end offset of a leader epoch."""
    row = {"partition": more.pop("partition", 0), "current_leader_epoch": current, "leader_epoch": epoch}
    body: dict[str, Any] = {"replica_id": -1, "topics": [{"topic": t.name, "partitions": [row]}]}
    s.ask("offset_for_leader_epoch", v, at=at, **(body | more))


def metadata(s: ClusterStory, t: Topic, at: int, v: int = 12, **more: Any) -> Body:
    return s.ask("metadata", v, at=at, topics=[{"name": t.name}], allow_auto_topic_creation=False, **more)


def describe(s: ClusterStory, t: Topic, at: int, **more: Any) -> Body:
    return s.ask("describe_topic_partitions", 0, at=at, topics=[{"name": t.name}], **more)


def describe_producers(s: ClusterStory, t: Topic, at: int, **more: Any) -> Body:
    rows = [{"name": t.name, "partition_indexes": [more.pop("partition", 0)]}]
    return s.ask("describe_producers", 0, at=at, topics=rows, **more)


def delete_records(
    s: ClusterStory, t: Topic, at: int, offset: int, timeout: int = 10_000, **more: Any
) -> Body:
    rows = [{"name": t.name, "partitions": [{"partition_index": more.pop("partition", 0), "offset": offset}]}]
    return s.ask("delete_records", 2, at=at, topics=rows, timeout=timeout, **more)
