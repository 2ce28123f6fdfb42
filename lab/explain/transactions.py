"""Explains transactions that readers wait for: how each transaction will end, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from lab.explain.explanation import Cause
from lab.explain.facts import (
    ClusterContext,
    FaultRule,
    HeldByRule,
    OpenInLog,
    PartitionFacts,
    TransactionFacts,
)
from lab.explain.trouble import Trouble
from lab.explain.words import (
    all_away,
    away,
    capital,
    duration_text,
    link_rule,
    listed,
    producer_text,
    release,
    rule_text,
    times,
    waking,
    who,
)
from protocol.records.transaction_log import TIMEOUT_NEVER_MS

ON_THE_WAY_MS: Final = 5_000
"""Age of a commit or abort decision, in milliseconds, above which a missing marker is reported as late."""
RESENT_MS: Final = 1_000
OPEN_MAX: Final = 50
"""Largest number of open transactions of one partition that are examined."""
MARKER_POINTS: Final = frozenset({"txn.marker", "WriteTxnMarkers", "log.write", "txn.complete.append"})
"""Injection points and APIs at which a rule can hold a marker between the coordinator and the partition's log."""
ASK_CONTROL: Final = (
    "Only the control port of an Odradek broker knows whether a fault rule holds it: set ODRADEK_CONTROL."
)


def is_decided(at: TransactionFacts) -> bool:
    return at.state.startswith("Prepare")


def is_open(at: TransactionFacts) -> bool:
    return at.state == "Ongoing"


def of_coordinator(open_: OpenInLog, partition: str) -> TransactionFacts | None:
    """The coordinator's state of the transaction that is open in the log of ``partition``.

    None if the transaction hangs, or if its transactional id is not known.
    """
    owner = open_.owner
    if owner is None or partition not in owner.partitions:
        return None
    return owner if is_open(owner) or is_decided(owner) else None


def holder(place: PartitionFacts, open_: OpenInLog, around: ClusterContext, prefix: str) -> Trouble:
    """The problem of an open transaction in a partition: what it waits for. ``prefix`` begins the first line.

    ``prefix`` is a clause with a colon: "Readers with read_committed of orders-0 stop at offset 12: ".
    """
    owner = of_coordinator(open_, place.name)
    if owner is not None:
        return waits(owner, place, around, prefix)
    if open_.owner is None and not open_.owner_is_known:
        producer = producer_text(open_.producer_id, open_.producer_epoch)
        return Trouble(
            Cause.UNKNOWN,
            (
                f"{prefix}{producer} has records without a marker from there on.",
                "Whether a coordinator will end its transaction is not known: not every coordinator could be asked.",
                *_away(around),
            ),
        )
    return _hangs(place, open_, prefix)


def _hangs(place: PartitionFacts, open_: OpenInLog, prefix: str) -> Trouble:
    producer = producer_text(open_.producer_id, open_.producer_epoch)
    owner = open_.owner
    if owner is None:
        knows = f"No coordinator knows producer {open_.producer_id}."
    else:
        known = f"{owner.transactional_id} is {owner.state}, without {place.name}"
        knows = f"For its coordinator, node {owner.coordinator}, {known}."
    abort = f"odradek txn abort --partition {place.topic}/{place.index} --start-offset {open_.first_offset}"
    return Trouble(
        Cause.HANGING_TRANSACTION,
        (
            f"{prefix}{'the' if prefix else 'The'} transaction of {producer} hangs: no coordinator will end it.",
            f"Abort it: {abort}",
            f"See first what that shows or hides: {abort} --dry-run",
            knows,
        ),
    )


def _away(around: ClusterContext) -> Iterator[str]:
    """Sentences that name the nodes that are not running, and the commands that start them.

    One of these nodes may be the coordinator.
    """
    nodes = sorted(around.nodes or ())
    gone = all_away(around, nodes)
    if gone:
        yield f"{capital(listed(gone))}."
    yield from waking(around, nodes)


