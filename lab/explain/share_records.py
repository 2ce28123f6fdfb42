"""Explains the state of one record in a share group: who holds it, how often it was delivered, where it ended (KIP-932)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import (
    ClusterContext,
    GroupFacts,
    HeldByRule,
    InFlightFacts,
    ShareFacts,
    SharePartitionFacts,
)
from lab.explain.groups import troubles_of_group
from lab.explain.partitions import partition_troubles
from lab.explain.share_rules import refused_writes
from lab.explain.shares import dead_letter_lines, record_trouble
from lab.explain.transactions import held_trouble
from lab.explain.trouble import Trouble, explained

_OF_OTHER_RECORDS: Final = (
    Cause.RECORD_LOCKED,
    Cause.RECORD_IN_TRANSITION,
    Cause.LAG,
    Cause.DEAD_LETTER_LOST,
)


def explain_record(
    at: GroupFacts, offset: int, record: InFlightFacts | None, around: ClusterContext
) -> Explanation:
    """Explanation of one record. ``at.share`` has only its partition.

    ``record`` is its state in the leader's memory, or if the leader has not loaded the share partition, the stored state.
    None if there is none: the record was not delivered yet, or the start offset has passed it.
    """
    assert at.share is not None
    [each] = at.share.partitions
    subject = f"record {offset} of {each.at.name}"
    fate = _fate(at, at.share, each, offset, record)
    cause: list[Trouble] = []
    if fate.cause is not Cause.RECORD_DONE:
        cause = [
            held_trouble(held, around) for held in around.held if _holds(held, at.group, each.at.name, offset)
        ]
    if fate.cause is Cause.RECORD_IN_TRANSITION:
        fate = replace(fate, lines=(*refused_writes(at, each.at, around), *fate.lines))
    why: list[Trouble] = []
    if fate.cause is Cause.UNKNOWN:
        why = partition_troubles(each.at, around)
    elif fate.cause in (Cause.RECORD_AVAILABLE, Cause.RECORD_NOT_DELIVERED):
        why = [each for each in troubles_of_group(at, around) if each.cause not in _OF_OTHER_RECORDS]
    lines = dead_letter_lines(each, offset)
    return explained(f"{subject} in group {at.group}", [*cause, fate, *why], fate, lines, around)


def _holds(held: HeldByRule, group: str, partition: str, offset: int) -> bool:
    """Whether the held request or step is about the record. A ShareFetch is, if it acknowledges the record."""
    if held.group != group or partition not in held.partitions:
        return False
    if not held.offsets:
        return held.at != "ShareFetch"
    return any(name == partition and first <= offset <= last for name, first, last in held.offsets)


def _fate(
    at: GroupFacts, share: ShareFacts, each: SharePartitionFacts, offset: int, record: InFlightFacts | None
) -> Trouble:
    place, start, group = each.at, each.start_offset, f"group {at.group}"
    subject = f"Record {offset} of {place.name}"
    if record is not None:
        found = record_trouble(at, share, record, subject)
        stored = (
            "That is the stored state: the leader has not loaded the share partition, so nothing is locked."
        )
        return found if each.is_loaded else Trouble(found.cause, (*found.lines, stored))
    if place.high_watermark is None or each.is_loaded is None or start is None:
        return Trouble(
            Cause.UNKNOWN, (f"The state of record {offset} of {place.name} in {group} is not known.",)
        )
    if offset >= place.high_watermark:
        ends = f"{place.name} has no record {offset} for consumers: its high watermark is {place.high_watermark}."
        return Trouble(Cause.RECORD_NOT_DELIVERED, (ends,))
    if offset < start:
        passed = f"{subject} is below the start offset {start} of {group}: it is not delivered any more."
        how = "It was acknowledged or archived, or the start offset was set above it; which of these is not known any more."
        if place.log_start is not None and offset < place.log_start:
            how = f"It is deleted: the log begins at offset {place.log_start}."
        return Trouble(Cause.RECORD_DONE, (passed, how))
    first = f"{subject} was not delivered to {group} yet"
    if each.next_offset is not None:
        return Trouble(
            Cause.RECORD_NOT_DELIVERED,
            (f"{first}: the next ShareFetch reads from offset {each.next_offset} on.",),
        )
    unloaded = "its leader has not loaded the share partition: no member fetches from it"
    if start < 0:
        return Trouble(Cause.RECORD_NOT_DELIVERED, (f"{subject} is not locked: {unloaded}.",))
    return Trouble(
        Cause.RECORD_NOT_DELIVERED, (f"{subject} has no stored state in {group}, and {unloaded}.",)
    )
