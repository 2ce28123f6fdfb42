"""Explains what a transactional id waits for, and what happened to its transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.explain.coordinators import coordinator_trouble
from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import ClusterContext, IdFacts, Refusal, StateStep, TransactionFacts
from lab.explain.partitions import no_leader, stops
from lab.explain.refusals import fence_of, refusal_troubles, throttle_troubles
from lab.explain.transactions import (
    MARKER_POINTS,
    all_written,
    held_trouble,
    holder,
    is_decided,
    is_open,
    of_coordinator,
    open_transaction,
    waits,
)
from lab.explain.trouble import Trouble, explained
from lab.explain.words import listed, meant, producer_text, time_text, who

PLACES_MAX = 5
"""Largest number of partitions of a transaction for which the reason of a missing marker is shown."""
REFUSED_IS_UNKNOWN = (
    "Requests that were refused are known to the control port of an Odradek broker: set ODRADEK_CONTROL."
)


def explain_id(at: IdFacts, around: ClusterContext) -> Explanation:
    """Explain a transactional id: coordinator, open, decided or hanging transactions, refused requests, and history."""
    of_coordinator = list(_of_coordinator(at, around))
    unknown = [each for each in of_coordinator if each.cause is Cause.UNKNOWN_ID]
    troubles = [each for each in of_coordinator if each not in unknown]
    troubles += [*_of_transaction(at, around), *_hanging(at, around)]
    mine = [each for each in around.refusals if _is_of(at, each)]
    refused = refusal_troubles(around, mine, at.history or ())
    # A refused request that no client retries is worse than a transaction that has not timed out.
    opened = _open(at, around)
    troubles += [each for each in refused if each.is_cause]
    troubles += [opened] if opened is not None else []
    troubles += [each for each in refused if not each.is_cause]
    throttled = [each for each in around.throttles if each.transactional_id == at.transactional_id]
    troubles += [*throttle_troubles(around, throttled), *unknown]
    details = [*_state(at), *_steps(at.history or ())]
    if around.rules is None and at.transaction is not None and not any(each.is_cause for each in troubles):
        details.append(REFUSED_IS_UNKNOWN)
    subject = f"transactional id {at.transactional_id}"
    return explained(subject, troubles, _otherwise(at, around), details, around)


def _is_of(at: IdFacts, each: Refusal) -> bool:
    if each.transactional_id is not None:
        return each.transactional_id == at.transactional_id
    ids = {step.producer_id for step in at.history or ()}
    if at.transaction is not None:
        ids.add(at.transaction.producer_id)
    return each.producer_id is not None and each.producer_id in ids


# -- its coordinator --------------------------------------------------------------------------------------------


def _of_coordinator(at: IdFacts, around: ClusterContext) -> Iterator[Trouble]:
    trouble = coordinator_trouble(at, around)
    if trouble is not None:
        yield trouble
    elif at.is_unknown:
        yield Trouble(
            Cause.UNKNOWN_ID,
            (
                f"No coordinator knows {at.transactional_id}: no producer has used this id, or it has expired"
                f"{meant(at.near)}",
            ),
        )


def _state(at: IdFacts) -> Iterator[str]:
    """A line with the coordinator's state of the transactional id; nothing if a transaction is open or decided."""
    found = at.transaction
    if found is not None and not is_open(found) and not is_decided(found):
        where = f", in {listed(found.partitions)}" if found.partitions else ""
        yield (
            f"{found.transactional_id} is {found.state} at its coordinator, node {found.coordinator}: "
            f"{producer_text(found.producer_id, found.producer_epoch)}{where}."
        )


# -- its transactions -------------------------------------------------------------------------------------------


def _of_transaction(at: IdFacts, around: ClusterContext) -> Iterator[Trouble]:
    """The problems of the current transaction: missing markers, held requests or steps, partitions without a leader."""
    found = at.transaction
    if found is not None and is_decided(found):
        yield from _decided(at, found, around)
    for held in around.held:
        if held.transactional_id == at.transactional_id and held.at not in MARKER_POINTS:
            yield held_trouble(held, around)
    if found is not None and is_open(found):
        for place in at.places:
            if place.name in found.partitions and place.leader is None:
                yield no_leader(place, around)


def _decided(at: IdFacts, found: TransactionFacts, around: ClusterContext) -> Iterator[Trouble]:
    held = [each for each in around.held if each.transactional_id == at.transactional_id]
    if not found.partitions:
        yield all_written(found, held, around)
        return
    read = {place.name: place for place in at.places}
    for name in found.partitions[:PLACES_MAX]:
        yield waits(found, read.get(name), around, "")


def _open(at: IdFacts, around: ClusterContext) -> Trouble | None:
    found = at.transaction
    if found is None or not is_open(found):
        return None
    trouble = open_transaction(found, around, "")
    first, *more = trouble.lines
    where = listed(found.partitions) if found.partitions else "no partition yet"
    return Trouble(trouble.cause, (first, *more, f"It has {where}."))


def _hanging(at: IdFacts, around: ClusterContext) -> Iterator[Trouble]:
    """The problem of each hanging transaction: open in a partition, and the coordinator will not end it."""
    ids = {step.producer_id for step in at.history or ()}
    if at.transaction is not None:
        ids.add(at.transaction.producer_id)
    for place in at.places:
        for each in place.open:
            of_id = each.producer_id in ids or (
                each.owner is not None and each.owner.transactional_id == at.transactional_id
            )
            if of_id and of_coordinator(each, place.name) is None:
                is_first = place.last_stable == each.first_offset
                other = f"A transaction of {place.name} begins at offset {each.first_offset}: "
                yield holder(place, each, around, stops(place) if is_first else other)


# -- its history ------------------------------------------------------------------------------------------------


def _steps(history: Sequence[StateStep]) -> Iterator[str]:
    """A line for each state in ``history``, with the meaning of this state for the client."""
    before: StateStep | None = None
    for step in history:
        where = f"  {' '.join(step.partitions)}" if step.partitions else ""
        line = f"{time_text(step.time_ms)}  {step.state}  {producer_text(step.producer_id, step.producer_epoch)}{where}"
        meaning = "" if before is None else fence_of(step, before)
        fenced = f"  (epoch {before.producer_epoch} is fenced {meaning})" if before and meaning else ""
        yield line + fenced
        before = step


def _otherwise(at: IdFacts, around: ClusterContext) -> Trouble:
    found = at.transaction
    if found is None:
        last = f" Its last state is {at.history[-1].state}." if at.history else ""
        return Trouble(
            Cause.UNKNOWN_ID,
            (f"The coordinator does not know {at.transactional_id} any more: it has expired.{last}",),
        )
    if around.not_asked:
        return Trouble(
            Cause.UNKNOWN,
            (f"As far as could be asked, nothing is wrong with {who(found)}: it is {found.state}.",),
        )
    return Trouble(
        Cause.NOTHING,
        (f"Nothing is wrong with {who(found)}: it is {found.state}, and no transaction of it is open.",),
    )