def waits(at: TransactionFacts, place: PartitionFacts | None, around: ClusterContext, prefix: str) -> Trouble:
    """The problem of an open or decided transaction in one of its partitions; ``place`` is None if the partition could
    not be read.
    """
    if is_decided(at):
        return _decided(at, place, around, prefix)
    held = [each for each in around.held if each.transactional_id == at.transactional_id]
    if held:
        return held_trouble(held[0], around, f"{prefix}{who(at)} has an open transaction, and ")
    return _with_coordinator(at, open_transaction(at, around, prefix), around)


def _with_coordinator(at: TransactionFacts, trouble: Trouble, around: ClusterContext) -> Trouble:
    """Return ``trouble``, with a note if the coordinator does not run.

    Without the coordinator neither the client nor the timeout can end the transaction.
    """
    gone = away(around, at.coordinator, ", its coordinator,")
    if gone is None:
        return trouble
    first, *more = trouble.lines
    note = f"{capital(gone)}: nothing ends the transaction before that node runs again."
    return Trouble(trouble.cause, (first, note, *waking(around, [at.coordinator]), *more))


def held_trouble(
    held: HeldByRule, around: ClusterContext, prefix: str = "", cause: Cause = Cause.REQUEST_HELD
) -> Trouble:
    """The problem of a request, or of a step inside the coordinator, that a rule holds."""
    of = held.transactional_id or held.group or held.client_id
    what = f"{held.at}{f' of {of}' if of else ''}"
    first = (
        f"{rule_text(around, held.rule)} holds {what} on node {held.node}, for {duration_text(held.for_ms)}."
    )
    return Trouble(cause, (prefix + first if prefix else capital(first), release(held)))


# -- open -------------------------------------------------------------------------------------------------------


def open_transaction(at: TransactionFacts, around: ClusterContext, prefix: str) -> Trouble:
    """The problem of an open transaction: how long it has been open, and when it times out."""
    ends = f"The client ends it, or: odradek txn abort {at.transactional_id}"
    first = f"{prefix}{who(at)} has an open transaction"
    if at.open_ms is None:
        return Trouble(Cause.OPEN_TRANSACTION, (f"{first}.", ends))
    timeout = duration_text(at.timeout_ms)
    if at.open_ms < 0:
        # Without a control port the age is computed by the client's clock.
        is_known = around.rules is not None
        clock = "the coordinator's clock" if is_known else "this machine's clock"
        why = f"The clock of its coordinator, node {at.coordinator}, went back, or it moved to a node whose clock is behind"
        if not is_known:
            why += ", or this machine's clock is behind"
        return Trouble(
            Cause.BEGINS_IN_THE_FUTURE,
            (
                f"{first}, which begins {duration_text(-at.open_ms)} in the future of {clock}.",
                ends,
                f"{why}: its timeout of {timeout} begins to count then.",
            ),
        )
    opened, left = duration_text(at.open_ms), at.timeout_ms - at.open_ms
    if at.timeout_ms == TIMEOUT_NEVER_MS:
        return Trouble(
            Cause.OPEN_TRANSACTION, (f"{first}, for {opened}; it does not time out (two-phase commit).", ends)
        )
    if left > 0:
        return Trouble(
            Cause.OPEN_TRANSACTION, (f"{first}, for {opened}; it times out in {duration_text(left)}.", ends)
        )
    return Trouble(
        Cause.OPEN_TRANSACTION,
        (
            f"{first}, for {opened}, which is longer than its timeout of {timeout}: "
            "the coordinator aborts it at its next check.",
            ends,
        ),
    )


# -- decided ----------------------------------------------------------------------------------------------------


def _decided(
    at: TransactionFacts, place: PartitionFacts | None, around: ClusterContext, prefix: str
) -> Trouble:
    """The problem of a missing marker: the rule or the leader that prevents it, or for how long it has been missing."""
    where = f" in {place.name}" if place is not None and not prefix else ""
    marker = f"{_marker(at)} of {at.transactional_id}{where}"
    names = at.partitions if place is None else (place.name,)
    for held in around.held:
        if _holds_marker(held, at, names):
            return _held_marker(held, at, names, around, prefix)
    the = f"{prefix}{'the' if prefix else 'The'} {marker}"
    if place is not None:
        blocked = _cut(at, place, around, the) or _leader_away(at, place, around, the)
        if blocked is not None:
            return blocked
    return _late(at, place, around, the)


