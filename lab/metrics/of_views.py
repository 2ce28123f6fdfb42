"""Metric families computed from the views of a cluster.

A proxy has no other families, since it knows the upstream cluster only as any client does. `lab.metrics.of_cluster` adds
the families that only the nodes of this process can provide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from lab.metrics.families import Family, Row, gauge, single
from lab.views.forms import ClusterSummary, GroupSummary, PartitionSummary, TransactionsSummary
from lab.views.ports import HANGING, PARTITIONS_MAX, Views

CONTROLLER: Final = "kafka_controller_kafkacontroller_"
NOT_SERVING: Final = ("starting", "stopping", "stopped", "killed")
"""States in which a node has no connections. ``unreachable`` is none of them: a proxy cannot reach the node, but
clients may."""
SHOWN_MAX: Final = 500
"""Largest number of partitions with samples: behind a proxy, each takes some requests to the cluster at each scrape."""


class ViewMetrics:
    """The families of a cluster that is known only by its views."""

    def __init__(self, views: Views) -> None:
        self._views = views

    async def collect(self) -> list[Family]:
        """All metric families that the views provide, each once."""
        found = list(cluster_families(await self._views.cluster()))
        found += _partition_families(await self._partitions())
        found += transaction_families(await self._views.transactions())
        found += group_families((await self._views.groups()).groups)
        return found

    async def _partitions(self) -> list[PartitionSummary]:
        found: list[PartitionSummary] = []
        while len(found) < SHOWN_MAX:
            summary = await self._views.partitions(None, len(found), PARTITIONS_MAX)
            found += summary.partitions
            if not summary.partitions or len(found) >= summary.total:
                break
        return found


def cluster_families(summary: ClusterSummary) -> Iterator[Family]:
    """The families of nodes and their states, and of the numbers of topics and partitions."""
    # A paused node counts as running, like a process stopped by SIGSTOP.
    running = [node for node in summary.nodes if node.state in ("running", "paused")]
    yield single("kafka_brokers", len(running))
    yield gauge(
        "kafka_broker_info",
        ("id", "address"),
        [((node.node, node.address), 1) for node in running],
    )
    yield gauge(
        "odradek_broker_state",
        ("broker_id", "state"),
        [((node.node, node.state), 1) for node in summary.nodes],
    )
    yield single(f"{CONTROLLER}globaltopiccount", summary.topics)
    yield single(f"{CONTROLLER}globalpartitioncount", summary.partitions)
    yield gauge(
        "kafka_server_replicamanager_leadercount",
        ("broker_id",),
        [((node.node,), node.leads) for node in summary.nodes],
    )
    yield gauge(
        "kafka_server_socket_server_metrics_connection_count",
        ("broker_id",),
        [((node.node,), node.connections) for node in summary.nodes if node.state not in NOT_SERVING],
    )


def _partition_families(partitions: Iterable[PartitionSummary]) -> list[Family]:
    rows: dict[str, list[Row]] = {name: [] for name in _OF_PARTITIONS}
    for each in partitions:
        values = (
            -1 if each.leader is None else each.leader,
            len(each.replicas),
            len(each.isr),
            each.high_watermark,
            each.log_start,
            each.last_stable if each.high_watermark is not None else None,
            _lag(each),
        )
        for name, value in zip(_OF_PARTITIONS, values, strict=True):
            if value is not None:
                rows[name].append(((each.topic, each.partition), value))
    return [gauge(name, ("topic", "partition"), found) for name, found in rows.items()]


def _lag(partition: PartitionSummary) -> int | None:
    if partition.last_stable is None or partition.high_watermark is None:
        return None
    return max(0, partition.high_watermark - partition.last_stable)


_OF_PARTITIONS: Final = (
    "kafka_topic_partition_leader",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "odradek_partition_last_stable_offset",
    "odradek_partition_last_stable_offset_lag",
)


def transaction_families(summary: TransactionsSummary) -> list[Family]:
    by_state = dict(summary.by_state)
    hanging = by_state.pop(HANGING, 0)
    oldest_ms = max((each.open_ms or 0 for each in summary.transactions), default=0)
    return [
        gauge(
            "odradek_transactions",
            ("state",),
            [((state,), count) for state, count in by_state.items()],
        ),
        single(
            "odradek_hanging_transactions",
            hanging,
        ),
        single(
            "odradek_oldest_open_transaction_seconds",
            oldest_ms / 1000,
        ),
    ]


def group_families(groups: Iterable[GroupSummary]) -> list[Family]:
    members: list[Row] = []
    offsets: list[Row] = []
    lags: list[Row] = []
    sums: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
    for group in groups:
        members.append(((group.group,), group.members))
        for each in group.offsets:
            if each.committed is None:
                continue
            labels = (group.group, each.topic, each.partition)
            offsets.append((labels, each.committed))
            if each.lag is not None:
                lags.append((labels, each.lag))
            of_topic = sums[group.group, each.topic]
            of_topic[0] += each.committed
            of_topic[1] += each.lag or 0
    name = "kafka_consumergroup_"
    by_partition, by_topic = ("consumergroup", "topic", "partition"), ("consumergroup", "topic")
    return [
        gauge(f"{name}members", ("consumergroup",), members),
        gauge(f"{name}current_offset", by_partition, offsets),
        gauge(
            f"{name}current_offset_sum",
            by_topic,
            [(key, committed) for key, (committed, _) in sums.items()],
        ),
        gauge(f"{name}lag", by_partition, lags),
        gauge(
            f"{name}lag_sum",
            by_topic,
            [(key, lag) for key, (_, lag) in sums.items()],
        ),
    ]
