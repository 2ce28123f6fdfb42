"""Explains which members a rebalance waits for, and which have stopped polling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, GroupFacts, GroupOffsetFacts, HeldByRule, MemberFacts
from lab.explain.trouble import Trouble
from lab.explain.words import capital, duration_text, listed, release, rule_text

REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
SILENT_MS: Final = 10_000
"""Milliseconds without a Fetch after which a member of a lagging group counts as not polling, and without a heartbeat
after which it may be dead."""
ASK_CONTROL: Final = (
    "Only the control port of an Odradek broker knows whether a fault rule holds a request of the group: set "
    "ODRADEK_CONTROL."
)
JOINS: Final = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "group.append", "LeaveGroup"}
)


def member_text(at: MemberFacts) -> str:
    """The member as text: ``member app-1-7f3c (client app-1, 127.0.0.1)``"""
    return f"member {at.member_id} (client {at.client_id}, {at.host.removeprefix('/')})"


def rebalancing(at: GroupFacts, held: Sequence[HeldByRule], around: ClusterContext) -> Trouble | None:
    """The problem of a rebalancing group; None if the group does not rebalance.

    The problem says for how long the group has rebalanced, and which members or rule it waits for.
    """
    if at.state not in REBALANCING:
        return None
    since = "" if at.state_ms is None else f", for {duration_text(at.state_ms)}"
    head = f"Group {at.group} rebalances ({at.state}{since})"
    by_rule = next((each for each in held if each.at in JOINS), None)
    if by_rule is not None:
        of = f" of {by_rule.client_id}" if by_rule.client_id else ""
        why = f"{rule_text(around, by_rule.rule)} holds {by_rule.at}{of} on node {by_rule.node}"
        held_for = duration_text(by_rule.for_ms)
        return Trouble(Cause.GROUP_REBALANCING, (f"{head}: {why}, for {held_for}.", release(by_rule)))
    hint = (ASK_CONTROL,) if around.rules is None else ()
    late = late_members(at)
    if not late:
        return Trouble(Cause.GROUP_REBALANCING, (f"{head}.", *hint))
    first = f"{head}: it waits for {listed([member_text(each) for each in late])} {_must(at)}."
    return Trouble(Cause.GROUP_REBALANCING, (first, *_heartbeats(late), *hint))


def _must(at: GroupFacts) -> str:
    """What the rebalance expects of a late member, as text: ``to join again``; in the consumer protocol ``to send a
    heartbeat`` or ``to revoke its partitions``.
    """
    if at.state == "Reconciling":
        return "to revoke its partitions"
    return "to join again" if at.type == "classic" else "to send a heartbeat"


def late_members(at: GroupFacts) -> list[MemberFacts]:
    """The members that a rebalance waits for."""
    return [each for each in at.members if at.state in REBALANCING and each.has_joined is False]


def _heartbeats(members: Sequence[MemberFacts]) -> Iterator[str]:
    for each in members:
        if each.heartbeat_ms is not None:
            yield f"The last heartbeat of {member_text(each)} came {duration_text(each.heartbeat_ms)} ago{_ends(each)}."


def _ends(at: MemberFacts) -> str:
    if at.session_timeout_ms is None or at.heartbeat_ms is None:
        return ""
    left = at.session_timeout_ms - at.heartbeat_ms
    return f"; its session ends in {duration_text(left)}" if left > 0 else "; its session is over"


def stopped_polling(at: GroupFacts) -> Iterator[Trouble]:
    """The problem of each member without heartbeats, and of each member that has records to read and sends no Fetch."""
    behind = {each.at.name for each in at.offsets if _is_behind(each)}
    if at.share is not None:
        behind |= {each.at.name for each in at.share.partitions if each.lag}
    fetch = "Fetch" if at.share is None else "ShareFetch"
    late = late_members(at)  # part of the rebalance's problem
    for each in [member for member in at.members if member not in late]:
        who = capital(member_text(each))
        if each.silent_ms is not None and each.silent_ms > SILENT_MS:
            first = f"{who} has sent no heartbeat for {duration_text(each.silent_ms)}{_ends(each)}."
            yield Trouble(
                Cause.MEMBER_STOPPED_POLLING,
                (first, "Its process hangs or is paused, or cannot reach the coordinator."),
            )
        elif each.fetch_ms is not None and each.fetch_ms > SILENT_MS and behind.intersection(each.assigned):
            names = sorted(behind.intersection(each.assigned))
            first = f"{who} has sent no {fetch} for {duration_text(each.fetch_ms)}, though it is behind in {listed(names)}"
            alive = (
                f", and its heartbeats go on, the last {duration_text(each.heartbeat_ms)} ago"
                if each.heartbeat_ms is not None
                else ""
            )
            why = "It does not call poll() any more, has paused these partitions, or still works on what it has fetched."
            yield Trouble(Cause.MEMBER_STOPPED_POLLING, (f"{first}{alive}.", why))


def _is_behind(each: GroupOffsetFacts) -> bool:
    """Whether the partition has records after the committed offset, as far as is known."""
    if each.records is not None:
        return each.records > 0
    stable = each.at.last_stable
    return each.committed is not None and stable is not None and stable > each.committed
