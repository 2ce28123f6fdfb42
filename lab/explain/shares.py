"""Explains why members of a share group get no records, and what its start offsets wait for (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from lab.explain.explanation import Cause
from lab.explain.facts import (
    ClusterContext,
    GroupFacts,
    InFlightFacts,
    ShareFacts,
    SharePartitionFacts,
)
from lab.explain.members import member_text
from lab.explain.partitions import below_min_isr, no_leader, offline, partition_troubles
from lab.explain.share_rules import refused_writes
from lab.explain.trouble import Trouble
from lab.explain.words import away, capital, counted, duration_text, listed, times, waking

PARTITIONS_MAX: Final = 20
"""Largest number of partitions of a share group that are explained."""
_INITIALIZED_AT: Final = ("share.append", "InitializeShareGroupState")
_DONE: Final = ("Acknowledged", "Archived")
_ABORTED: Final = "transaction aborted"
_ENDINGS: Final = {
    "released": "released by {who}",
    "lock expired": "the lock of {who} has run out",
    "session ended": "the share session of {who} has ended",
    "rejected": "rejected by {who}",
    "gap": "{who} has acknowledged it as a gap",
    "compacted": "compaction has removed it from the log",
    "below log start": "the log start has passed it",
    _ABORTED: "its transaction is aborted, and share.isolation.level is read_committed",
}
_IN_TRANSITION: Final = {
    "accepted": "acknowledged by {who}",
    "released": "released by {who}",
    "rejected": "rejected by {who}",
    "gap": "acknowledged as a gap by {who}",
    "session ended": "released, since the share session of {who} has ended",
}


def share_troubles(at: GroupFacts, share: ShareFacts, around: ClusterContext) -> Iterator[Trouble]:
    """The problems of a share group and of its partitions, without those of its coordinator and of its members' sessions."""
    if not share.is_enabled:
        first = "Share groups are disabled: share.version is 0, so requests of share consumers get UNSUPPORTED_VERSION."
        enable = "Enable them: kafka-features.sh upgrade --feature share.version=2"
        yield Trouble(Cause.SHARE_GROUPS_DISABLED, (first, enable))
        return
    yield from _unassigned(at, share)
    yield from _coordinators(at, share, around)
    for each in share.partitions[:PARTITIONS_MAX]:
        yield from share_partition_troubles(at, share, each, around)


def _unassigned(at: GroupFacts, share: ShareFacts) -> Iterator[Trouble]:
    bare = [member_text(each) for each in at.members if not each.assigned]
    if bare:
        has = "has" if len(bare) == 1 else "have"
        why = "Only initialized partitions of subscribed topics are assigned, at most every share.assignment.interval.ms."
        if not any(each.initialization == "initialized" for each in share.partitions):
            why = "The group has no initialized partition, and only these are assigned."
        yield Trouble(Cause.NO_ASSIGNMENT, (f"{capital(listed(bare))} {has} no partition.", why))


def _coordinators(at: GroupFacts, share: ShareFacts, around: ClusterContext) -> Iterator[Trouble]:
    """The problems of partitions of ``__share_group_state``, each with the share partitions that it coordinates."""
    homes = {
        each.coordinator.name: each.coordinator for each in share.partitions if each.coordinator is not None
    }
    for home in homes.values():
        names = [each.at.name for each in share.partitions if each.coordinator == home]
        head = f"The share coordinator of group {at.group} for {listed(names)} is not available"
        gone = away(around, home.leader, f", which leads {home.name},")
        trouble = offline(home, around) or (no_leader(home, around) if home.leader is None else None)
        if trouble is None and (gone is None or home.leader is None):
            trouble = below_min_isr(home, around)
            head = f"The share coordinator of group {at.group} for {listed(names)}, node {home.leader}, cannot write"
        elif trouble is None and home.leader is not None:
            trouble = Trouble(Cause.NODE_AWAY, (f"{gone}.", *waking(around, [home.leader])))
        if trouble is not None:
            first, *more = trouble.lines
            effect = "Until then no acknowledgement is written, and no share partition is loaded."
            yield Trouble(Cause.COORDINATOR_NOT_AVAILABLE, (f"{head}: {first}", *more, effect))