def _marker(at: TransactionFacts) -> str:
    return f"{'COMMIT' if at.state == 'PrepareCommit' else 'ABORT'} marker"


def _known(at: TransactionFacts) -> str:
    when = "" if at.decided_ms is None else f" {duration_text(at.decided_ms)} ago"
    producer = producer_text(at.producer_id, at.producer_epoch)
    return f"Its coordinator, node {at.coordinator}, has decided{when} ({at.state}, {producer})."


def _held_marker(
    held: HeldByRule, at: TransactionFacts, names: Sequence[str], around: ClusterContext, prefix: str
) -> Trouble:
    """The problem of a marker that a rule holds.

    While a rule names ``txn.marker``, a coordinator writes the markers of a transaction one after the other.
    """
    is_other = bool(held.partitions) and not set(names) & set(held.partitions)
    where = f" in {held.partitions[0]}" if held.partitions and (is_other or not prefix) else ""
    behind = f", and that of {names[0]} comes after it" if is_other else ""
    first = (
        f"{rule_text(around, held.rule)} holds the {_marker(at)} of {at.transactional_id}{where} on node {held.node}, "
        f"for {duration_text(held.for_ms)}{_again(held, at)}{behind}."
    )
    return Trouble(
        Cause.MARKER_HELD, (prefix + first if prefix else capital(first), release(held), _known(at))
    )


def _again(held: HeldByRule, at: TransactionFacts) -> str:
    """Clause with the time since the decision, if the rule holds a repeated WriteTxnMarkers; else empty.

    A coordinator sends WriteTxnMarkers again after a timeout, and the rule holds the new request.
    """
    if held.at != "WriteTxnMarkers" or at.decided_ms is None or at.decided_ms < held.for_ms + RESENT_MS:
        return ""
    return f" this time, {duration_text(at.decided_ms)} after the decision"


def _holds_marker(held: HeldByRule, at: TransactionFacts, names: Sequence[str]) -> bool:
    if held.at not in MARKER_POINTS:
        return False
    if held.transactional_id is not None:
        return held.transactional_id == at.transactional_id
    return bool(set(names) & set(held.partitions))


def _cut(at: TransactionFacts, place: PartitionFacts, around: ClusterContext, the: str) -> Trouble | None:
    cut = link_rule(around, at.coordinator, place.leader)
    if cut is None:
        return None
    first = (
        f"{the} cannot reach node {place.leader}, which leads {place.name}: {rule_text(around, cut)} cuts the link to "
        f"its coordinator, node {at.coordinator}."
    )
    return Trouble(Cause.MARKER_HELD, (first, f"Remove the rule: odradek fault clear {cut}", _known(at)))


def _leader_away(
    at: TransactionFacts, place: PartitionFacts, around: ClusterContext, the: str
) -> Trouble | None:
    if place.leader is None:
        gone = all_away(around, place.candidates)
        why = f"{place.name} has no leader{f' ({listed(gone)})' if gone else ''}"
        nodes = place.candidates
    else:
        leader = away(around, place.leader, f", which leads {place.name},")
        if leader is None:
            return None
        why, nodes = leader, (place.leader,)
    first = f"{the} cannot be written: {why}."
    return Trouble(Cause.MARKER_LEADER_AWAY, (first, *waking(around, nodes), _known(at)))


def _late(at: TransactionFacts, place: PartitionFacts | None, around: ClusterContext, the: str) -> Trouble:
    """The problem of a missing marker, if neither a known rule nor a missing leader explains the delay."""
    suspects = _suspects(around, at)
    is_late = at.decided_ms is not None and at.decided_ms > ON_THE_WAY_MS
    if (suspects or is_late) and place is not None and _is_free(at, place):
        return _not_heard(at, place, around)
    if at.decided_ms is None:
        first = f"{the} is not written yet, though the transaction is decided"
    elif not suspects and not is_late:
        first = f"{the} is on the way, for {duration_text(at.decided_ms)}"
    else:
        first = f"{the} has not been written for {duration_text(at.decided_ms)}"
    lines = [f"{first}{_taken(around, suspects)}."]
    lines += [f"Remove the rule: odradek fault clear {each.rule}" for each in suspects if not each.spent]
    if suspects or is_late:
        lines += _written_again(at, place, around)
    if around.rules is None:
        lines.append(ASK_CONTROL)
    lines.append(_known(at))
    if place is not None:
        lines.append(f"The marker goes to node {place.leader}, which leads {place.name}.")
    return Trouble(Cause.MARKER_ON_THE_WAY, tuple(lines))


