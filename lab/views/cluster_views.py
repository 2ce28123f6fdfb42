"""The summaries for the web page, read from the nodes of this process."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.cluster.addresses import bootstrap_servers, host_and_port
from broker.cluster.runtime import NodeRuntime, NodeState
from broker.metadata.topics import is_internal
from broker.metadata.values import NO_LEADER, PartitionState
from broker.transactions.transaction import Transaction
from lab.trace.trace import Trace
from lab.views import batches as batches_of
from lab.views import groups as groups_of
from lab.views import transactions as transactions_of
from lab.views.forms import (
    BatchesPiece,
    ClusterSummary,
    GroupsSummary,
    NodeSummary,
    OpenTransaction,
    PartitionsSummary,
    PartitionSummary,
    TransactionsSummary,
)
from lab.views.led import led
from lab.views.ports import OPEN_OF_PARTITION_MAX, PARTITIONS_MAX, BatchPosition
from lab.views.turns import in_turns
from storage.files import StorageError

PARTITIONS_PER_TURN: Final = 10
"""Number of partitions read in one turn of the event loop, because the first access to a partition opens its log."""


class ClusterViews:
    """The implementation of `lab.views.ports.Views` for the nodes of this process."""

    def __init__(self, cluster: Cluster, clock: VirtualClock, trace: Trace) -> None:
        self._cluster = cluster
        self._clock = clock
        self._trace = trace

    async def cluster(self) -> ClusterSummary:
        cluster = self._cluster
        leads: dict[int, int] = {}
        replicas: dict[int, int] = {}
        total = 0
        for topic in tuple(cluster.metadata.topics.values()):
            async for state in in_turns(tuple(topic.partitions), 1000):
                total += 1
                leads[state.leader] = leads.get(state.leader, 0) + 1
                for node_id in state.replicas:
                    replicas[node_id] = replicas.get(node_id, 0) + 1
        return ClusterSummary(
            product="broker",
            cluster_id=cluster.metadata.cluster_id,
            bootstrap_servers=bootstrap_servers(cluster.nodes.values()),
            now_ms=self._clock.now_ms(),
            ahead_ms=max(self._clock.offsets().values(), default=0),
            topics=len(cluster.metadata.topics),
            partitions=total,
            trace=self._trace.running,
            loop_lag_ms=round(cluster.lag.max_ms, 1),
            nodes=[
                _node(
                    node,
                    leads.get(node.node_id, 0),
                    replicas.get(node.node_id, 0),
                    cluster.misroutes.get(node.node_id),
                )
                for node in cluster.nodes.values()
            ],
        )

    async def transactions(self) -> TransactionsSummary:
        return await transactions_of.transactions(self._cluster)

    async def partitions(self, topic: str | None, first: int, count: int) -> PartitionsSummary:
        metadata = self._cluster.metadata
        topics = (
            [metadata.topic(topic)]
            if topic is not None
            else map(metadata.topics.get, sorted(metadata.topics))
        )
        chosen = [
            each for each in topics if each is not None and (topic is not None or not is_internal(each.name))
        ]
        places = [(each.name, state) for each in chosen for state in each.partitions]
        shown = places[first : first + min(count, PARTITIONS_MAX)]
        owners = await transactions_of.owners(self._cluster)
        found = [
            self._partition(name, state, owners) async for name, state in in_turns(shown, PARTITIONS_PER_TURN)
        ]
        return PartitionsSummary(total=len(places), first=first, partitions=found)

    async def groups(self) -> GroupsSummary:
        return await groups_of.groups(self._cluster)

    async def batches(self, position: BatchPosition) -> BatchesPiece | None:
        partition = led(self._cluster, position.topic, position.partition)
        if partition is None:
            return None
        try:
            return batches_of.newer(partition, position)
        except StorageError:
            return None  # the log reports the failure, and the partition goes offline

    def _partition(
        self, topic: str, state: PartitionState, owners: Mapping[transactions_of.Place, Transaction]
    ) -> PartitionSummary:
        partition = led(self._cluster, topic, state.index)
        return PartitionSummary(
            topic=topic,
            partition=state.index,
            leader=None if state.leader == NO_LEADER else state.leader,
            replicas=list(state.replicas),
            isr=list(state.isr),
            log_start=None if partition is None else partition.log_start_offset,
            last_stable=None if partition is None else partition.last_stable_offset,
            high_watermark=None if partition is None else partition.high_watermark,
            log_end=None if partition is None else partition.log_end_offset,
            open=[]
            if partition is None
            else [
                OpenTransaction(
                    producer_id=producer_id,
                    producer_epoch=partition.log.producers.entries[producer_id].epoch,
                    first_offset=offset,
                    transactional_id=_id_of(owners.get((producer_id, topic, state.index))),
                )
                for offset, producer_id in islice(
                    partition.log.producers.open_transactions(), OPEN_OF_PARTITION_MAX
                )
            ],
        )


def _id_of(txn: Transaction | None) -> str | None:
    return None if txn is None else txn.transactional_id


def _node(node: NodeRuntime, leads: int, replicas: int, misrouted_to: int | None) -> NodeSummary:
    listener = node.listeners[0] if node.listeners else None
    return NodeSummary(
        node=node.node_id,
        state=node.shown_state,
        address="" if listener is None else host_and_port(listener.advertised_host, listener.advertised_port),
        leads=leads,
        replicas=replicas,
        connections=len(node.connections) if node.state is NodeState.RUNNING else 0,
        skew_ms=node.skew_ms,
        misrouted_to=misrouted_to,
    )