def share_partition_troubles(
    at: GroupFacts, share: ShareFacts, each: SharePartitionFacts, around: ClusterContext
) -> Iterator[Trouble]:
    place, settings = each.at, share.settings
    if settings is None or not settings.read_committed:
        # Open transactions hide no record from the group.
        place = replace(place, last_stable=place.high_watermark, open=())
    # A rule that holds a Fetch holds no share consumer.
    of_shares = replace(around, held=tuple(held for held in around.held if held.at != "Fetch"))
    yield from partition_troubles(place, of_shares)
    if each.initialization in ("initializing", "not initialized"):
        state = "is being initialized" if each.initialization == "initializing" else "is not initialized"
        first = (
            f"{place.name} {state} for group {at.group}: it is not assigned, and a ShareFetch gets an error."
        )
        begins = (
            "The share coordinator initializes it after a heartbeat of a member that subscribes to the topic."
        )
        refused = refused_writes(at, place, around, _INITIALIZED_AT)
        yield Trouble(Cause.SHARE_PARTITION_NOT_INITIALIZED, (*refused, first, begins))
    if each.start_offset == -1:
        is_empty = place.high_watermark is not None and place.high_watermark == place.log_start
        first = f"Group {at.group} has acknowledged nothing in {place.name}"
        first += ", and its leader has not loaded it: no member fetches" if each.is_loaded is False else ""
        value = "" if settings is None else f" ({settings.auto_offset_reset})"
        begins = f"The leader applies share.auto.offset.reset{value} at the first ShareFetch."
        yield Trouble(Cause.LAG, (f"{first}.", begins), is_cause=not is_empty)
    yield from _waiting(at, share, each, around)
    yield from _lost(each)


def _waiting(
    at: GroupFacts, share: ShareFacts, each: SharePartitionFacts, around: ClusterContext
) -> Iterator[Trouble]:
    """The problem of a share partition whose records are all in flight, or are available and not fetched."""
    name, start, end, lag = each.at.name, each.start_offset, each.at.high_watermark, each.lag
    if start is not None and end is not None and start > end:
        above = f"The start offset {start} of group {at.group} in {name} is above its high watermark {end}"
        yield Trouble(Cause.LAG, (f"{above}: records below {start} are not delivered.",))
        return
    if lag is None or lag <= 0:
        return
    if not each.is_loaded:
        behind = f"{counted(lag, 'record')} of {name} not acknowledged and not archived"
        if each.is_loaded is False:
            behind = f"{counted(lag, 'record')} to deliver, and no member fetches them: its leader has not loaded {name}"
        yield Trouble(Cause.LAG, (f"Group {at.group} has {behind}.",))
        return
    first = next((found for found in each.in_flight if _is_unfinished(found)), None)
    waits = (
        ""
        if first is None
        else f"record {max(first.first_offset, start or 0)} {state_text(at, share, first)}"
    )
    maximum = None if share.settings is None else share.settings.partition_max_record_locks
    is_full = maximum is not None and (each.in_flight_count or 0) >= maximum
    if is_full and each.end_offset is not None and each.next_offset == each.end_offset + 1:
        limit = f"share.partition.max.record.locks is {maximum}"
        lines = [
            f"Group {at.group} gets no new record of {name}: {each.in_flight_count} are in flight ({limit})."
        ]
        lines += [f"New ones follow when the start offset {start} moves: {waits}."] if waits else []
        yield Trouble(Cause.RECORD_LOCKS_FULL, tuple(lines))
    elif first is not None:
        text = f"The start offset {start} of group {at.group} in {name} waits: {waits}."
        cause = _cause_of(first)
        refused = refused_writes(at, each.at, around) if cause is Cause.RECORD_IN_TRANSITION else ()
        yield Trouble(Cause.LAG if cause is Cause.RECORD_AVAILABLE else cause, (*refused, text))
    else:
        behind = f"{counted(lag, 'record')} of {name} to deliver, from offset {each.next_offset} on"
        yield Trouble(Cause.LAG, (f"Group {at.group} has {behind}.",))


def _is_unfinished(each: InFlightFacts) -> bool:
    return each.in_transition or each.state not in _DONE


def _cause_of(each: InFlightFacts) -> Cause:
    if each.in_transition or each.state == "Archiving":
        return Cause.RECORD_IN_TRANSITION
    return {"Acquired": Cause.RECORD_LOCKED, "Available": Cause.RECORD_AVAILABLE}.get(
        each.state, Cause.RECORD_DONE
    )


def _lost(each: SharePartitionFacts) -> Iterator[Trouble]:
    """The problem of records that were archived, and could not be written to the dead-letter queue (KIP-1191)."""
    failed = [letters for letters in each.dead_letters if letters.failure]
    if failed:
        count = sum(letters.last_offset - letters.first_offset + 1 for letters in failed)
        last = failed[-1]
        lost = f"{counted(count, 'record')} of {each.at.name} archived without a dead letter"
        first = f"{lost}, the last one at offset {last.last_offset}: {last.failure}."
        yield Trouble(Cause.DEAD_LETTER_LOST, (first,), is_old=True)


# -- one record -------------------------------------------------------------------------------------------------


def record_trouble(at: GroupFacts, share: ShareFacts, each: InFlightFacts, subject: str) -> Trouble:
    """The state of a record in flight. ``subject`` begins the sentence: ``Record 17 of orders-0``."""
    lines = [f"{subject} {state_text(at, share, each)}."]
    settings = share.settings
    if (
        each.state == "Acquired"
        and settings is not None
        and each.delivery_count >= settings.delivery_count_limit
    ):
        queue = f" and written to the dead-letter queue {settings.dead_letter_topic}" * bool(
            settings.dead_letter_topic
        )
        lines.append(
            f"That is its last delivery: if it is released, or its lock runs out, it is archived{queue}."
        )
    if each.in_transition:
        lines.append("Until then it can be neither acquired nor acknowledged.")
    return Trouble(_cause_of(each), tuple(lines))


