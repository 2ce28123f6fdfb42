"""Collects the facts of transactional ids from the coordinators of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from broker.clock import Domain
from broker.cluster import Cluster
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.topics import TRANSACTION_STATE
from broker.metadata.values import NO_LEADER, PartitionState
from broker.node import Node
from broker.replicas.partition import Partition
from broker.transactions.entry import Entry
from broker.transactions.loaded import has_loaded
from broker.transactions.transaction import PREPARED, SETTLED, Transaction, TransactionState
from lab.explain.facts import TransactionFacts
from lab.views.led import any_running
from lab.views.turns import in_turns
from protocol.errors import ErrorCode
from protocol.hashing import partition_for
from protocol.slotted import slotted

PER_TURN: Final = 2000
PARTITIONS_NAMED_MAX: Final = 200
"""Largest number of partitions of one transaction that are listed."""
LOOKS_MAX: Final = 3
UNSERVED_MAX: Final = 3
DECIDED: Final = frozenset({*PREPARED, TransactionState.PREPARE_EPOCH_FENCE})

Place = tuple[str, int]


@slotted(frozen=True)
class Coordinated:
    """The coordinator of a transactional id, and its state of the id in this turn of the event loop."""

    state_partition: int
    leader: int | None
    node: Node | None
    """The node that leads the transactional id's partition of ``__transaction_state``; None if it is not running."""
    entry: Entry | None
    error: ErrorCode | None
    """The error with which the coordinator responds in place of the state (not available, loading); else None."""


def home_of(cluster: Cluster, transactional_id: str) -> int:
    """The partition of ``__transaction_state`` that stores the transactional id."""
    node = any_running(cluster)
    if node is not None:
        return node.transactions.partition_for(transactional_id)
    count = coordinator_partitions(TRANSACTION_STATE, cluster.metadata.topic, cluster.first.config)
    return partition_for(transactional_id, count)


def coordinated(cluster: Cluster, transactional_id: str) -> Coordinated | None:
    """The coordinator's state of a transactional id; None if no id was ever used, so that the topic does not exist."""
    topic = cluster.metadata.topic(TRANSACTION_STATE)
    if topic is None:
        return None
    index = home_of(cluster, transactional_id)
    state = topic.partition(index)
    leader = None if state is None or state.leader == NO_LEADER else state.leader
    node = None if leader is None else cluster.running(leader)
    if node is None:
        return Coordinated(index, leader, None, None, ErrorCode.coordinator_not_available)
    found = node.transactions.find(transactional_id)
    if isinstance(found, Entry):
        return Coordinated(index, leader, node, found, None)
    return Coordinated(
        index, leader, node, None, None if found is ErrorCode.transactional_id_not_found else found
    )


def transaction_facts(entry: Entry, node: Node) -> TransactionFacts:
    """The committed state of a transactional id. Each age is by the clock domain in which it counts."""
    txn, clock = entry.txn, node.clock
    is_decided = txn.state in DECIDED
    is_open = txn.state not in SETTLED
    places = sorted(entry.unmarked if is_decided else txn.partitions)
    return TransactionFacts(
        transactional_id=txn.transactional_id,
        state=txn.state.wire_name,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        coordinator=node.node_id,
        timeout_ms=txn.timeout_ms,
        open_ms=clock.now_for(txn.start_ms, Domain.TRANSACTIONS) - txn.start_ms if is_open else None,
        decided_ms=clock.now_for(txn.last_update_ms, Domain.REQUESTS) - txn.last_update_ms
        if is_decided
        else None,
        partitions=tuple(f"{topic}-{index}" for topic, index in places[:PARTITIONS_NAMED_MAX]),
    )


@slotted(frozen=True)
class Owners:
    """The transactional ids of producers, which were collected in earlier turns of the event loop.

    `facts` reads the present state of a transactional id.
    """

    by_producer: Mapping[int, str]
    asked: frozenset[int]

    def facts(self, cluster: Cluster, producer_id: int) -> TransactionFacts | None:
        """The current state of the transactional id that has this producer id; None if no coordinator knows such an
        id.
        """
        transactional_id = self.by_producer.get(producer_id)
        found = None if transactional_id is None else coordinated(cluster, transactional_id)
        if found is None or found.node is None or found.entry is None:
            return None
        txn = found.entry.txn
        if producer_id not in (txn.producer_id, txn.previous_producer_id):
            return None
        return transaction_facts(found.entry, found.node)


async def owners_of(cluster: Cluster, producers: Callable[[], frozenset[int]]) -> Owners:
    """The transactional ids of the producers that ``producers()`` returns, found by a walk over all coordinators.

    The walk is repeated if ``producers()`` then returns further producers, up to ``LOOKS_MAX`` times. The ids of
    producers that are new after the last walk are not known.
    """
    asked = now = producers()
    found: dict[int, str] = {}
    for _ in range(LOOKS_MAX):
        asked |= now
        found = {
            producer_id: txn.transactional_id
            async for txn in in_turns(known(cluster), PER_TURN)
            for producer_id in (txn.previous_producer_id, txn.producer_id)
            if producer_id in asked
        }
        now = producers()
        if now <= asked:
            break
    return Owners(found, asked)


def all_serve(cluster: Cluster) -> bool:
    """Whether each partition of ``__transaction_state`` has a coordinator that has loaded it, so that all ids are known."""
    return next(_unserved(cluster), None) is None


def unserved(cluster: Cluster) -> tuple[str, ...]:
    """Sentences that name the partitions of ``__transaction_state`` whose ids are not known now, and why."""
    return tuple(
        f"The transactional ids of {TRANSACTION_STATE}-{state.index} are not known: "
        + ("it has no leader." if state.leader == NO_LEADER else f"node {state.leader} has not loaded it.")
        for state in islice(_unserved(cluster), UNSERVED_MAX)
    )


def _unserved(cluster: Cluster) -> Iterator[PartitionState]:
    topic = cluster.metadata.topic(TRANSACTION_STATE)
    for state in topic.partitions if topic is not None else ():
        node = cluster.running(state.leader)
        if node is None or not (has_loaded(node.transactions, state.index) or _is_empty(node, state.index)):
            yield state


def _is_empty(node: Node, index: int) -> bool:
    """Whether this partition of ``__transaction_state`` has no ids: it is loaded when a client uses the first one."""
    partition = node.replicas.leader(TRANSACTION_STATE, index)
    return isinstance(partition, Partition) and partition.log_end_offset == 0


def known(cluster: Cluster) -> Iterator[Transaction]:
    """The state of every transactional id at its coordinator. Ids may be created and deleted during the iteration."""
    for node in cluster.running_nodes():
        yield from node.transactions.known()
