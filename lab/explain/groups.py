"""Explains why a group makes no progress: its coordinator, its members, and the content of the logs behind its committed
offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lab.explain.coordinators import coordinator_trouble
from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import ClusterContext, GroupFacts, GroupOffsetFacts, HeldByRule
from lab.explain.members import JOINS, rebalancing, stopped_polling
from lab.explain.partitions import content_text, partition_troubles, stops
from lab.explain.refusals import refusal_troubles, throttle_troubles
from lab.explain.transactions import held_trouble
from lab.explain.trouble import Trouble, explained
from lab.explain.words import counted, listed, meant

FETCHES_UNKNOWN: Final = (
    "The trace is off: when members have sent a Fetch is not known. Record it: odradek trace --start"
)
PARTITIONS_MAX: Final = 20
"""Largest number of partitions whose lag is shown."""
_RANK: Final = (
    Cause.SHARE_GROUPS_DISABLED,
    Cause.COORDINATOR_NOT_AVAILABLE,
    Cause.COORDINATOR_LOADING,
    Cause.GROUP_REBALANCING,
    Cause.REQUEST_HELD,
    Cause.NOT_AUTHORIZED,
    Cause.NO_LEADER,
    Cause.OFFLINE,
    Cause.LEADER_AWAY,
    Cause.GROUP_EMPTY,
    Cause.SHARE_PARTITION_NOT_INITIALIZED,
    Cause.NO_ASSIGNMENT,
    Cause.MARKER_HELD,
    Cause.MARKER_LEADER_AWAY,
    Cause.HANGING_TRANSACTION,
    Cause.BEGINS_IN_THE_FUTURE,
    Cause.MARKER_ON_THE_WAY,
    Cause.OPEN_TRANSACTION,
    Cause.UNSTABLE_OFFSETS,
    Cause.MEMBER_STOPPED_POLLING,
    Cause.RECORD_LOCKS_FULL,
    Cause.REFUSED_REQUEST,
    Cause.THROTTLED,
    Cause.UNKNOWN_GROUP,
    Cause.UNKNOWN,
    Cause.RECORD_IN_TRANSITION,
    Cause.RECORD_LOCKED,
    Cause.LAG,
    Cause.DEAD_LETTER_LOST,
)
"""Causes that stop a group, the worst first. Causes of partitions that stop no reader are not among them."""


def explain_group(at: GroupFacts, around: ClusterContext) -> Explanation:
    """Explanation of what stops the group, followed by its lag in each partition."""
    subject = f"group {at.group}"
    of_coordinator = coordinator_trouble(at, around)
    if of_coordinator is not None:
        found = [of_coordinator]
    elif at.is_unknown:
        first = f"No coordinator knows group {at.group}: it has no members and no offsets{meant(at.near)}"
        held = [held_trouble(each, around) for each in around.held if each.group == at.group]
        found = [*held, *_of_clients(at, around), Trouble(Cause.UNKNOWN_GROUP, (first,))]
    else:
        found = troubles_of_group(at, around)
    found = _with_reached(at, _ranked(found))
    details = [] if of_coordinator is not None else [*_state(at), *_lags(at)]
    if found and at.members and around.trace_runs is False:
        details.append(FETCHES_UNKNOWN)
    return explained(subject, found, _otherwise(at, around), details, around)


def troubles_of_group(at: GroupFacts, around: ClusterContext) -> list[Trouble]:
    """The problems of a group whose coordinator responds, the worst first."""
    of_partitions = _of_partitions(at, around)
    if at.share is not None:
        from lab.explain.shares import share_troubles  # imported with the first share group

        of_partitions = share_troubles(at, at.share, around)
    return _ranked([*_of_group(at, around), *of_partitions, *_of_clients(at, around)])


def _ranked(found: list[Trouble]) -> list[Trouble]:
    # The sort is stable: of two problems of the same rank the first stays first.
    return sorted((each for each in found if each.cause in _RANK), key=lambda each: _RANK.index(each.cause))


def _with_reached(at: GroupFacts, found: list[Trouble]) -> list[Trouble]:
    """Sort the problems ``found``: problems that stop readers above the group's committed offset come last."""
    beyond = tuple(stops(each.at) for each in at.offsets if each.committed is not None and _may_read(each))
    return sorted(found, key=lambda each: each.lines[0].startswith(beyond))


