"""Explains why readers of a partition stop, or why its writers are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import ClusterContext, PartitionFacts, Tail
from lab.explain.refusals import refusal_troubles, refused_elsewhere, throttle_troubles
from lab.explain.transactions import MARKER_POINTS, held_trouble, holder
from lab.explain.trouble import Trouble, explained
from lab.explain.words import (
    all_away,
    away,
    capital,
    counted,
    is_silent,
    link_rule,
    listed,
    rule_text,
    waking,
)

LOG_WRITE: Final = "log.write"
"""Injection point at which a rule holds batches of clients, not only markers. A marker that is held at another point is
explained with its transaction."""
OTHERS_MAX = 5
"""Largest number of open transactions that are shown after the first one."""


def explain_partition(at: PartitionFacts, around: ClusterContext) -> Explanation:
    """Explain where readers of a partition stop and why, why writers are refused, and what the end of the log contains."""
    troubles = partition_troubles(at, around)
    # A group's refused requests are part of the group's explanation.
    refused = [
        each
        for each in around.refusals
        if each.group is None and (at.name in each.partitions or at.topic in each.topics)
    ]
    troubles += refusal_troubles(around, refused)
    throttled = [each for each in around.throttles if at.name in each.partitions]
    troubles += throttle_troubles(around, throttled)
    troubles += refused_elsewhere(around, around.refusals, at.topic)
    return explained(at.name, troubles, _otherwise(at, around), list(_details(at)), around)


def partition_troubles(at: PartitionFacts, around: ClusterContext) -> list[Trouble]:
    """The problems of the partition itself, the worst first."""
    if at.leader is None:
        return [offline(at, around) or no_leader(at, around)]
    troubles = [each for each in (offline(at, around), _leader_away(at, around)) if each is not None]
    held = [each for each in around.held if at.name in each.partitions]
    # Clients whose Fetch is held get nothing at all.
    troubles += [held_trouble(each, around) for each in held if each.at == "Fetch"]
    troubles += _open(at, around)
    troubles += _isr(at, around)
    troubles += filter(None, [replica_away(at, around)])
    has_held_marker = any(each.cause is Cause.MARKER_HELD for each in troubles)
    troubles += [
        held_trouble(each, around)
        for each in held
        if each.at != "Fetch"
        and (each.at not in MARKER_POINTS or (each.at == LOG_WRITE and not has_held_marker))
    ]
    return troubles


# -- its replicas -----------------------------------------------------------------------------------------------


def no_leader(at: PartitionFacts, around: ClusterContext) -> Trouble:
    """The problem of a partition without a leader, with the nodes that may lead it and are not running."""
    nodes = sorted(at.candidates)
    gone = all_away(around, nodes)
    who = "of its ISR," if at.isr else "of its eligible leader replicas,"
    if not nodes:
        why = "its ISR is empty"
    elif not at.isr and not at.eligible:
        why = f"it waits for its last known leader{f': {listed(gone)}' if gone else f', {_nodes(nodes)}'}"
    elif gone:
        why = f"{who} {listed(gone)}"
    else:
        why = f"{who} {_nodes(nodes)}, none leads it"
    replicas = f"Its replicas are on {_nodes(at.replicas)}."
    return Trouble(Cause.NO_LEADER, (f"{at.name} has no leader: {why}.", *waking(around, nodes), replicas))


def offline(at: PartitionFacts, around: ClusterContext) -> Trouble | None:
    if at.offline is None or (at.leader is None and not at.candidates):
        return None
    node = at.candidates[0] if at.leader is None else at.leader
    first = f"{at.name} is offline, the files of node {node} cannot be used: {at.offline.removesuffix('.')}."
    rule = next((each for each in around.rules or () if each.text.startswith("full-disk")), None)
    lines = [first]
    if rule is not None:
        lines += [
            f"{capital(rule_text(around, rule.rule))} fills a disk. Remove it: odradek fault clear {rule.rule}"
        ]
    again = f"odradek node stop {node}; odradek node start {node}"
    lines.append(f"When its disk can be written again, start the node again: {again}")
    return Trouble(Cause.OFFLINE, tuple(lines))


def _leader_away(at: PartitionFacts, around: ClusterContext) -> Trouble | None:
    gone = away(around, at.leader, ", its leader,")
    if gone is None or at.leader is None:
        return None
    head = (
        f"{at.name} could not be read"
        if is_silent(around, at.leader)
        else f"No client can read or write {at.name}"
    )
    return Trouble(Cause.LEADER_AWAY, (f"{head}: {gone}.", *waking(around, [at.leader])))


def _isr(at: PartitionFacts, around: ClusterContext) -> Iterator[Trouble]:
    missing = sorted(set(at.replicas) - set(at.isr))
    if not missing:
        return
    reasons = [_why_missing(at, node, around) for node in missing]
    commands = tuple(waking(around, missing))
    is_below = at.min_isr is not None and len(at.isr) < at.min_isr
    if is_below:
        yield Trouble(
            Cause.BELOW_MIN_ISR,
            (
                f"Writes with acks=all to {at.name} are refused (NOT_ENOUGH_REPLICAS): its ISR is {_nodes(at.isr)}, "
                f"min.insync.replicas is {at.min_isr}, and {listed(reasons)}.",
                *commands,
            ),
        )
    else:
        yield Trouble(
            Cause.UNDER_REPLICATED,
            (
                f"{capital(listed(reasons))}; the ISR of {at.name} is {_nodes(at.isr)}, and its clients go on.",
                *commands,
            ),
        )


def below_min_isr(at: PartitionFacts, around: ClusterContext) -> Trouble | None:
    """The problem if the ISR is smaller than min.insync.replicas; None if it is not, or if the setting is not known."""
    return next((each for each in _isr(at, around) if each.cause is Cause.BELOW_MIN_ISR), None)


def replica_away(at: PartitionFacts, around: ClusterContext) -> Trouble | None:
    """The problem if a replica in the ISR does not fetch: until the replica leaves the ISR, nothing is committed."""
    others = [node for node in sorted(at.isr) if node != at.leader]
    reasons = {node: why for node in others if (why := _why_away(at, node, around, ", in its ISR,"))}
    if at.leader is None or not reasons:
        return None
    first = f"Writes with acks=all to {at.name} wait: {listed(list(reasons.values()))}."
    until = "They continue once it fetches again, or has fallen out of the ISR (replica.lag.time.max.ms)."
    return Trouble(Cause.REPLICA_AWAY, (first, *waking(around, reasons), until))


def _why_missing(at: PartitionFacts, node: int, around: ClusterContext) -> str:
    return _why_away(at, node, around) or f"node {node} is not in sync"


def _why_away(at: PartitionFacts, node: int, around: ClusterContext, clause: str = "") -> str | None:
    """Text that says why a replica does not fetch; None if no reason is known. ``clause`` follows the number of the node."""
    gone = away(around, node, clause)
    if gone is not None:
        return gone
    cut = link_rule(around, at.leader, node)
    if cut is not None:
        return f"{rule_text(around, cut)} keeps node {node}{clause} from its leader"
    for each in around.rules or ():
        if _pauses(each.text, at, node):
            return f"{rule_text(around, each.rule)} stops the replicas of node {node}{clause.rstrip(',')}"
    return None


def _pauses(rule: str, at: PartitionFacts, node: int) -> bool:
    """Whether a rule in text form pauses the partition's replica on the node."""
    action, *matchers = rule.split()
    of = dict(matcher.split("=", 1) for matcher in matchers if "=" in matcher)
    return (
        action == "pause"
        and of.get("node") == str(node)
        and of.get("topic", at.topic) == at.topic
        and of.get("partition", str(at.index)) == str(at.index)
    )


