"""What the nodes of this process hold now: read while it is asked for, some of it in each turn of the loop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from broker.clock import Domain
from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.cluster.addresses import host_and_port
from broker.cluster.runtime import NodeState
from broker.faults import Faults
from broker.metadata.topics import is_internal
from broker.metadata.values import NO_LEADER, PartitionState
from broker.metrics.families import Family, Row, counter, gauge, single
from broker.metrics.of_views import group_families, transaction_families
from broker.replicas.partition import Partition
from broker.transactions.state import Transaction
from broker.views import groups as groups_of
from broker.views import transactions as transactions_of
from broker.views.forms import GroupSummary
from broker.views.led import led
from broker.views.turns import in_turns

PARTITIONS_MAX: Final = 2000
"""Shown one by one; of further ones the numbers of their nodes and topics are shown."""
PER_TURN: Final = 20
GROUPS_MAX: Final = 200
GROUPS_PER_TURN: Final = 5
KNOWN_PER_TURN: Final = 1000
BY_PARTITION: Final = ("topic", "partition")


@dataclass(slots=True)
class _Partitions:
    """Rows by the name of their family."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    by_topic: Counter[str] = field(default_factory=Counter)
    by_node: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    offline: int = 0
    total: int = 0


class ClusterMetrics:
    """The families of a cluster of ours."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, faults: Faults) -> None:
        self._cluster = cluster
        self._clock = clock
        self._faults = faults

    async def collect(self) -> list[Family]:
        """All families, each once."""
        partitions = await self._partitions()
        found = [*self._nodes(partitions), *_of_partitions(partitions)]
        found += transaction_families(await transactions_of.transactions(self._cluster))
        found += group_families(await self._groups())
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
                of_node["leads"] += 1
                of_node["under_replicated"] += len(state.isr) < len(state.replicas)

    def _of_log(
        self, found: _Partitions, partition: Partition, owners: Mapping[transactions_of.Place, Transaction]
    ) -> None:
        place = (partition.topic, partition.index)
        stable, watermark = partition.last_stable_offset, partition.high_watermark
        add = found.rows
        add["kafka_topic_partition_current_offset"].append((place, watermark))
        add["kafka_topic_partition_oldest_offset"].append((place, partition.log_start_offset))
        add["kafka_log_log_logstartoffset"].append((place, partition.log_start_offset))
        add["kafka_log_log_logendoffset"].append((place, partition.log_end_offset))
        add["kafka_log_log_numlogsegments"].append((place, len(partition.log.segments)))
        add["kafka_log_log_size"].append((place, sum(each.size for each in partition.log.segments)))
        add["odradek_partition_last_stable_offset"].append((place, stable))
        add["odradek_partition_last_stable_offset_lag"].append((place, max(0, watermark - stable)))
        first = next(iter(partition.log.producers.open_transactions()), None)
        open_ms = 0.0 if first is None else self._open_ms(partition, first[1], owners)
        add["odradek_partition_last_stable_offset_lag_seconds"].append((place, open_ms / 1000))

    def _open_ms(
        self, partition: Partition, producer_id: int, owners: Mapping[transactions_of.Place, Transaction]
    ) -> float:
        """For so long a transaction has been open: by its coordinator's clock, or since its last record if it hangs."""
        txn = owners.get((producer_id, partition.topic, partition.index))
        if txn is not None:
            return max(0, self._clock.now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms)
        since = partition.log.producers.entries[producer_id].last_timestamp_ms
        return max(0, self._clock.now_ms() - since)

    def _nodes(self, partitions: _Partitions) -> Iterator[Family]:
        nodes = list(self._cluster.nodes.values())
        running = [node for node in nodes if node.state is NodeState.RUNNING]
        controller = "kafka_controller_kafkacontroller_"
        yield single("kafka_brokers", "Nodes that run.", len(running))
        yield gauge(
            "kafka_broker_info",
            "A node that runs, with its advertised address.",
            ("id", "address"),
            [
                ((node.node_id, host_and_port(each.advertised_host, each.advertised_port)), 1)
                for node in running
                for each in node.listeners[:1]
            ],
        )
        yield gauge(
            "odradek_broker_state",
            "The state of a node, as the control port says it.",
            ("broker_id", "state"),
            [((node.node_id, node.shown_state), 1) for node in nodes],
        )
        for name, says, value in (
            ("activecontrollercount", "The controller, which is the process itself.", 1),
            ("activebrokercount", "Nodes that are not fenced.", len(running)),
            ("fencedbrokercount", "Nodes that are fenced: stopped or killed.", len(nodes) - len(running)),
            ("globaltopiccount", "Topics.", len(partitions.by_topic)),
            ("globalpartitioncount", "Partitions.", partitions.total),
            ("offlinepartitionscount", "Partitions without a leader.", partitions.offline),
        ):
            yield single(controller + name, says, value)
        for name, key, says in (
            ("leadercount", "leads", "Partitions that a node leads."),
            ("partitioncount", "partitions", "Partitions that a node has a replica of."),
            (
                "underreplicatedpartitions",
                "under_replicated",
                "Partitions that a node leads, and whose in-sync replicas are not all of its replicas.",
            ),
        ):
            yield gauge(
                f"kafka_server_replicamanager_{name}",
                says,
                ("broker_id",),
                [((node.node_id,), partitions.by_node[node.node_id][key]) for node in nodes],
            )
        yield gauge(
            "kafka_server_socket_server_metrics_connection_count",
            "Connections of clients.",
            ("broker_id",),
            [((node.node_id,), len(node.connections)) for node in running],
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

    # -- the process --------------------------------------------------------------------------------------------

    def _odradek(self) -> list[Family]:
        lag = self._cluster.lag
        rules = self._faults.list()
        return [
            single(
                "odradek_event_loop_lag_seconds",
                "How late the event loop was when it was last looked at.",
                lag.last_ms / 1000,
            ),
            single(
                "odradek_event_loop_lag_max_seconds",
                "The most that the event loop was late in the last minute.",
                lag.max_ms / 1000,
            ),
            single(
                "odradek_clock_ahead_seconds",
                "By how much the broker's clock has been advanced.",
                max(self._clock.offsets().values(), default=0) / 1000,
            ),
            counter(
                "odradek_fault_rule_hits",
                "Hits of the rules that inject faults.",
                ("rule",),
                [((rule.id,), rule.hits) for rule in rules],
            ),
        ]


_PARTITION_FAMILIES: Final[Mapping[str, str]] = {
    "kafka_topic_partition_leader": "The node that leads a partition; -1 without one.",
    "kafka_topic_partition_leader_is_preferred": "1 if the first of its replicas leads a partition.",
    "kafka_topic_partition_replicas": "Replicas of a partition.",
    "kafka_topic_partition_in_sync_replica": "In-sync replicas of a partition.",
    "kafka_topic_partition_under_replicated_partition": "1 if not all replicas of a partition are in sync.",
    "kafka_topic_partition_current_offset": "The high watermark of a partition.",
    "kafka_topic_partition_oldest_offset": "The log start offset of a partition.",
    "kafka_log_log_logstartoffset": "The log start offset of the leader's log.",
    "kafka_log_log_logendoffset": "The log end offset of the leader's log.",
    "kafka_log_log_numlogsegments": "Segments of the leader's log.",
    "kafka_log_log_size": "Bytes of the leader's log.",
    "odradek_partition_last_stable_offset": "The last stable offset: how far read_committed consumers may read.",
    "odradek_partition_last_stable_offset_lag": "Records from the last stable offset to the high watermark.",
    "odradek_partition_last_stable_offset_lag_seconds": "For how long the transaction has been open that holds the "
    "last stable offset; 0 if none does.",
}


def _of_partition(found: _Partitions, topic: str, state: PartitionState) -> None:
    place = (topic, state.index)
    under = len(state.isr) < len(state.replicas)
    for name, value in (
        ("leader", state.leader),
        ("leader_is_preferred", int(bool(state.replicas) and state.leader == state.replicas[0])),
        ("replicas", len(state.replicas)),
        ("in_sync_replica", len(state.isr)),
        ("under_replicated_partition", int(under)),
    ):
        found.rows[f"kafka_topic_partition_{name}"].append((place, value))


def _of_partitions(found: _Partitions) -> Iterator[Family]:
    yield gauge("kafka_topic_partitions", "Partitions of a topic.", ("topic",), _by_name(found.by_topic))
    yield single(
        "odradek_partitions_left_out",
        "Partitions that are not shown one by one.",
        max(0, found.total - PARTITIONS_MAX),
    )
    for name, says in _PARTITION_FAMILIES.items():
        yield gauge(name, says, BY_PARTITION, found.rows[name])


def _by_name(counts: Mapping[str, int]) -> Iterator[tuple[tuple[Any, ...], float]]:
    for name, count in counts.items():
        yield (name,), count