def state_text(at: GroupFacts, share: ShareFacts, each: InFlightFacts) -> str:
    """The state of a record in flight as a predicate: ``is locked by member b for 12.0 s more, delivered 3 of 5 times``"""
    delivered = _delivered(share, each)
    holder, former = _member(at, each.member_id), _member(at, each.former_member_id)
    ending = _ENDINGS.get(each.ending or "", "").format(who=former)
    if each.in_transition:
        text = _IN_TRANSITION.get(each.ending or "", "changed by {who}").format(who=holder)
        return f"is being {text}, {delivered}: the new state is being written to the share coordinator"
    if each.state == "Acquired":
        lock = "" if each.lock_ms is None else f" for {duration_text(max(0, each.lock_ms))} more"
        return f"is locked by {holder}{lock}, {delivered}"
    if each.state == "Acknowledged":
        return "is acknowledged" + f" by {former}" * bool(each.former_member_id)
    if each.state == "Archiving":
        queue = "" if share.settings is None else f" {share.settings.dead_letter_topic}"
        return (
            f"is being written to the dead-letter queue{queue}: {ending or 'why is not known'}, {delivered}"
        )
    state = "available" if each.state == "Available" else "archived"
    # The leader counts an acquisition of aborted records, but no client gets them.
    if each.ending == _ABORTED:
        return f"is {state}: {ending}"
    return f"is {state}: {ending}, {delivered}" if ending else f"is {state}, {delivered}"


def _delivered(share: ShareFacts, each: InFlightFacts) -> str:
    if not each.delivery_count:
        return "not delivered yet"
    if share.settings is None:
        return f"delivered {times(each.delivery_count)}"
    return f"delivered {each.delivery_count} of {share.settings.delivery_count_limit} times"


def _member(at: GroupFacts, member_id: str) -> str:
    """A member as text. A member that has left may still hold locks, and acknowledge records."""
    if not member_id:
        return "a member that is not known any more"
    known = at.state and at.coordinator_error is None
    is_gone = known and all(each.member_id != member_id for each in at.members)
    return f"member {member_id}" + " (not in the group)" * bool(is_gone)


def dead_letter_lines(each: SharePartitionFacts, offset: int) -> Sequence[str]:
    """Where the dead letter of a record is, or why there is none; empty if there was no attempt, or none is known."""
    for letters in reversed(each.dead_letters):
        if not letters.first_offset <= offset <= letters.last_offset:
            continue
        if letters.failure:
            return [f"It was not written to the dead-letter queue: {letters.failure}."]
        at_least = "" if letters.first_offset == letters.last_offset else " or above"
        return [f"Its dead letter is in {letters.written_to} at offset {letters.written_offset}{at_least}."]
    return []


# -- the group's lines ------------------------------------------------------------------------------------------


def share_lines(share: ShareFacts) -> Iterator[str]:
    """A line for each partition: its offsets, and the records in flight by state."""
    for each in share.partitions[:PARTITIONS_MAX]:
        if each.start_offset is None or each.start_offset < 0:
            continue
        lag = "" if each.lag is None else f", lag {each.lag}"
        if each.is_loaded:
            records = listed([f"{count} {state.lower()}" for state, count in each.records.items() if count])
            in_flight = f": {records}" if records else ", nothing in flight"
            yield f"{each.at.name}: start offset {each.start_offset}{lag}{in_flight}."
        else:
            unloaded = "; its leader has not loaded it" if each.is_loaded is False else ""
            yield f"{each.at.name}: stored start offset {each.start_offset}{lag}{unloaded}."
    left_out = share.left_out + max(0, len(share.partitions) - PARTITIONS_MAX)
    if left_out:
        yield f"{left_out} more partitions are not shown."


def share_otherwise(at: GroupFacts, share: ShareFacts, around: ClusterContext) -> Trouble:
    """Why nothing is wrong with a share group, or what could not be read."""
    unread = [each.at.name for each in share.partitions if each.lag is None and each.start_offset != -1]
    if unread:
        first = f"Which records of {listed(unread)} group {at.group} has is not known: the leader could not be asked."
        return Trouble(Cause.UNKNOWN, (first,))
    if around.not_asked:
        return Trouble(Cause.UNKNOWN, (f"As far as could be asked, nothing is wrong with group {at.group}.",))
    why = "all records from its start offsets on are acknowledged or archived"
    if not any(each.lag is not None for each in share.partitions):
        why = "it has acknowledged nothing" if share.partitions else "it has no partitions"
    return Trouble(Cause.NOTHING, (f"Nothing is wrong with group {at.group}: {why}.",))