def _nodes(ids: Sequence[int]) -> str:
    """Node ids as text: ``node 1``, ``nodes 1 and 2``, ``no node``"""
    return f"node{'s' * (len(ids) != 1)} {listed([str(each) for each in sorted(ids)])}" if ids else "no node"


# -- its readers ------------------------------------------------------------------------------------------------


def stops(at: PartitionFacts) -> str:
    """Beginning of a sentence that says where readers stop. The reason follows."""
    return f"Readers with read_committed of {at.name} stop at offset {at.last_stable}: "


def _open(at: PartitionFacts, around: ClusterContext) -> Iterator[Trouble]:
    """The problem of the transaction that limits the last stable offset, and of the open transactions behind it."""
    if at.last_stable is None or at.high_watermark is None or at.last_stable >= at.high_watermark:
        return
    if at.advances:
        for each in at.open:
            yield holder(
                at, each, around, f"A transaction begins at offset {each.first_offset} of {at.name}: "
            )
        return
    if not at.open:
        yield Trouble(
            Cause.UNKNOWN,
            (f"{stops(at)}which transaction holds them could not be read.",),
        )
        return
    first, *others = at.open
    behind = counted(at.high_watermark - at.last_stable, "offset")
    trouble = holder(at, first, around, stops(at))
    hides = f"Hidden from them: {behind}, up to the end at {at.high_watermark}."
    yield Trouble(trouble.cause, (*trouble.lines, hides))
    for each in others[:OTHERS_MAX]:
        yield holder(at, each, around, f"Another transaction begins at offset {each.first_offset}: ")
    if len(others) > OTHERS_MAX:
        more = counted(len(others) - OTHERS_MAX, "more open transaction")
        yield Trouble(Cause.OPEN_TRANSACTION, (f"{at.name} has {more}.",))


