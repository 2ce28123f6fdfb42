"""Collects the facts of share groups from the nodes of this process (KIP-932). Imported with the first share group."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from broker.cluster import Cluster
from broker.groups.share.group import ShareGroup
from broker.metadata.features import SHARE_VERSION
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.node import Node
from broker.share.dead_letters import Attempt
from broker.share.manager import DEAD_LETTERS_SINCE
from broker.share.partition import InFlight
from broker.share.settings import settings_of
from broker.share.state import RecordState
from lab.explain.facts import (
    DeadLetterFacts,
    InFlightFacts,
    PartitionFacts,
    ShareFacts,
    SharePartitionFacts,
    ShareSettingsFacts,
)
from lab.views.explaining.partitions import home_facts, partition_facts
from lab.views.explaining.transactions import Owners, Place
from lab.views.ports import OFFSETS_OF_GROUP_MAX, RANGES_MAX
from lab.views.shares import (
    coordinated_at,
    managed_at,
    record_range,
    records_by_state,
    stored_state,
)

if TYPE_CHECKING:
    from broker.config import BrokerConfig


def places(cluster: Cluster, group: ShareGroup) -> list[Place]:
    """The partitions of a share group, and those of the topics that its members subscribe to."""
    known = group.partitions
    found: set[Place] = set()
    for name, indexes in (*known.initialized.values(), *known.initializing.values()):
        found.update((name, index) for index in indexes)
    for name in group.subscriptions.topics:
        topic = cluster.metadata.topic(name)
        found.update((name, state.index) for state in (topic.partitions if topic is not None else ()))
    return sorted(found)


def share_facts(
    cluster: Cluster, owners: Owners, group: ShareGroup, config: BrokerConfig, only: Place | None = None
) -> ShareFacts:
    """The facts of a share group, or of its partition ``only``, in this turn of the event loop."""
    share_version = cluster.metadata.features.get(SHARE_VERSION, 0)
    settings = settings_of(config, cluster.metadata, group.group_id)
    found = places(cluster, group) if only is None else [only]
    shown = (_partition(cluster, owners, group, *place) for place in islice(found, OFFSETS_OF_GROUP_MAX))
    return ShareFacts(
        is_enabled=share_version >= 1,
        settings=ShareSettingsFacts(
            delivery_count_limit=settings.delivery_count_limit,
            partition_max_record_locks=settings.partition_max_record_locks,
            auto_offset_reset=settings.auto_offset_reset,
            read_committed=settings.read_committed,
            dead_letter_topic=settings.dead_letter_topic if share_version >= DEAD_LETTERS_SINCE else "",
        ),
        partitions=tuple(each for each in shown if each is not None),
        left_out=max(0, len(found) - OFFSETS_OF_GROUP_MAX),
    )


def _partition(
    cluster: Cluster, owners: Owners, group: ShareGroup, topic: str, index: int
) -> SharePartitionFacts | None:
    """The facts of one partition of a share group; None if the partition does not exist."""
    place = group.group_id, topic, index
    at, coordinated = partition_facts(cluster, owners, topic, index), coordinated_at(cluster, *place)
    if at is None:
        return None
    found, stored = managed_at(cluster, *place), stored_state(cluster, *place)
    facts = SharePartitionFacts(
        at=at,
        initialization=_initialization(cluster, group, at),
        is_loaded=None if at.high_watermark is None else found is not None,
        start_offset=None if stored is None else stored.start_offset,
        delivery_complete_count=None if stored is None else max(0, stored.delivery_complete_count),
        coordinator=None if coordinated is None else home_facts(cluster, SHARE_GROUP_STATE, coordinated[1]),
    )
    if found is None:
        return facts
    leader, managed = found
    partition = managed.state
    return replace(
        facts,
        start_offset=partition.start_offset,
        end_offset=partition.end_offset,
        delivery_complete_count=partition.delivery_complete_count,
        next_offset=partition.next_fetch_offset(),
        records=records_by_state(managed),
        in_flight=tuple(_in_flight(leader, each) for each in islice(partition.in_flight(), RANGES_MAX)),
        dead_letters=tuple(_dead_letters(each) for each in managed.attempts),
    )


def _initialization(cluster: Cluster, group: ShareGroup, at: PartitionFacts) -> str:
    topic, known = cluster.metadata.topic(at.topic), group.partitions
    for name, topics in (("initialized", known.initialized), ("initializing", known.initializing)):
        if topic is not None and topic.topic_id in topics and at.index in topics[topic.topic_id].partitions:
            return name
    return "not initialized"


def _in_flight(leader: Node, each: InFlight) -> InFlightFacts:
    form = record_range(leader, each)
    return InFlightFacts(
        first_offset=form.first_offset,
        last_offset=form.last_offset,
        state=form.state,
        delivery_count=form.delivery_count,
        member_id=each.member_id,
        lock_ms=form.lock_ms,
        in_transition=form.in_transition,
        former_member_id=each.former_member_id,
        ending=form.ending,
    )


def _dead_letters(each: Attempt) -> DeadLetterFacts:
    return DeadLetterFacts(
        first_offset=each.first_offset,
        last_offset=each.last_offset,
        written_to=each.written_to,
        written_offset=each.written_offset,
        failure=each.failure,
    )


def record_facts(
    cluster: Cluster, group_id: str, topic: str, index: int, offset: int
) -> InFlightFacts | None:
    """The state of one record in the leader's memory; if the share partition is not loaded, its stored state."""
    found = managed_at(cluster, group_id, topic, index)
    if found is not None:
        leader, managed = found
        each = managed.state.describe(offset)
        return None if each is None else _in_flight(leader, each)
    stored = stored_state(cluster, group_id, topic, index)
    for first, last, state, count in () if stored is None else stored.batches:
        if stored is not None and max(first, stored.start_offset) <= offset <= last:
            name = RecordState(state).name.capitalize()
            return InFlightFacts(first_offset=first, last_offset=last, state=name, delivery_count=count)
    return None
