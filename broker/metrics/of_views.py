"""Families of what the views show: all that there is of a cluster behind a proxy, which is asked as any client asks it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from broker.metrics.families import Family, Row, gauge, single
from broker.views.forms import ClusterSummary, GroupSummary, PartitionSummary, TransactionsSummary
from broker.views.ports import HANGING, PARTITIONS_MAX, Views

SHOWN_MAX: Final = 500
"""Partitions; for each some requests go to the cluster at each scrape."""
_BY_PARTITION: Final = ("topic", "partition")


class ViewMetrics:
    """The families of a cluster that is known by its views alone."""

    def __init__(self, views: Views) -> None:
        self._views = views

    async def collect(self) -> list[Family]:
        """Each family once."""
        found = list(_cluster_families(await self._views.cluster()))
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


def _cluster_families(summary: ClusterSummary) -> Iterator[Family]:
    running = [node for node in summary.nodes if node.state == "running"]
    yield single("kafka_brokers", "Nodes that run.", len(running))
    yield gauge(
        "kafka_broker_info",
        "A node that runs, with its advertised address.",
        ("id", "address"),
        [((node.node, node.address), 1) for node in running],
    )
    yield gauge(
        "odradek_broker_state",
        "The state of a node, as the control port says it.",
        ("broker_id", "state"),
        [((node.node, node.state), 1) for node in summary.nodes],
    )
    controller = "kafka_controller_kafkacontroller_"
    yield single(f"{controller}globaltopiccount", "Topics.", summary.topics)
    yield single(f"{controller}globalpartitioncount", "Partitions.", summary.partitions)
    yield gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that a node leads.",
        ("broker_id",),
        [((node.node,), node.leads) for node in summary.nodes],
    )
    yield gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Connections of clients.",
        ("broker_id",),
        [((node.node,), node.connections) for node in summary.nodes],
    )


def _partition_families(partitions: Iterable[PartitionSummary]) -> list[Family]:
    rows: dict[str, list[Row]] = {name: [] for name in _PARTITION_FAMILIES}
    for each in partitions:
        place = (each.topic, each.partition)
        rows["kafka_topic_partition_replicas"].append((place, len(each.replicas)))
        rows["kafka_topic_partition_in_sync_replica"].append((place, len(each.isr)))
        rows["kafka_topic_partition_leader"].append((place, -1 if each.leader is None else each.leader))
        if each.high_watermark is not None:
            rows["kafka_topic_partition_current_offset"].append((place, each.high_watermark))
        if each.log_start is not None:
            rows["kafka_topic_partition_oldest_offset"].append((place, each.log_start))
        if each.last_stable is not None and each.high_watermark is not None:
            lag = max(0, each.high_watermark - each.last_stable)
            rows["odradek_partition_last_stable_offset"].append((place, each.last_stable))
            rows["odradek_partition_last_stable_offset_lag"].append((place, lag))
    return [gauge(name, says, _BY_PARTITION, rows[name]) for name, says in _PARTITION_FAMILIES.items()]


_PARTITION_FAMILIES: Final = {
    "kafka_topic_partition_leader": "The node that leads a partition; -1 without one.",
    "kafka_topic_partition_replicas": "Replicas of a partition.",
    "kafka_topic_partition_in_sync_replica": "In-sync replicas of a partition.",
    "kafka_topic_partition_current_offset": "The high watermark of a partition.",
    "kafka_topic_partition_oldest_offset": "The log start offset of a partition.",
    "odradek_partition_last_stable_offset": "The last stable offset: how far read_committed consumers may read.",
    "odradek_partition_last_stable_offset_lag": "Records from the last stable offset to the high watermark.",
}


def transaction_families(summary: TransactionsSummary) -> list[Family]:
    by_state = dict(summary.by_state)
    hanging = by_state.pop(HANGING, 0)
    oldest_ms = max((each.open_ms or 0 for each in summary.transactions), default=0)
    return [
        gauge(
            "odradek_transactions",
            "Transactional ids, by the state of their transaction (TransactionState of Kafka).",
            ("state",),
            [((state,), count) for state, count in by_state.items()],
        ),
        single(
            "odradek_hanging_transactions",
            "Transactions open in a partition that no coordinator will end.",
            hanging,
        ),
        single(
            "odradek_oldest_open_transaction_seconds",
            "For how long the oldest open transaction has been open.",
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
        gauge(f"{name}members", "Members of a group.", ("consumergroup",), members),
        gauge(f"{name}current_offset", "The offset that a group has committed.", by_partition, offsets),
        gauge(
            f"{name}current_offset_sum",
            "The sum of a group's committed offsets in a topic.",
            by_topic,
            [(key, committed) for key, (committed, _) in sums.items()],
        ),
        gauge(
            f"{name}lag", "Records from the committed offset to the last stable offset.", by_partition, lags
        ),
        gauge(
            f"{name}lag_sum",
            "The sum of a group's lag in a topic.",
            by_topic,
            [(key, lag) for key, (_, lag) in sums.items()],
        ),
    ]
