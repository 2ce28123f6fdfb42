"""Metric families of the nodes of this process, collected during a scrape in several turns of the event loop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Final

from broker.clock import Domain
from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.cluster.runtime import NodeState
from broker.metadata.topics import is_internal
from broker.metadata.values import NO_LEADER, PartitionState
from broker.replicas.partition import Partition
from broker.transactions.transaction import Transaction
from lab.faults import Faults
from lab.metrics.families import Family, Row, counter, gauge, single
from lab.metrics.of_shares import SHARE_PARTITIONS_MAX, SharePartitionFamilies, share_group_families
from lab.metrics.of_views import CONTROLLER, cluster_families, group_families, transaction_families
from lab.views import groups as groups_of
from lab.views import transactions as transactions_of
from lab.views.cluster_views import ClusterViews
from lab.views.forms import GroupSummary
from lab.views.led import led
from lab.views.turns import in_turns
from protocol.slotted import slotted

PARTITIONS_MAX: Final = 2000
"""Largest number of partitions with samples of their own. Further ones count only in sums of nodes and topics."""
PER_TURN: Final = 20
GROUPS_MAX: Final = 200
GROUPS_PER_TURN: Final = 5
KNOWN_PER_TURN: Final = 1000
BY_PARTITION: Final = ("topic", "partition")


@slotted
class _Partitions:
    """The samples of the metric families that have one sample for each partition.

    ``rows`` maps the name of a family to its samples, each as (labels, value).
    """

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    by_topic: Counter[str] = field(default_factory=Counter)
    by_node: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    offline: int = 0
    total: int = 0

    def add(self, place: tuple[str, int], names: Sequence[str], values: Sequence[float]) -> None:
        """Add a sample for the partition ``place`` to each family in ``names``, with its value in ``values``."""
        for name, value in zip(names, values, strict=True):
            self.rows[name].append((place, value))


class ClusterMetrics:
    """The metric families of the nodes of this process."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, faults: Faults, views: ClusterViews) -> None:
        self._cluster = cluster
        self._views = views
        self._clock = clock
        self._faults = faults

    async def collect(self) -> list[Family]:
        """All metric families of the nodes, each once."""
        partitions = await self._partitions()
        found = [*cluster_families(await self._views.cluster()), *self._nodes(partitions)]
        found += _of_partitions(partitions)
        found += transaction_families(await self._views.transactions())
        groups = await self._groups()
        found += group_families(groups)
        found += share_group_families(groups)
        found += await self._shares()
        found += self._odradek()
        return found

    # -- partitions and nodes -----------------------------------------------------------------------------------

    async def _partitions(self) -> _Partitions:
        found = _Partitions()
        topics = sorted(self._cluster.metadata.topics.values(), key=lambda each: is_internal(each.name))
        owners = await transactions_of.owners(self._cluster)
        places = [(topic.name, state) for topic in topics for state in topic.partitions]
        async for name, state in in_turns(places[:PARTITIONS_MAX], PER_TURN):
            self._count(found, name, state)
            _of_partition(found, name, state)
            partition = led(self._cluster, name, state.index)
            if partition is not None:
                self._of_log(found, partition, owners)
        async for name, state in in_turns(places[PARTITIONS_MAX:], KNOWN_PER_TURN):
            self._count(found, name, state)
        return found

    def _count(self, found: _Partitions, name: str, state: PartitionState) -> None:
        found.total += 1
        found.by_topic[name] += 1
        found.offline += state.leader == NO_LEADER
        for node_id in state.replicas:
            of_node = found.by_node[node_id]
            of_node["partitions"] += 1
            if state.leader == node_id:
                of_node["under_replicated"] += len(state.isr) < len(state.replicas)

    def _of_log(
        self, found: _Partitions, partition: Partition, owners: Mapping[transactions_of.Place, Transaction]
    ) -> None:
        log, stable = partition.log, partition.last_stable_offset
        first = next(iter(log.producers.open_transactions()), None)
        values = (
            partition.high_watermark,
            partition.log_start_offset,
            partition.log_start_offset,
            partition.log_end_offset,
            len(log.segments),
            sum(each.size for each in log.segments),
            stable,
            max(0, partition.high_watermark - stable),
            0.0 if first is None else self._open_ms(partition, first[1], owners) / 1000,
        )
        found.add((partition.topic, partition.index), _OF_LOGS, values)

    def _open_ms(
        self, partition: Partition, producer_id: int, owners: Mapping[transactions_of.Place, Transaction]
    ) -> float:
        """Age of an open transaction in ms, by its coordinator's clock; if it hangs, the time since its last record."""
        txn = owners.get((producer_id, partition.topic, partition.index))
        if txn is not None:
            return max(0, self._clock.now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms)
        since = partition.log.producers.entries[producer_id].last_timestamp_ms
        return max(0, self._clock.now_ms() - since)

    def _nodes(self, partitions: _Partitions) -> Iterator[Family]:
        nodes = list(self._cluster.nodes.values())
        running = sum(node.state is NodeState.RUNNING for node in nodes)
        for name, value in (
            ("activecontrollercount", 1),
            ("activebrokercount", running),
            ("fencedbrokercount", len(nodes) - running),
            ("offlinepartitionscount", partitions.offline),
        ):
            yield single(CONTROLLER + name, value)
        for name, key in (
            ("partitioncount", "partitions"),
            ("underreplicatedpartitions", "under_replicated"),
        ):
            yield gauge(
                f"kafka_server_replicamanager_{name}",
                ("broker_id",),
                [((node.node_id,), partitions.by_node[node.node_id][key]) for node in nodes],
            )

    async def _groups(self) -> list[GroupSummary]:
        known = [
            (group, offsets, node)
            for node in self._cluster.running_nodes()
            for group, offsets in islice(node.groups.known(), GROUPS_MAX)
        ]
        return [
            groups_of.summary(self._cluster, group, offsets, node)
            async for group, offsets, node in in_turns(known[:GROUPS_MAX], GROUPS_PER_TURN)
        ]

    async def _shares(self) -> list[Family]:
        loaded = [
            (node.node_id, managed)
            for node in self._cluster.running_nodes()
            for managed in node.share.loaded().values()
        ]
        found = SharePartitionFamilies()
        async for node_id, managed in in_turns(loaded[:SHARE_PARTITIONS_MAX], PER_TURN):
            found.add(node_id, managed)
        return list(found.families())

    # -- the process --------------------------------------------------------------------------------------------

    def _odradek(self) -> list[Family]:
        lag = self._cluster.lag
        rules = self._faults.list()
        return [
            single(
                "odradek_event_loop_lag_seconds",
                lag.last_ms / 1000,
            ),
            single(
                "odradek_event_loop_lag_max_seconds",
                lag.max_ms / 1000,
            ),
            single(
                "odradek_clock_ahead_seconds",
                max(self._clock.offsets().values(), default=0) / 1000,
            ),
            counter(
                "odradek_fault_rule_hits",
                ("rule",),
                [((rule.id,), rule.hits) for rule in rules],
            ),
        ]


_OF_LOGS: Final = (
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
    "kafka_log_log_numlogsegments",
    "kafka_log_log_size",
    "odradek_partition_last_stable_offset",
    "odradek_partition_last_stable_offset_lag",
    "odradek_partition_last_stable_offset_lag_seconds",
)
_OF_METADATA: Final = (
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_under_replicated_partition",
)


def _of_partition(found: _Partitions, topic: str, state: PartitionState) -> None:
    values = (
        state.leader,
        bool(state.replicas) and state.leader == state.replicas[0],
        len(state.replicas),
        len(state.isr),
        len(state.isr) < len(state.replicas),
    )
    found.add((topic, state.index), _OF_METADATA, values)


def _of_partitions(found: _Partitions) -> Iterator[Family]:
    yield gauge(
        "kafka_topic_partitions", ("topic",), [((name,), count) for name, count in found.by_topic.items()]
    )
    yield single(
        "odradek_partitions_left_out",
        max(0, found.total - PARTITIONS_MAX),
    )
    for name in (*_OF_METADATA, *_OF_LOGS):
        yield gauge(name, BY_PARTITION, found.rows[name])
