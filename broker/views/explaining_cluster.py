"""What could be wrong anywhere in the cluster of this process, for explanations: bounded, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

from broker.cluster import Cluster
from broker.explain.facts import ClusterFacts, GroupFacts, MemberFacts
from broker.groups.consumer.group import ConsumerGroupState
from broker.groups.group import ClassicGroupState
from broker.metadata.topics import is_internal
from broker.metadata.values import NO_LEADER
from broker.replicas.partition import Partition
from broker.transactions.transaction import SETTLED
from broker.views.explaining_groups import LastFetches, group_facts
from broker.views.explaining_partitions import partition_facts
from broker.views.explaining_transactions import Owners, Place, coordinated, known, transaction_facts
from broker.views.turns import in_turns
from protocol.slotted import slotted

PARTITIONS_MAX: Final = 5
"""With one kind of trouble: a node that is away has it with each partition that it leads. Those of users come first."""
TRANSACTIONS_MAX: Final = 20
GROUPS_MAX: Final = 20
PER_TURN: Final = 500
GROUPS_PER_TURN: Final = 50
REBALANCING: Final = frozenset(
    {
        ClassicGroupState.PREPARING_REBALANCE,
        ClassicGroupState.COMPLETING_REBALANCE,
        ConsumerGroupState.ASSIGNING,
        ConsumerGroupState.RECONCILING,
    }
)
NO_LEADER_RANK, OFFLINE_RANK, MIN_ISR_RANK, OPEN_RANK = range(4)


@slotted(frozen=True)
class Suspects:
    """What the walks have found; what is still so is looked at in one turn."""

    partitions: tuple[Place, ...]
    transactional_ids: tuple[str, ...]
    groups: tuple[str, ...]
    left_out: int


async def suspects(cluster: Cluster) -> Suspects:
    """Walk over all partitions, transactions and groups, in slices."""
    partitions = [each async for each in in_turns(_partitions(cluster), PER_TURN) if each is not None]
    open_ids = [
        (txn.start_ms, txn.transactional_id)
        async for txn in in_turns(known(cluster), PER_TURN)
        if txn.state not in SETTLED
    ]
    groups = [each async for each in in_turns(_groups(cluster), GROUPS_PER_TURN) if each is not None]
    shown = tuple(
        place
        for rank in (NO_LEADER_RANK, OFFLINE_RANK, MIN_ISR_RANK, OPEN_RANK)
        for place in nsmallest(PARTITIONS_MAX, (at for of, at in partitions if of == rank), key=_order)
    )
    return Suspects(
        shown,
        tuple(each for _, each in nsmallest(TRANSACTIONS_MAX, open_ids)),
        tuple(nsmallest(GROUPS_MAX, groups)),
        len(partitions)
        - len(shown)
        + max(0, len(open_ids) - TRANSACTIONS_MAX)
        + max(0, len(groups) - GROUPS_MAX),
    )


def cluster_facts(cluster: Cluster, owners: Owners, fetched: LastFetches, found: Suspects) -> ClusterFacts:
    """What is so in this turn of the loop."""
    places = (partition_facts(cluster, owners, *place) for place in found.partitions)
    at = (coordinated(cluster, each) for each in found.transactional_ids)
    groups = (group_facts(cluster, None, fetched, each) for each in found.groups)
    return ClusterFacts(
        partitions=tuple(each for each in places if each is not None),
        transactions=tuple(
            transaction_facts(each.entry, each.node)
            for each in at
            if each is not None and each.entry is not None and each.node is not None
            if each.entry.txn.state not in SETTLED
        ),
        groups=tuple(each for each in groups if _waits(each)),
        ahead_ms=max(cluster.clock.offsets().values(), default=0),
        left_out=found.left_out,
    )


def _partitions(cluster: Cluster) -> Iterator[tuple[int, Place] | None]:
    """The rank and the place of each partition that may be in trouble, and None for each that is not."""
    for topic in tuple(cluster.metadata.topics.values()):
        for state in tuple(topic.partitions):
            yield (NO_LEADER_RANK, (topic.name, state.index)) if state.leader == NO_LEADER else None
    for node in cluster.running_nodes():
        for partition in node.replicas.opened():
            rank = _rank(partition) if partition.leader_id == node.node_id else None
            yield None if rank is None else (rank, (partition.topic, partition.index))


def _order(place: Place) -> tuple[bool, Place]:
    return is_internal(place[0]), place


def _rank(partition: Partition) -> int | None:
    if partition.offline is not None:
        return OFFLINE_RANK
    if not partition.has_enough_replicas():
        return MIN_ISR_RANK
    return OPEN_RANK if next(partition.log.producers.open_transactions(), None) is not None else None


def _groups(cluster: Cluster) -> Iterator[str | None]:
    """Each group that rebalances, or has a member without heartbeats; None for each of the others."""
    for node in cluster.running_nodes():
        for group, _ in node.groups.known():
            yield group.group_id if _waits(group_facts(cluster, None, {}, group.group_id)) else None


def _waits(group: GroupFacts) -> bool:
    return group.state in REBALANCING or any(map(_is_silent, group.members))


def _is_silent(member: MemberFacts) -> bool:
    """Its coordinator has not heard of it for half its session."""
    return (
        member.heartbeat_ms is not None
        and member.session_timeout_ms is not None
        and member.heartbeat_ms * 2 > member.session_timeout_ms
    )
