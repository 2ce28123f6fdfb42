"""Collects the facts of groups from the coordinators of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain
from broker.cluster import Cluster
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer_settings import settings_of
from broker.groups.effects import Timed, Timer
from broker.groups.group import NO_TIMESTAMP, ClassicGroup, ClassicGroupState
from broker.groups.members import Member
from broker.groups.shard import GroupShard
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.metadata.values import NO_LEADER
from broker.node import Node
from lab.explain.facts import GroupFacts, GroupOffsetFacts, MemberFacts
from lab.trace.trace import Trace
from lab.views.explaining.content import content
from lab.views.explaining.partitions import home_facts, partition_facts, replica_at_leader, with_tail
from lab.views.explaining.transactions import Owners, Place
from lab.views.led import any_running, node_id_of
from lab.views.ports import OFFSETS_OF_GROUP_MAX
from protocol.errors import ErrorCode
from protocol.hashing import partition_for
from protocol.records.consumer_protocol import Assignment
from protocol.schema import MalformedRecord
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.groups.coordinator_state import Group
    from broker.groups.share.member import ShareGroupMember

MEMBERS_MAX: Final = 200
ASSIGNED_MAX: Final = 200
"""Largest number of partitions listed for one member."""
BATCHES_OF_PARTITION_MAX: Final = 2000
BATCHES_OF_GROUP_MAX: Final = 20_000
"""Largest number of batches whose records are counted after a group's committed offsets."""
FETCHES: Final = (1, 78)
"""Keys of Fetch and ShareFetch."""

LastFetches = Mapping[tuple[str | None, str], int]
"""Time of the newest Fetch, by client id and host."""


def home_of(cluster: Cluster, group_id: str) -> tuple[int, Node | None, int | None]:
    """(partition of ``__consumer_offsets`` for a group, its leader if it is running, the leader's id if there is one)."""
    running = any_running(cluster)
    if running is not None:
        index = running.groups.partition_for(group_id)
    else:
        count = coordinator_partitions(CONSUMER_OFFSETS, cluster.metadata.topic, cluster.first.config)
        index = partition_for(group_id, count)
    topic = cluster.metadata.topic(CONSUMER_OFFSETS)
    state = topic.partition(index) if topic is not None else None
    leader = None if state is None or state.leader == NO_LEADER else state.leader
    return index, None if leader is None else cluster.running(leader), leader


def shard_of(cluster: Cluster, group_id: str) -> GroupShard | ErrorCode | None:
    """The group's shard, or the error of its coordinator; None while there is no ``__consumer_offsets``."""
    if cluster.metadata.topic(CONSUMER_OFFSETS) is None:
        return None
    _, node, _ = home_of(cluster, group_id)
    return ErrorCode.coordinator_not_available if node is None else node.groups.shard_of(group_id)


def names(cluster: Cluster) -> Iterator[str]:
    """The ids of all groups. Groups may be created and deleted during the iteration."""
    for node in cluster.running_nodes():
        yield from (group.group_id for group, _ in node.groups.known())


def spots(cluster: Cluster, group_id: str) -> list[Place]:
    """Partitions with a committed or pending offset of the group, and those assigned to its members."""
    shard = shard_of(cluster, group_id)
    return _spots(cluster, shard, group_id) if isinstance(shard, GroupShard) else []


def _spots(cluster: Cluster, shard: GroupShard, group_id: str) -> list[Place]:
    found = set(shard.state.offsets.all_spots(group_id))
    group = shard.state.group(group_id)
    if group is not None:
        for member in _members(cluster, shard, group, {}):
            found.update(map(_place, member.assigned))
        if group.type == "share":
            found.update(_shares().places(cluster, group))
    return sorted(found)


def _place(name: str) -> Place:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def pending_producers(cluster: Cluster, group_id: str) -> frozenset[int]:
    """The producers whose open transactions will commit an offset of the group."""
    shard = shard_of(cluster, group_id)
    if not isinstance(shard, GroupShard):
        return frozenset()
    offsets = shard.state.offsets
    return frozenset().union(*(offsets.pending_of(group_id, spot) for spot in offsets.all_spots(group_id)))


def _shares() -> ModuleType:
    """The part for share groups, imported with the first of them."""
    from lab.views.explaining import shares

    return shares