def _may_read(each: GroupOffsetFacts) -> bool:
    """Whether the partition has records for the group's members, or may have some."""
    return bool(_lag(each)) if each.records is None else each.records > 0


def _of_group(at: GroupFacts, around: ClusterContext) -> Iterator[Trouble]:
    held = [each for each in around.held if each.group == at.group]
    waiting = rebalancing(at, held, around)
    if waiting is not None:
        yield waiting
    for each in held:
        if waiting is not None and each.at in JOINS:
            continue  # part of the rebalance's problem
        yield held_trouble(each, around)
    yield from (held_trouble(each, around) for each in around.held if _is_fetch(at, each))
    if not at.members and waiting is None:
        first = f"Group {at.group} is empty: it has no members, so its offsets do not change."
        if at.share is not None:
            first = f"Group {at.group} is empty: it has no members."
        yield Trouble(Cause.GROUP_EMPTY, (first,))
    yield from stopped_polling(at)


def _is_fetch(at: GroupFacts, each: HeldByRule) -> bool:
    """Whether the held request ``each`` is a Fetch of a group member for partitions assigned to the member."""
    return each.at in ("Fetch", "ShareFetch") and any(
        member.client_id == each.client_id and not set(member.assigned).isdisjoint(each.partitions)
        for member in at.members
    )


def _of_partitions(at: GroupFacts, around: ClusterContext) -> Iterator[Trouble]:
    owned = {name for member in at.members for name in member.assigned}
    yield from _without_commits(at)
    for each in at.offsets[:PARTITIONS_MAX]:
        name = each.at.name
        yield from partition_troubles(each.at, around)
        if each.pending:
            yield _pending(at, each)
        if each.committed is None or each.at.log_start is None:
            continue
        if each.committed < each.at.log_start:
            deleted = f"Offset {each.committed} of group {at.group} in {name} is deleted"
            first = f"{deleted}: the log begins at {each.at.log_start}."
            yield Trouble(Cause.LAG, (first, "auto.offset.reset decides where a member goes on."))
        if owned and name not in owned and _lag(each):
            yield Trouble(Cause.LAG, (f"No member of group {at.group} has {name}.",))
        elif each.records:
            behind = counted(each.records, "record") + ("" if each.is_counted_to_the_end else " at the least")
            yield Trouble(Cause.LAG, (f"Group {at.group} is {behind} behind in {name}.",))


def _without_commits(at: GroupFacts) -> Iterator[Trouble]:
    """The problem of assigned partitions that have records, but no committed offset."""
    bare = [each for each in at.offsets if _is_bare(each) and each.records]
    if not bare:
        return
    number = counted(sum(each.records or 0 for each in bare), "record")
    number += "" if all(each.is_counted_to_the_end for each in bare) else " or more"
    names = listed([each.at.name for each in bare])
    has = "has committed nothing" if all(map(_is_bare, at.offsets)) else f"has committed nothing in {names}"
    where = f"its partitions ({names})" if all(map(_is_bare, at.offsets)) else names
    are = "is" if number == "1 record" else "are"
    yield Trouble(
        Cause.LAG,
        (
            f"Group {at.group} {has}; {number} {are} in {where}.",
            "auto.offset.reset decides where a member begins there; only commits show what it has read.",
        ),
    )


def _is_bare(each: GroupOffsetFacts) -> bool:
    return each.committed is None and not each.pending


def _pending(at: GroupFacts, each: GroupOffsetFacts) -> Trouble:
    """The problem of a partition with a pending offset, for which a starting consumer waits (KIP-447)."""
    whose = "an open transaction" if each.pending_of is None else f"the transaction of {each.pending_of}"
    lines = [
        f"The offset of group {at.group} in {each.at.name} is not stable: {whose} has committed one and is not ended.",
        "A member that starts now waits for its end (UNSTABLE_OFFSET_COMMIT).",
    ]
    if each.pending_of is not None:
        lines.insert(1, f"See what that waits for: odradek explain --id {each.pending_of}")
    return Trouble(Cause.UNSTABLE_OFFSETS, tuple(lines))


