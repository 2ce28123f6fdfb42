"""Offsets of partitions: log start, last stable offset, high watermark, first offset at a timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tools.client.cluster import Cluster
from tools.client.errors import check

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def list_offset(
    cluster: Cluster, topic: str, partition: int, timestamp: int, isolation: int = READ_UNCOMMITTED
) -> int:
    """The offset of the first record at or after a timestamp, -1 if there is none. ``timestamp`` may be a constant of this
    module.

    ``LATEST`` is the high watermark, or with ``READ_COMMITTED`` the last stable offset.
    """

    def ask() -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
            timeout_ms=30_000,
        )
        response = cluster.ask_leader(topic, partition, "list_offsets", request)
        found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
        check(found.error_code, f"{topic}-{partition}")
        return found

    return cluster.retrying(ask).offset


def delete_records(cluster: Cluster, topic: str, partition: int, before: int) -> int:
    """Advance the log start offset of a partition. Returns the new log start. Fails for compacted topics."""

    def ask() -> int:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=30_000
        )
        response = cluster.ask_leader(topic, partition, "delete_records", request)
        found = response.topics[0].partitions[0]
        check(found.error_code, f"{topic}-{partition}")
        return int(found.low_watermark)

    return cluster.retrying(ask)


def by_topic_of(offsets: Mapping[tuple[str, int], int]) -> dict[str, list[tuple[int, int]]]:
    """The (partition, offset) pairs of each topic."""
    found: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, []).append((partition, offset))
    return found