def group_facts(
    cluster: Cluster,
    owners: Owners | None,
    fetched: LastFetches,
    group_id: str,
    share_partition: Place | None = None,
) -> GroupFacts:
    """The facts of a group in this turn of the event loop. If ``owners`` is None, the group's offsets are left out.

    With ``share_partition``, of a share group only this partition is read.
    """
    index, _, leader = home_of(cluster, group_id)
    shard = shard_of(cluster, group_id)
    facts = GroupFacts(
        group=group_id,
        offsets_partition=f"{CONSUMER_OFFSETS}-{index}",
        # Before the topic exists, no group has been used, and any node could coordinate it.
        coordinator=node_id_of(any_running(cluster)) if shard is None else leader,
        home=home_facts(cluster, CONSUMER_OFFSETS, index),
    )
    if not isinstance(shard, GroupShard):
        return facts if shard is None else replace(facts, coordinator_error=shard.name.upper())
    group = shard.state.group(group_id)
    if group is None:
        return facts
    return replace(
        facts,
        type=group.type,
        state=group.state.value,
        state_ms=_state_ms(group, shard.clock),
        members=tuple(_members(cluster, shard, group, fetched)),
        offsets=()
        if owners is None or group.type == "share"
        else tuple(_offsets(cluster, owners, shard, group_id)),
        share=_shares().share_facts(cluster, owners, group, shard.config(), share_partition)
        if owners is not None and group.type == "share"
        else None,
    )


async def with_content(cluster: Cluster, facts: GroupFacts) -> GroupFacts:
    """The facts, with counts of the records from each committed offset to the last stable offset."""
    left = BATCHES_OF_GROUP_MAX
    offsets = []
    for each in facts.offsets:
        offsets.append(_counted(cluster, each, min(left, BATCHES_OF_PARTITION_MAX)))
        left -= min(left, BATCHES_OF_PARTITION_MAX) if each.committed != each.at.last_stable else 0
        await asyncio.sleep(0)
    return replace(facts, offsets=tuple(offsets))


def last_fetches(trace: Trace) -> LastFetches:
    """Time of the newest Fetch or ShareFetch of each client, from the trace."""
    found: dict[tuple[str | None, str], int] = {}
    for exchange in trace.entries():
        if exchange.api_key in FETCHES and exchange.from_node is None:
            found[exchange.client_id, exchange.ends.peer_host] = exchange.arrived_ms
    return found


# -- members


def _members(
    cluster: Cluster, shard: GroupShard, group: Group, fetched: LastFetches
) -> Iterator[MemberFacts]:
    if isinstance(group, ClassicGroup):
        for member in islice(group.members, MEMBERS_MAX):
            yield _classic_member(cluster, shard, group, member, fetched)
    elif isinstance(group, ConsumerGroup):
        for each in islice(group.members.values(), MEMBERS_MAX):
            yield _consumer_member(cluster, shard, group, each, fetched)
    else:
        # Imported with the first share group.
        from broker.share.settings import settings_of as share_settings_of

        for of_share in islice(group.members.values(), MEMBERS_MAX):
            timeout_ms = share_settings_of(
                shard.config(), cluster.metadata, group.group_id
            ).session_timeout_ms
            yield _modern_member(cluster, shard, group.group_id, of_share, fetched, timeout_ms)


def _classic_member(
    cluster: Cluster, shard: GroupShard, group: ClassicGroup, member: Member, fetched: LastFetches
) -> MemberFacts:
    # A client need not send heartbeats while its JoinGroup or SyncGroup waits.
    heartbeat_ms = 0 if member.may_be_silent else _heartbeat_ms(shard, group.group_id, member.member_id)
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        assigned=_assigned(member.assignment)
        if group.speaks_consumer_protocol and group.state is ClassicGroupState.STABLE
        else (),
        heartbeat_ms=heartbeat_ms,
        advanced_ms=_advanced_ms(cluster, heartbeat_ms),
        session_timeout_ms=member.session_timeout_ms,
        has_joined=_has_joined(group, member),
        fetch_ms=_fetch_ms(shard.clock, fetched, member.client_id, member.client_host),
    )


def _has_joined(group: ClassicGroup, member: Member) -> bool | None:
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return member.joining is not None
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        return member.member_id not in group.pending_syncs
    return None


def _consumer_member(
    cluster: Cluster,
    shard: GroupShard,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    fetched: LastFetches,
) -> MemberFacts:
    own = (
        settings_of(shard.config(), cluster.metadata, group.group_id).session_timeout_ms
        if member.classic is None
        else member.classic.session_timeout_ms
    )
    facts = _modern_member(cluster, shard, group.group_id, member, fetched, own)
    return replace(facts, has_joined=member.state is not MemberState.UNREVOKED_PARTITIONS)


