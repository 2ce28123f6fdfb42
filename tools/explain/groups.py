"""Facts about a group, queried over the protocol: coordinator, members, offsets, and the records above the offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from lab.explain.facts import (
    GroupFacts,
    GroupOffsetFacts,
    MemberFacts,
    PartitionFacts,
    ShareFacts,
    SharePartitionFacts,
)
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tools.client.cluster import GROUP, Cluster
from tools.client.errors import ToolError, error_name
from tools.client.fetching import Reader
from tools.client.groups import assigned, assigned_names
from tools.client.offsets import READ_UNCOMMITTED
from tools.client.shares import UNKNOWN, ShareOffset, share_group, share_offsets
from tools.control import Ages
from tools.explain.asking import Asking
from tools.explain.coordinating import find_coordinator
from tools.explain.looking import Where, look

READ_MAX: Final = 100_000
"""Maximum number of records of a partition that are read to find out what its lag consists of."""
COUNTED_MAX: Final = 20
"""Maximum number of partitions whose records above the committed offset are read and counted."""
LOOKS: Final = 3
_OFFSET_FETCH: Final = 9
"""The last version of OffsetFetch with topic names; later versions have topic ids."""
_NO_GROUP: Final = (ErrorCode.group_id_not_found, ErrorCode.unsupported_version)


@dataclass(frozen=True, slots=True)
class _Described:
    """A group as its coordinator describes it. If ``error`` is set, the other fields have their defaults."""

    error: str | None = None
    type: str = ""
    state: str = ""
    members: tuple[MemberFacts, ...] = ()
    offsets: Mapping[Where, int | None] | None = None
    """Committed offsets. An offset is None if nothing is committed, or if a transaction's pending offset is the only one."""
    unstable: frozenset[Where] = frozenset()
    shares: Mapping[Where, ShareOffset] | None = None
    """Start offsets of the partitions of a share group; None for groups of other types."""


def group_facts(asking: Asking, group: str, ages: Ages) -> GroupFacts:
    """Query the facts about a group.

    Queries twice if a committed offset is above the end of its partition: the end was then read before the commit.
    """
    for _ in range(LOOKS):
        facts = _group_facts(asking, group, ages)
        if not any(_is_beyond(each) for each in facts.offsets):
            break
    return replace(facts, near=asking.near("group", group)) if facts.is_unknown else facts


def _is_beyond(each: GroupOffsetFacts) -> bool:
    high = each.at.high_watermark
    return each.committed is not None and high is not None and each.committed > high


def _group_facts(asking: Asking, group: str, ages: Ages) -> GroupFacts:
    at = find_coordinator(asking, GROUP, group)
    described = None
    if at.error is None and at.node is not None:
        described = asking.one("DescribeGroups", at.node, partial(_describe, asking.cluster, group))
    if described is None:
        described = _Described(at.error)
    offsets = (described.offsets if described.shares is None else described.shares) or {}
    places = look(asking, offsets.keys(), ages, tails=False) if offsets else {}
    return GroupFacts(
        group=group,
        offsets_partition=at.home,
        coordinator=at.node,
        coordinator_error=described.error,
        type=described.type,
        state=described.state,
        members=described.members,
        offsets=_offsets(asking, described, places),
        share=None if described.shares is None else _share(described.shares, places),
        home=at.at,
    )


def _share(shares: Mapping[Where, ShareOffset], places: Mapping[Where, PartitionFacts]) -> ShareFacts:
    """The facts of a share group that clients get: which records are in flight only the leaders know."""
    found = []
    for where, (start, lag) in sorted(shares.items()):
        at = places.get(where)
        if at is not None:
            end = at.high_watermark
            is_known = end is not None and start >= 0 and lag != UNKNOWN
            count = (end or 0) - start - lag if is_known else None
            found.append(SharePartitionFacts(at=at, start_offset=start, delivery_complete_count=count))
    return ShareFacts(partitions=tuple(found))


# -- the coordinator --------------------------------------------------------------------------------------------


def _describe(cluster: Cluster, group: str, node: int) -> _Described:
    request = DescribeGroupsRequest(groups=[group])
    (found,) = cluster.ask_node(node, "describe_groups", request).groups
    described = _classic(found) if found.error_code not in _NO_GROUP else _Described(state="Dead")
    if described.error is not None:
        return described
    if described.state == "Dead":
        described = _consumer(cluster, group, node) or _shared(cluster, group, node) or described
    if described.shares is not None:
        return described
    offsets = _fetch_offsets(cluster, group, node, None, is_stable=False)
    # A pending offset of a partition without a committed one is returned only if it is requested by name.
    named = {_where(name) for member in described.members for name in member.assigned} | offsets.keys()
    stable = _fetch_offsets(cluster, group, node, named, is_stable=True)
    unstable = frozenset(where for where, error in stable.items() if error is None)
    return _Described(
        type=described.type,
        state=described.state,
        members=described.members,
        offsets={
            **{where: None for where in sorted(unstable | named)},
            **{where: offset for where, offset in offsets.items() if offset is not None},
        },
        unstable=unstable,
    )


def _classic(found: Any) -> _Described:
    if found.error_code:
        return _Described(error_name(found.error_code))
    members = (_member(each, assigned(each.member_assignment)) for each in found.members)
    return _Described(type="classic", state=found.group_state, members=tuple(members))


def _member(
    each: Any, partitions: Iterable[tuple[str, int]], *, has_joined: bool | None = None
) -> MemberFacts:
    """Convert a member of either protocol to `MemberFacts`."""
    return MemberFacts(
        member_id=each.member_id,
        client_id=each.client_id,
        host=each.client_host,
        assigned=tuple(f"{topic}-{index}" for topic, index in partitions),
        has_joined=has_joined,
    )