def all_written(at: TransactionFacts, held: Sequence[HeldByRule], around: ClusterContext) -> Trouble:
    """The problem of a decided transaction whose markers are all written: only the coordinator's last record is missing."""
    if held:
        return held_trouble(held[0], around)
    last = "CompleteCommit" if at.state == "PrepareCommit" else "CompleteAbort"
    since = "" if at.decided_ms is None else f", decided {duration_text(at.decided_ms)} ago"
    first = (
        f"All markers of {at.transactional_id} are written{since}; its coordinator has yet to write {last}."
    )
    return Trouble(Cause.MARKER_ON_THE_WAY, (first, _known(at)))


def _suspects(around: ClusterContext, at: TransactionFacts) -> list[FaultRule]:
    """Rules that have hit markers without holding them, and so may have dropped the markers of this transaction."""
    return [each for each in around.rules or () if each.hits and _may_take(each, at)]


def _may_take(rule: FaultRule, at: TransactionFacts) -> bool:
    where, named, action = rule.parts
    topics = {each.rpartition("-")[0] for each in at.partitions}
    return (
        where in ("txn.marker", "WriteTxnMarkers")
        and not action.startswith(("hold", "delay"))
        and fnmatchcase(at.transactional_id, named.get("transactional_id", "*"))
        and any(fnmatchcase(topic, named.get("topic", "*")) for topic in topics)
    )


def _taken(around: ClusterContext, suspects: Sequence[FaultRule]) -> str:
    hits = [f"{rule_text(around, each.rule)} has hit {times(each.hits)}" for each in suspects]
    return f": {listed(hits)}, and may have taken it" if hits else ""


def _written_again(
    at: TransactionFacts, place: PartitionFacts | None, around: ClusterContext
) -> Iterator[str]:
    """Sentences on how a lost marker can be written again: by the coordinator's next start, or by a command."""
    if around.rules is not None:
        node = at.coordinator
        yield (
            "If it was lost, the coordinator's next start writes it again: "
            f"odradek node kill {node}; odradek node start {node}"
        )
    opened = () if place is None else place.open
    first = next((each.first_offset for each in opened if each.producer_id == at.producer_id), None)
    if place is not None and first is not None:
        ends = "commit" if at.state == "PrepareCommit" else "abort"
        where = f"--partition {place.topic}/{place.index} --start-offset {first}"
        by_hand = "Write it yourself" if around.rules is None else "Or write it yourself"
        yield f"{by_hand}, which the coordinator does not notice: odradek txn {ends} {where}"


def _is_free(at: TransactionFacts, place: PartitionFacts) -> bool:
    """Whether the producer has no open transaction in the partition: the marker is written, or no record was.

    False if the open transactions of the partition are not all known.
    """
    is_whole = len(place.open) < OPEN_MAX
    return (
        place.log_start is not None
        and not place.advances
        and is_whole
        and all(each.producer_id != at.producer_id for each in place.open)
    )


def _not_heard(at: TransactionFacts, place: PartitionFacts, around: ClusterContext) -> Trouble:
    since = "" if at.decided_ms is None else f", {duration_text(at.decided_ms)} after its decision"
    first = (
        f"{at.transactional_id} has no open transaction in {place.name}, and holds no reader there; its coordinator, "
        f"node {at.coordinator}, has not heard of a marker there{since}."
    )
    until = f"Until it has, {at.transactional_id} begins no other transaction (CONCURRENT_TRANSACTIONS)."
    return Trouble(Cause.MARKER_ON_THE_WAY, (first, until, *_written_again(at, place, around), _known(at)))
