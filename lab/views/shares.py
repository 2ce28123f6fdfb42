"""The partitions of share groups, as their leaders have them in memory (KIP-932). Imported with the first share group."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from broker.clock import Domain
from broker.cluster import Cluster
from broker.groups.share.group import ShareGroup
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.node import Node
from broker.share.manager import ManagedSharePartition
from broker.share.partition import InFlight
from broker.share.state import RecordState, SharePartitionKey, StoredState
from lab.views.forms import RecordRange, SharePartitionSummary
from lab.views.led import any_running, led
from lab.views.ports import OFFSETS_OF_GROUP_MAX, RANGES_MAX

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group


def share_partitions(cluster: Cluster, group: Group) -> list[SharePartitionSummary]:
    """Summaries of the initialized partitions of a share group, by topic and partition."""
    assert isinstance(group, ShareGroup)
    places = sorted(
        (name, index) for name, indexes in group.partitions.initialized.values() for index in indexes
    )
    return [_summary(cluster, group.group_id, *place) for place in places[:OFFSETS_OF_GROUP_MAX]]


def _summary(cluster: Cluster, group_id: str, topic: str, index: int) -> SharePartitionSummary:
    found, stored, replica = (
        managed_at(cluster, group_id, topic, index),
        stored_state(cluster, group_id, topic, index),
        led(cluster, topic, index),
    )
    if found is None:
        start, count = (-1, -1) if stored is None else (stored.start_offset, stored.delivery_complete_count)
        summary = SharePartitionSummary(topic=topic, partition=index)
    else:
        node, managed = found
        start, count = managed.state.start_offset, managed.state.delivery_complete_count
        summary = SharePartitionSummary(
            topic=topic,
            partition=index,
            is_loaded=True,
            end_offset=managed.state.end_offset,
            records=records_by_state(managed),
            in_flight=[record_range(node, each) for each in islice(managed.state.in_flight(), RANGES_MAX)],
        )
    summary.start_offset = None if start < 0 else start
    summary.delivery_complete_count = None if count < 0 else count
    if replica is not None and start >= 0 and count >= 0:
        summary.lag = replica.high_watermark - start - count
    return summary


def managed_at(
    cluster: Cluster, group_id: str, topic: str, index: int
) -> tuple[Node, ManagedSharePartition] | None:
    """The leader, and the share partition in its memory; None if it is not loaded there."""
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    node = None if state is None else cluster.running(state.leader)
    if known is None or node is None:
        return None
    managed = node.share.loaded().get(SharePartitionKey(group_id, known.topic_id, index))
    return None if managed is None or not managed.is_active else (node, managed)


def coordinated_at(
    cluster: Cluster, group_id: str, topic: str, index: int
) -> tuple[SharePartitionKey, int] | None:
    """The key of a share partition, and the partition of ``__share_group_state`` that has its state; None if not known."""
    known, running = cluster.metadata.topic(topic), any_running(cluster)
    if known is None or running is None:
        return None
    key = SharePartitionKey(group_id, known.topic_id, index)
    return key, running.share_coordinator.partition_for(key.coordinator_key)


def stored_state(cluster: Cluster, group_id: str, topic: str, index: int) -> StoredState | None:
    """The state of a share partition at its share coordinator; None if it has none, or if the coordinator is not loaded."""
    at, states = coordinated_at(cluster, group_id, topic, index), cluster.metadata.topic(SHARE_GROUP_STATE)
    home = None if at is None or states is None else states.partition(at[1])
    node = None if home is None else cluster.running(home.leader)
    return None if at is None or node is None else node.share_coordinator.stored(at[0])


def records_by_state(managed: ManagedSharePartition) -> dict[str, int]:
    """Number of records in flight by state."""
    counts: Counter[RecordState] = Counter()
    for each in managed.state.in_flight():
        counts[each.state] += each.last_offset - each.first_offset + 1
    return {state.name.capitalize(): counts[state] for state in RecordState if counts[state]}


def record_range(leader: Node, each: InFlight) -> RecordRange:
    """A range in flight. The rest of its lock is measured by the clock of the leader."""
    now_ms = leader.clock.now_ms(Domain.GROUPS)
    return RecordRange(
        first_offset=each.first_offset,
        last_offset=each.last_offset,
        state=each.state.name.capitalize(),
        delivery_count=each.delivery_count,
        member_id=each.member_id or None,
        lock_ms=None if each.lock_expires_ms is None else round(each.lock_expires_ms - now_ms),
        in_transition=each.in_transition,
        former_member_id=each.former_member_id or None,
        ending=None if each.ending is None else each.ending.value,
    )