def _consumer(cluster: Cluster, group: str, node: int) -> _Described | None:
    """A consumer group (KIP-848); None if the node has no such group, or does not support the API."""
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    try:
        (found,) = cluster.ask_node(node, "consumer_group_describe", request).groups
    except ToolError:
        return None
    if found.error_code in _NO_GROUP:
        return None
    if found.error_code:
        return _Described(error_name(found.error_code))
    members = (
        _member(each, assigned_names(each.assignment), has_joined=each.member_epoch == found.group_epoch)
        for each in found.members
    )
    return _Described(type="consumer", state=found.group_state, members=tuple(members))


def _shared(cluster: Cluster, group: str, node: int) -> _Described | None:
    """A share group (KIP-932); None if the node has no such group, or does not support the API."""
    try:
        found = share_group(cluster, group, node)
        shares = share_offsets(cluster, group, node)
    except ToolError:
        return None
    members = (_member(each, assigned_names(each.assignment)) for each in found.members)
    return _Described(type="share", state=found.group_state, members=tuple(members), shares=shares)


def _where(name: str) -> Where:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _fetch_offsets(
    cluster: Cluster, group: str, node: int, named: Collection[Where] | None, *, is_stable: bool
) -> dict[Where, int | None]:
    """Return the committed offsets of the partitions ``named``, or if that is None, of all partitions.

    With ``is_stable``, the offset is None for a partition with a pending offset of an open transaction. A
    partition without a committed offset is left out.
    """
    if named is not None and not named:
        return {}
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(named or ()):
        indexes.setdefault(topic, []).append(index)
    of_group = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=parts) for topic, parts in indexes.items()
    ]
    of_old = [
        OffsetFetchRequestTopic(name=topic, partition_indexes=parts) for topic, parts in indexes.items()
    ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, member_epoch=-1, topics=of_group or None)],
        group_id=group,
        topics=of_old or None,
        require_stable=is_stable,
    )
    response = cluster.ask_node(node, "offset_fetch", request, _OFFSET_FETCH)
    of_group = response.groups[0] if response.groups else response
    found: dict[Where, int | None] = {}
    for topic in of_group.topics:
        for each in topic.partitions:
            where = (topic.name, each.partition_index)
            if each.error_code == ErrorCode.unstable_offset_commit:
                found[where] = None
            elif not each.error_code and each.committed_offset >= 0:
                found[where] = each.committed_offset
    return found


# -- the records above the offsets ------------------------------------------------------------------------------


def _offsets(
    asking: Asking, described: _Described, places: Mapping[Where, PartitionFacts]
) -> tuple[GroupOffsetFacts, ...]:
    found = []
    counts = _counts(asking, _begins(described, places), places)
    for where, committed in sorted((described.offsets or {}).items()):
        if where not in places:
            continue
        count = counts.get(where)
        found.append(
            GroupOffsetFacts(
                at=places[where],
                committed=committed,
                pending=where in described.unstable,
                pending_of=None,
                records=None if count is None else count[0]["record"],
                aborted=None if count is None else count[0]["aborted"],
                markers=None if count is None else count[0]["marker"],
                is_counted_to_the_end=count is None or count[1],
            )
        )
    return tuple(found)


def _begins(described: _Described, places: Mapping[Where, PartitionFacts]) -> dict[Where, int | None]:
    """Offset from which members would read, by partition: the committed offset, or without one the log start offset."""
    offsets = described.offsets or {}
    bare = {
        where: places[where].log_start
        for where, offset in offsets.items()
        if offset is None and where not in described.unstable and where in places
    }
    return {**offsets, **bare}


def _counts(
    asking: Asking, offsets: Mapping[Where, int | None], places: Mapping[Where, PartitionFacts]
) -> dict[Where, tuple[Counter[str], bool]]:
    by_leader: dict[int, list[tuple[PartitionFacts, int]]] = {}
    for where, at in list(places.items())[:COUNTED_MAX]:
        committed = offsets.get(where)
        is_behind = committed is not None and at.last_stable is not None and committed < at.last_stable
        if committed is not None and is_behind and at.leader is not None:
            by_leader.setdefault(at.leader, []).append((at, committed))
    questions = {node: partial(_count_all, asking, wanted) for node, wanted in by_leader.items()}
    return {
        where: count for part in asking.each("Fetch", questions).values() for where, count in part.items()
    }


def _count_all(
    asking: Asking, wanted: list[tuple[PartitionFacts, int]], node: int
) -> dict[Where, tuple[Counter[str], bool]]:
    return {(at.topic, at.index): _count(asking, at, committed) for at, committed in wanted}


def _count(asking: Asking, at: PartitionFacts, committed: int) -> tuple[Counter[str], bool]:
    """Numbers of records, aborted records and markers up to the last stable offset, and whether all were read."""
    end = at.last_stable or 0
    counts: Counter[str] = Counter()
    first = max(at.log_start or 0, committed)
    reader = Reader(asking.cluster, at.topic, at.index, READ_UNCOMMITTED, first)
    while reader.offset < end:
        if counts.total() >= READ_MAX or asking.is_late:
            return counts, False
        before = reader.offset
        for seen in reader.read():
            if seen.record.offset < end:
                counts[_kind(seen.outcome)] += 1
        if reader.offset == before:
            break
    return counts, True


def _kind(outcome: str) -> str:
    if outcome in ("COMMIT", "ABORT", "control"):
        return "marker"
    return "aborted" if outcome == "aborted" else "record"
