"""Collects the facts of a transactional id from the nodes of this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from broker.cluster import Cluster
from broker.metadata.topics import TRANSACTION_STATE
from broker.transactions.transaction import SETTLED, TransactionState
from lab.explain.facts import IdFacts, PartitionFacts, StateStep
from lab.trace.reading import states
from lab.trace.timeline_records import StateRecord
from lab.views.explaining.partitions import home_facts, partition_facts
from lab.views.explaining.transactions import (
    Coordinated,
    Owners,
    Place,
    coordinated,
    home_of,
    transaction_facts,
)
from lab.views.led import any_running, first_open_offset, led_partitions, node_id_of
from lab.views.turns import in_turns

HISTORY_MAX: Final = 20
"""Maximum number of a transactional id's newest states that are shown."""
HISTORY_OFFSETS_MAX: Final = 20_000
"""Largest number of offsets of ``__transaction_state`` that are read to find the states of a transactional id."""
PLACES_MAX: Final = 100
PER_TURN: Final = 1000


async def history(cluster: Cluster, transactional_id: str) -> tuple[StateStep, ...] | None:
    """The newest states of a transactional id in ``__transaction_state``, the oldest first; None if it was not read."""
    found = await states(cluster.running_nodes(), transactional_id, HISTORY_OFFSETS_MAX)
    if found is None:
        return None
    return tuple(_steps(found[-HISTORY_MAX:]))


def producers(at: Coordinated | None, steps: Collection[StateStep]) -> frozenset[int]:
    """The producer ids that a transactional id has had, as far as is known."""
    found = {each.producer_id for each in steps}
    if at is not None and at.entry is not None:
        found |= {at.entry.txn.producer_id, at.entry.txn.previous_producer_id}
    return frozenset(found - {-1})


async def open_places(cluster: Cluster, producer_ids: Collection[int]) -> tuple[Place, ...]:
    """The partitions in which one of these producers has an open transaction."""
    found = [
        (partition.topic, partition.index)
        async for partition in in_turns(led_partitions(cluster), PER_TURN)
        if any(first_open_offset(partition, producer_id) is not None for producer_id in producer_ids)
    ]
    return tuple(sorted(found)[:PLACES_MAX])


def places_of(at: Coordinated | None) -> tuple[Place, ...]:
    """The partitions of the current transaction, or if it is decided, those whose markers are not written yet."""
    if at is None or at.entry is None or at.entry.txn.state in SETTLED:
        return ()
    return tuple(islice(sorted(at.entry.unmarked), PLACES_MAX))


def id_facts(
    cluster: Cluster,
    owners: Owners,
    transactional_id: str,
    steps: tuple[StateStep, ...] | None,
    suspects: Iterable[Place],
) -> IdFacts:
    """The facts of a transactional id in this turn of the event loop.

    The facts include the partitions of the id's transaction, and those of ``suspects`` in which one of its producers
    has an open transaction.
    """
    at = coordinated(cluster, transactional_id)
    mine = producers(at, steps or ())
    own = places_of(at)
    index = home_of(cluster, transactional_id)
    return IdFacts(
        transactional_id=transactional_id,
        state_partition=f"{TRANSACTION_STATE}-{index}",
        # Before the topic exists, no id has been used, and any node could coordinate it.
        coordinator=node_id_of(any_running(cluster)) if at is None else at.leader,
        coordinator_error=None if at is None or at.error is None else at.error.name.upper(),
        transaction=None
        if at is None or at.entry is None or at.node is None
        else transaction_facts(at.entry, at.node),
        history=steps,
        places=tuple(_places(cluster, owners, own, suspects, mine)),
        home=home_facts(cluster, TRANSACTION_STATE, index),
    )


def _places(
    cluster: Cluster, owners: Owners, own: Collection[Place], suspects: Iterable[Place], mine: Collection[int]
) -> Iterator[PartitionFacts]:
    for place in dict.fromkeys((*own, *suspects)):
        facts = partition_facts(cluster, owners, *place)
        if facts is not None and (place in own or any(each.producer_id in mine for each in facts.open)):
            yield facts


def _steps(records: Iterable[StateRecord]) -> Iterator[StateStep]:
    for record in records:
        value = record.value
        if value is not None:
            yield StateStep(
                time_ms=value.transaction_last_update_timestamp_ms,
                state=TransactionState(value.transaction_status).wire_name,
                producer_id=value.producer_id,
                producer_epoch=value.producer_epoch,
                timeout_ms=value.transaction_timeout_ms,
                start_ms=value.transaction_start_timestamp_ms,
                partitions=tuple(f"{topic}-{index}" for topic, index in sorted(record.partitions)),
                version_2=value.client_transaction_version >= 2,
            )
