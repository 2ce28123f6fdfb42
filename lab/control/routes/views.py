"""Operations that return one of the summaries on the web page, for other programs. `watch` sends changed summaries."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from lab.control.errors import HttpError
from lab.control.forms import Given
from lab.control.operations import operation
from lab.control.ports import Looking
from lab.views.forms import (
    BatchesPiece,
    ClusterSummary,
    GroupsSummary,
    PartitionsSummary,
    TransactionsSummary,
)
from lab.views.ports import PARTITIONS_MAX, BatchPosition

NAME_CHARACTERS_MAX: Final = 249

Index = Annotated[int, Meta(ge=0, le=2**31 - 1, description="The number of a partition.")]
TopicName = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, description="The name of a topic.")]


class WantedPartitions(Given):
    topic: TopicName | None = None
    first: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Index of the first partition shown.")] = 0
    count: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX, description="How many.")] = 20


class WantedBatches(Given):
    topic: TopicName
    partition: Index


_CLUSTER_EXAMPLE: Final[dict[str, Any]] = {
    "product": "broker",
    "cluster_id": "5L6g3nShT-eMCtK--X86sw",
    "bootstrap_servers": "127.0.0.1:9092",
    "now_ms": 1795291007000,
    "ahead_ms": 0,
    "topics": 3,
    "partitions": 104,
    "trace": False,
    "loop_lag_ms": 0.4,
    "nodes": [
        {
            "node": 1,
            "state": "running",
            "address": "127.0.0.1:9092",
            "leads": 104,
            "replicas": 104,
            "connections": 2,
            "skew_ms": 0,
            "misrouted_to": None,
        }
    ],
}
_TRANSACTIONS_EXAMPLE: Final[dict[str, Any]] = {
    "total": 1,
    "by_state": {"Ongoing": 1},
    "transactions": [
        {
            "transactional_id": "payments",
            "state": "Ongoing",
            "producer_id": 1000,
            "producer_epoch": 4,
            "coordinator": 1,
            "timeout_ms": 60000,
            "open_ms": 250,
            "partitions": ["orders-0"],
            "holds_up": [{"topic": "orders", "partition": 0, "first_offset": 12, "records": 5}],
        }
    ],
}
_PARTITIONS_EXAMPLE: Final[dict[str, Any]] = {
    "total": 4,
    "first": 0,
    "partitions": [
        {
            "topic": "orders",
            "partition": 0,
            "leader": 1,
            "replicas": [1],
            "isr": [1],
            "log_start": 0,
            "last_stable": 12,
            "high_watermark": 17,
            "log_end": 17,
            "open": [
                {
                    "producer_id": 1000,
                    "producer_epoch": 4,
                    "first_offset": 12,
                    "transactional_id": "payments",
                }
            ],
        }
    ],
}
_GROUPS_EXAMPLE: Final[dict[str, Any]] = {
    "total": 1,
    "groups": [
        {
            "group": "workers",
            "type": "classic",
            "state": "Stable",
            "members": 2,
            "coordinator": 1,
            "lag": 3,
            "offsets": [{"topic": "orders", "partition": 0, "committed": 9, "lag": 3, "pending": False}],
        }
    ],
}
_BATCHES_EXAMPLE: Final[dict[str, Any]] = {
    "topic": "orders",
    "partition": 0,
    "restarted": True,
    "batches": [[12, 16, 5, 120, "transactional", 1000, 4, 0, 1795291007000, 0]],
    "log_start": 0,
    "last_stable": 12,
    "high_watermark": 17,
    "log_end": 17,
}


@operation("GET", "/v1/views/cluster", answer_example=_CLUSTER_EXAMPLE, may_wait=True)
async def view_cluster(control: Looking) -> ClusterSummary:
    """Summarize the cluster: its nodes with their states, and the clock."""
    return await control.views.cluster()


@operation("GET", "/v1/views/transactions", answer_example=_TRANSACTIONS_EXAMPLE, may_wait=True)
async def view_transactions(control: Looking) -> TransactionsSummary:
    """Summarize the transactions: open ones first, with the readers that wait for them, and hanging ones."""
    return await control.views.transactions()


@operation("GET", "/v1/views/partitions", answer_example=_PARTITIONS_EXAMPLE, may_wait=True)
async def view_partitions(control: Looking, params: WantedPartitions) -> PartitionsSummary:
    """Summarize some partitions: leader, offsets, and the open transactions that limit the last stable offset."""
    return await control.views.partitions(params.topic, params.first, params.count)


@operation("GET", "/v1/views/groups", answer_example=_GROUPS_EXAMPLE, may_wait=True)
async def view_groups(control: Looking) -> GroupsSummary:
    """Summarize the groups: members, committed offsets, lag."""
    return await control.views.groups()


@operation("GET", "/v1/views/batches/{topic}/{partition}", answer_example=_BATCHES_EXAMPLE, may_wait=True)
async def view_batches(control: Looking, params: WantedBatches) -> BatchesPiece:
    """Show the newest batches of a partition, without their records.

    Of each batch: base offset, last offset, records, bytes, kind (data, transactional, commit, abort), producer id, producer
    epoch, base sequence, timestamp, leader epoch.
    """
    found = await control.views.batches(BatchPosition(params.topic, params.partition))
    if found is None:
        raise HttpError(
            404, f"{params.topic}-{params.partition} cannot be read: it does not exist, or no leader runs"
        )
    return found