def _modern_member(
    cluster: Cluster,
    shard: GroupShard,
    group_id: str,
    member: ConsumerGroupMember | ShareGroupMember,
    fetched: LastFetches,
    session_timeout_ms: int,
) -> MemberFacts:
    metadata = cluster.metadata
    assigned = sorted(
        f"{metadata.topic_name(topic_id)}-{index}"
        for topic_id, indexes in member.assigned.items()
        if metadata.topic_name(topic_id) is not None
        for index in indexes
    )
    heartbeat_ms = _heartbeat_ms(shard, group_id, member.member_id)
    return MemberFacts(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        assigned=tuple(assigned[:ASSIGNED_MAX]),
        heartbeat_ms=heartbeat_ms,
        advanced_ms=_advanced_ms(cluster, heartbeat_ms),
        session_timeout_ms=session_timeout_ms,
        has_joined=True,
        fetch_ms=_fetch_ms(shard.clock, fetched, member.client_id, member.client_host),
    )


def _heartbeat_ms(shard: GroupShard, group_id: str, member_id: str) -> int | None:
    return shard.armed_for_ms(group_id, Timer(Timed.SESSION, member_id))


def _advanced_ms(cluster: Cluster, heartbeat_ms: int | None) -> int:
    return cluster.clock.advanced_within(heartbeat_ms, Domain.GROUPS) if heartbeat_ms else 0


def _assigned(data: bytes) -> tuple[str, ...]:
    """The partitions in the assignment of a classic group's member, at most ``ASSIGNED_MAX``.

    Empty if the bytes are no assignment of the consumer protocol: a group's leader may send any bytes.
    """
    try:
        found = Assignment.decode(data) if data else None
    except MalformedRecord:
        found = None
    places = () if found is None else found.assigned_partitions
    named = sorted((each.topic, index) for each in places for index in each.partitions)
    return tuple(f"{topic}-{index}" for topic, index in named[:ASSIGNED_MAX])


def _fetch_ms(clock: Clock, fetched: LastFetches, client_id: str, host: str) -> int | None:
    at_ms = fetched.get((client_id, host.removeprefix("/")))
    return None if at_ms is None else max(0, clock.now_for(at_ms, Domain.REQUESTS) - at_ms)


def _state_ms(group: Group, clock: Clock) -> int | None:
    """Age of a classic group's state in milliseconds; None if the age is not known.

    The age is not known for groups of other types, nor for a Stable group, which still has the timestamp of its
    previous state.
    """
    if not isinstance(group, ClassicGroup) or group.state_since_ms == NO_TIMESTAMP:
        return None
    if group.state is ClassicGroupState.STABLE:
        return None
    return max(0, clock.now_for(group.state_since_ms, Domain.GROUPS) - group.state_since_ms)


# -- offsets


def _offsets(
    cluster: Cluster, owners: Owners, shard: GroupShard, group_id: str
) -> Iterator[GroupOffsetFacts]:
    offsets = shard.state.offsets
    for topic, index in islice(_spots(cluster, shard, group_id), OFFSETS_OF_GROUP_MAX):
        at = partition_facts(cluster, owners, topic, index)
        if at is None:
            continue
        committed = offsets.find(group_id, topic, index, require_stable=False).committed
        pending = offsets.pending_of(group_id, (topic, index))
        of = (owners.by_producer.get(producer_id) for producer_id in sorted(pending))
        yield GroupOffsetFacts(
            at=at,
            committed=None if committed is None else committed.offset,
            pending=bool(pending),
            pending_of=next((each for each in of if each is not None), None),
        )


def _counted(cluster: Cluster, facts: GroupOffsetFacts, batches_max: int) -> GroupOffsetFacts:
    # If the group has no offset there, count what its members could read. A pending offset will decide where they begin.
    bare = None if facts.pending else facts.at.log_start
    committed, end = bare if facts.committed is None else facts.committed, facts.at.last_stable
    partition = replica_at_leader(cluster, facts.at.topic, facts.at.index)
    if (
        committed is None
        or end is None
        or partition is None
        or partition.offline is not None
        or not batches_max
    ):
        return facts
    try:
        found = content(partition.log, committed, end, batches_max)
    except StorageError:
        return facts
    return replace(
        facts,
        at=with_tail(cluster, facts.at),
        records=found.records,
        aborted=found.aborted,
        markers=found.markers,
        is_counted_to_the_end=found.is_whole,
    )