def _of_clients(at: GroupFacts, around: ClusterContext) -> Iterator[Trouble]:
    clients = {member.client_id for member in at.members}
    refused = [each for each in around.refusals if each.group == at.group]
    yield from refusal_troubles(around, refused)
    throttled = [each for each in around.throttles if each.group == at.group or each.client_id in clients]
    yield from throttle_troubles(around, throttled)


# -- lag --------------------------------------------------------------------------------------------------------


def _lag(each: GroupOffsetFacts) -> int | None:
    """Number of offsets from the committed offset to the last stable offset: the lag as clients compute it; None if
    unknown.
    """
    if each.committed is None or each.at.last_stable is None:
        return None
    return max(0, each.at.last_stable - each.committed)


def _state(at: GroupFacts) -> Iterator[str]:
    if at.members and at.state:
        members = counted(len(at.members), "member")
        yield f"Group {at.group} is {at.state} with {members} at its coordinator, node {at.coordinator}."


def _lags(at: GroupFacts) -> Iterator[str]:
    """A line for each partition with a lag, and one for all others."""
    if at.share is not None:
        from lab.explain.shares import share_lines

        yield from share_lines(at.share)
    even = []
    for each in at.offsets[:PARTITIONS_MAX]:
        lag = _lag(each)
        if lag == 0:
            even.append(each.at.name)
        elif lag is not None:
            behind = f"{counted(lag, 'offset')} behind the last stable offset {each.at.last_stable}"
            yield f"{each.at.name}: {behind}{_content(each)}."
    if even:
        yield f"{listed(even)}: no lag."
    if len(at.offsets) > PARTITIONS_MAX:
        yield f"{len(at.offsets) - PARTITIONS_MAX} more partitions are not shown."


def _content(each: GroupOffsetFacts) -> str:
    """What the lag consists of, as the end of a line: ``: 3 records, 2 aborted records and 1 marker``."""
    if each.records is None:
        return ""
    content = content_text(each.records, each.aborted or 0, each.markers or 0)
    if not content:
        return ": none of them a record, compaction has removed what was there"
    return f": {content}{'' if each.is_counted_to_the_end else ' at the least'}"


# -- nothing wrong ----------------------------------------------------------------------------------------------


def _otherwise(at: GroupFacts, around: ClusterContext) -> Trouble:
    if at.share is not None:
        from lab.explain.shares import share_otherwise

        return share_otherwise(at, at.share, around)
    unread = [each.at.name for each in at.offsets if _is_unread(each)]
    if unread:
        first = f"How far group {at.group} is behind in {listed(unread)} is not known: the leader could not be asked."
        return Trouble(Cause.UNKNOWN, (first,))
    if around.not_asked:
        return Trouble(Cause.UNKNOWN, (f"As far as could be asked, nothing is wrong with group {at.group}.",))
    hidden = [each for each in at.offsets if _lag(each) and each.records == 0 and each.is_counted_to_the_end]
    if hidden:
        aborted = sum(each.aborted or 0 for each in hidden)
        content = content_text(0, aborted, sum(each.markers or 0 for each in hidden))
        lag = sum(_lag(each) or 0 for each in hidden)
        first = f"Nothing is wrong with group {at.group}: its lag of {lag} holds no record"
        cause = Cause.ABORTED_TAIL if aborted else Cause.MARKERS_ONLY
        return Trouble(cause, (f"{first}, but {content}." if content else f"{first}.",))
    if any(_lag(each) for each in at.offsets):
        first = f"Nothing stops group {at.group}, and it is behind: by what, was not counted."
        return Trouble(Cause.LAG, (first,))
    return Trouble(Cause.NOTHING, (f"Nothing is wrong with group {at.group}: {_has_no_lag(at)}.",))


def _is_unread(each: GroupOffsetFacts) -> bool:
    return each.records is None if _is_bare(each) else _lag(each) is None and each.committed is not None


def _has_no_lag(at: GroupFacts) -> str:
    if not at.offsets:
        return "its members have no partitions, and it has committed nothing"
    if all(map(_is_bare, at.offsets)):
        return "it has committed nothing, and its partitions hold no record for its members"
    return "it has no lag"