# -- nothing wrong ----------------------------------------------------------------------------------------------


def _otherwise(at: PartitionFacts, around: ClusterContext) -> Trouble:
    """The cause and the lines for a partition without a problem: why nothing is wrong, or what could not be queried."""
    if at.log_start is None or at.last_stable is None or at.high_watermark is None:
        return Trouble(
            Cause.UNKNOWN,
            (f"Whether readers of {at.name} stop is not known: its leader could not be asked.",),
        )
    if around.not_asked:
        return Trouble(
            Cause.UNKNOWN,
            (
                f"As far as could be asked, nothing is wrong with {at.name}: "
                f"readers with read_committed read to its end, offset {at.high_watermark}.",
            ),
        )
    if at.advances:
        goes_on = "readers with read_committed go on, and the transactions before them end within moments"
        return Trouble(Cause.NOTHING, (f"Nothing is wrong with {at.name}: {goes_on}.",))
    if at.log_start == at.high_watermark and at.log_end in (None, at.high_watermark):
        return Trouble(Cause.EMPTY_LOG, (_empty(at),))
    return _of_tail(at, at.tail) or Trouble(
        Cause.NOTHING,
        (
            f"Nothing is wrong with {at.name}: readers with read_committed read to its end, offset {at.high_watermark}.",
        ),
    )


def _empty(at: PartitionFacts) -> str:
    if at.high_watermark == 0:
        return f"{at.name} is empty: no record has been written, its log begins and ends at offset 0."
    return f"{at.name} is empty: its log begins and ends at offset {at.high_watermark}, all records below were deleted."


def _of_tail(at: PartitionFacts, tail: Tail | None) -> Trouble | None:
    """A note that the end of the log has no record for readers: their lag is not 0, although nothing is wrong."""
    if tail is None or not tail.markers + tail.aborted or at.high_watermark is None:
        return None
    hidden = tail.markers + tail.aborted
    content = content_text(0, tail.aborted, tail.markers)
    if tail.reaches_start:
        first = f"Nothing is wrong with {at.name}, but its log has no record for readers with read_committed: {content}."
    elif hidden == 1 and tail.markers:
        first = f"Nothing is wrong with {at.name}: its last offset, {at.high_watermark - 1}, is a marker."
    else:
        first = (
            f"Nothing is wrong with {at.name}, but its last {counted(hidden, 'offset')} hold no record for readers with "
            f"read_committed: {content}."
        )
    cause = Cause.ABORTED_TAIL if tail.aborted else Cause.MARKERS_ONLY
    return Trouble(cause, (first, f"A group whose lag here is {hidden} or less has nothing left to read."))


def content_text(records: int, aborted: int, markers: int) -> str:
    """Counts as text: ``3 records, 2 aborted records and 1 marker``"""
    parts = [(records, "record"), (aborted, "aborted record"), (markers, "marker")]
    return listed([counted(number, noun) for number, noun in parts if number])


def _details(at: PartitionFacts) -> Iterator[str]:
    if at.leader is None:
        return
    leads = f"Node {at.leader} leads {at.name} in leader epoch {at.leader_epoch}"
    if at.log_start is None or at.high_watermark is None:
        yield f"{leads}."
    else:
        yield f"{leads}; its log begins at offset {at.log_start} and ends at {at.high_watermark}."
        if at.log_end is not None and at.log_end > at.high_watermark:
            more = counted(at.log_end - at.high_watermark, "offset")
            yield f"Behind that, {more} are not committed: not every replica of the ISR has copied them."
