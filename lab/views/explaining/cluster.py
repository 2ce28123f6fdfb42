"""Finds partitions, transactions and groups that may have a problem: a limited number, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Final

from broker.clock import Domain
from broker.cluster import Cluster
from broker.groups.consumer.group import ConsumerGroupState
from broker.groups.group import ClassicGroupState
from broker.metadata.topics import is_internal
from broker.metadata.values import NO_LEADER
from broker.replicas.partition import Partition
from broker.transactions.transaction import SETTLED
from lab.explain.cluster import YOUNG_MS
from lab.explain.facts import ClusterFacts, GroupFacts, MemberFacts
from lab.views.explaining.groups import LastFetches, group_facts
from lab.views.explaining.partitions import OPEN_MAX, partition_facts
from lab.views.explaining.transactions import DECIDED, Owners, Place, coordinated, known, transaction_facts
from lab.views.turns import in_turns
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

PARTITIONS_MAX: Final = 5
"""Largest number of partitions shown with one kind of problem: a killed node affects many."""
TRANSACTIONS_MAX: Final = 20
GROUPS_MAX: Final = 20
IDLE_MS: Final = 10_000
"""Milliseconds without a record after which ``left_out`` counts an open transaction that is not shown."""
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
    """Partitions, transactions and groups that may have a problem.

    All are read again in one turn of the event loop, since they may have changed during the walk over the cluster."""

    partitions: tuple[Place, ...]
    transactional_ids: tuple[str, ...]
    groups: tuple[str, ...]
    left_out: int


async def suspects(cluster: Cluster) -> Suspects:
    """Find the partitions, transactions and groups that may have a problem, by a walk over all, in slices."""
    partitions = [each async for each in in_turns(_partitions(cluster), PER_TURN) if each is not None]
    # Skip young transactions: under load there are hundreds that are about to end.
    now_for = cluster.clock.now_for
    open_ids = [
        (txn.start_ms, txn.transactional_id)
        async for txn in in_turns(known(cluster), PER_TURN)
        if txn.state not in SETTLED
        if not 0 <= now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms < YOUNG_MS
    ]
    groups = [each async for each in in_turns(_groups(cluster), GROUPS_PER_TURN) if each is not None]
    shown = [
        each
        for rank in (NO_LEADER_RANK, OFFLINE_RANK, MIN_ISR_RANK, OPEN_RANK)
        for each in nsmallest(PARTITIONS_MAX, (each for each in partitions if each.rank == rank), key=_order)
    ]
    idle_since_ms = cluster.clock.now_ms() - IDLE_MS
    ids = tuple(each for _, each in nsmallest(TRANSACTIONS_MAX, open_ids))
    return Suspects(
        tuple(dict.fromkeys([*(each.place for each in shown), *_unmarked(cluster, ids)])),
        ids,
        tuple(nsmallest(GROUPS_MAX, groups)),
        sum(each.last_ms < idle_since_ms for each in partitions)
        - sum(each.last_ms < idle_since_ms for each in shown)
        + max(0, len(open_ids) - TRANSACTIONS_MAX)
        + max(0, len(groups) - GROUPS_MAX),
    )


def cluster_facts(cluster: Cluster, owners: Owners, fetched: LastFetches, found: Suspects) -> ClusterFacts:
    """The facts of the suspects ``found``, as they are in this turn of the event loop."""
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


def _unmarked(cluster: Cluster, transactional_ids: Iterable[str]) -> Iterator[Place]:
    """The partitions of decided transactions for whose markers the coordinator still waits.

    They include partitions in which ``odradek txn`` has written the marker: the coordinator does not see such a
    marker.
    """
    for at in (coordinated(cluster, each) for each in transactional_ids):
        if at is not None and at.entry is not None and at.entry.txn.state in DECIDED:
            yield from nsmallest(PARTITIONS_MAX, at.entry.unmarked)


class Suspect(NamedTuple):
    """A partition that may have a problem."""

    rank: int
    last_ms: int
    """For an open transaction, the timestamp of its producer's last record (the oldest if there are several), else 0."""
    place: Place


def _partitions(cluster: Cluster) -> Iterator[Suspect | None]:
    """Yield a `Suspect` for each partition that may have a problem, and None for each healthy one.

    `in_turns` counts the elements, also None, to limit how many partitions are checked in one turn of the event loop.
    """
    for topic in tuple(cluster.metadata.topics.values()):
        for state in tuple(topic.partitions):
            place = (topic.name, state.index)
            yield Suspect(NO_LEADER_RANK, 0, place) if state.leader == NO_LEADER else None
    for node in cluster.running_nodes():
        for partition in node.replicas.opened():
            yield _suspect(partition) if partition.leader_id == node.node_id else None


def _order(suspect: Suspect) -> tuple[int, bool, Place]:
    """Sort key: the partition whose transaction has been idle longest comes first, since it is most likely stuck."""
    return suspect.last_ms, is_internal(suspect.place[0]), suspect.place


def _suspect(partition: Partition) -> Suspect | None:
    place = (partition.topic, partition.index)
    if partition.offline is not None:
        return Suspect(OFFLINE_RANK, 0, place)
    if not partition.has_enough_replicas():
        return Suspect(MIN_ISR_RANK, 0, place)
    producers = partition.log.producers
    ids = islice(producers.open_transactions(), OPEN_MAX)
    last_ms = min((producers.entries[each].last_timestamp_ms for _, each in ids), default=None)
    return None if last_ms is None else Suspect(OPEN_RANK, last_ms, place)


def _groups(cluster: Cluster) -> Iterator[str | None]:
    """Yield the id of each group that rebalances, or has a member without heartbeats, and None for each other group.

    `in_turns` counts the elements, also None, to limit how many groups are checked in one turn of the event loop.
    """
    for node in cluster.running_nodes():
        for group, _ in node.groups.known():
            yield group.group_id if _waits(group_facts(cluster, None, {}, group.group_id)) else None


def _waits(group: GroupFacts) -> bool:
    return group.state in REBALANCING or any(map(_is_silent, group.members))


def _is_silent(member: MemberFacts) -> bool:
    """Whether the coordinator has had no heartbeat of the member for half the session timeout."""
    return (
        member.silent_ms is not None
        and member.session_timeout_ms is not None
        and member.silent_ms * 2 > member.session_timeout_ms
    )
