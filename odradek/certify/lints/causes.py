"""Find the causes of a failed run: the lints whose exchanges are in the causal past of the bad records.

A lint shows that a job does something dangerous. A lint is reported as the cause only if the trace shows that it concerns
the lost or duplicated records. If no cause can be shown, none is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from odradek.certify.exchanges import Exchange, batches
from odradek.certify.judging.findings import Kind
from odradek.certify.lints import (
    clients,
    consumers,
    deliveries,
    positions,
    producers,
    progress,
    service_causes,
    share_groups,
)
from odradek.certify.lints.commits import Commit
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.failures import Bad, Case, Write
from odradek.certify.lints.reading import asked_for, read_again
from odradek.certify.lints.transactions import Transaction
from odradek.certify.services.specs import is_service

_MISSING: Final = (Kind.LOST, Kind.TORN)
_USUAL: Final = frozenset(
    {"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT"}
)
"""Errors that clients get in healthy clusters too, and handle without the job."""
_TAKES_A_PLACE: Final = frozenset({"freeze", "second-copy", "remove-instance"})
"""Faults for which the certifier itself runs two instances with the same number, or replaces an instance."""


def diagnosed(evidence: Evidence, bad: Bad) -> list[Lint]:
    """The causes of the failure, the likeliest first; empty if the trace shows none."""
    case = Case(evidence, bad)
    found: dict[str, Lint] = {}
    for causes in (_CAUSES, _LESS_EXACT, _LAST):
        for cause in causes if not found else ():
            for each in cause(case):
                found.setdefault(each.name, each)
    return list(found.values())


# -- duplicated records ------------------------------------------------------------------------------------------------


def _of_second(case: Case, found: Iterable[Lint]) -> Iterator[Lint]:
    """Yield the lints in ``found`` whose exchange is in a transaction that wrote a duplicate after the first copy.

    If the only finding is a refusal by the user's check, yield all lints.
    """
    for each in found:
        shown = case.transaction_of(each.shown)
        if any(shown is not None and two.transaction is shown for _, two in case.pairs) or _is_refused_only(
            case
        ):
            yield each


def _is_refused_only(case: Case) -> bool:
    """Whether the only finding is that the user's check refused the outputs, without a kind such as "lost"."""
    return case.bad.kinds == {Kind.REFUSED}


def _same_batch(case: Case) -> Iterator[Lint]:
    return _of_second(case, deliveries.same_batch(case.evidence))


def _without_positions(case: Case) -> Iterator[Lint]:
    for each in deliveries.outputs_without_positions(case.evidence):
        shown = case.transaction_of(each.shown)
        if any(one.transaction is shown or two.transaction is shown for one, two in case.pairs):
            yield each


def _position_back(case: Case) -> Iterator[Lint]:
    for each in progress.position_back(case.evidence):
        assert each.shown is not None
        number = case.number(each.shown)
        if any(one.number < number < two.number for one, two in case.pairs):
            yield each


def _revoked(case: Case) -> Iterator[Lint]:
    for each in progress.revoked_batch(case.evidence):
        assert each.shown is not None
        number = case.number(each.shown)
        wrote = any(_is_outside(write) and write.number < number for pair in case.pairs for write in pair)
        if wrote and not case.is_injected(each.shown):
            yield each
    for each in progress.stale_batch(case.evidence):
        shown = case.transaction_of(each.shown)
        if any(write.transaction is shown for write in case.repeated):
            yield each


def _not_fenced(case: Case) -> Iterator[Lint]:
    """Yield the lints on fencing if two producers wrote the same record, and the group did not fence one of them.

    That producer committed, without a member id, an offset that is not above the previously committed offset.
    """
    late = [
        each
        for one, two in case.pairs
        if one.transaction and two.transaction and _are_others(one, two)
        for each in (one.transaction, two.transaction)
        if _is_not_new(case, each)
    ]
    unnamed = [each for each in late if not any(one.request.get("member_id") for one in each.positions)]
    if not unnamed:
        return
    yield from consumers.no_fencing(case.evidence)
    yield from (each for each in case.bad.warned if each.name == "changing-id")


def _are_others(one: Write, two: Write) -> bool:
    """Whether two producers sent ``one`` and ``two``: the producer ids or the transactional ids differ."""
    ours, theirs = one.exchange, two.exchange
    are_other = (
        ours.producer is not None and theirs.producer is not None and ours.producer[0] != theirs.producer[0]
    )
    return are_other or ours.transactional_id != theirs.transactional_id


def _is_not_new(case: Case, transaction: Transaction) -> bool:
    """Whether the transaction commits an offset that is not above the partition's previously committed offset."""
    sent = {id(each) for each in transaction.positions}
    return any(
        each.was_known and each.offset <= each.before for each in case.commits if id(each.exchange) in sent
    )


def _held_up_by_another_id(case: Case) -> Iterator[Lint]:
    """Yield the lint `changing-id` if a transaction stays open and the job has used several transactional ids.

    No producer fences the old id, so the transaction stays open until its timeout.
    """
    last = case.evidence.transactional_ids
    is_open = any(each.end is None and (each.outputs or each.positions) for each in case.transactions)
    if case.bad.is_any(Kind.STUCK) and (case.bad.is_held_up or is_open) and len(last) > 1:
        yield from (each for each in case.bad.warned if each.name == "changing-id")


def _uncommitted_input(case: Case) -> Iterator[Lint]:
    """Yield lints of read_uncommitted consumers, if input records were aborted during this run.

    Aborted records that the certifier writes as input do not count: runs without faults contain them too.
    """
    aborts = "abort-input" in case.bad.faults
    aborts = aborts or any(
        not each.is_committed and each.end is not None and case.evidence.inputs & set(one.topics)
        for each in case.transactions
        for one in each.outputs
    )
    if aborts and case.bad.is_any(Kind.UNEXPECTED, Kind.DUPLICATED, Kind.CHANGED, Kind.REFUSED):
        yield from consumers.read_uncommitted(case.evidence)
        yield from share_groups.share_read_uncommitted(case.evidence)


# -- records outside transactions --------------------------------------------------------------------------------------


def _is_outside(write: Write) -> bool:
    return write.exchange.transactional_id is None


def _outside(case: Case) -> Iterator[Lint]:
    """Yield the lints of requests outside transactions that wrote the bad records or explain lost ones."""
    written = {id(each.exchange) for pair in case.pairs for each in pair}
    written |= {id(found.exchange) for each in case.bad.strange if (found := case.write_of(each)) is not None}
    for lints in (producers.known_sinks, producers.second_producer, producers.weak_producer):
        for each in lints(case.evidence):
            is_written = id(each.shown) in written and (each.name != "weak-producer" or _is_at_fault(case))
            if is_written or _loses(case, each):
                yield each


def _is_at_fault(case: Case) -> bool:
    """Whether a producer without transactions explains the duplicates. Otherwise the job has read its input again.

    The producer explains them if the job has transactional producers too, or if the client sent a batch twice.
    """
    return bool(case.evidence.transactional_ids) or any(_is_resent(*pair) for pair in case.pairs)


def _is_resent(one: Write, two: Write) -> bool:
    marks = [
        {
            (topic, part, each.get("base_timestamp_ms"), each.get("count"))
            for topic, part, each in batches(write.exchange)
        }
        for write in (one, two)
    ]
    return bool(marks[0] & marks[1])


def _loses(case: Case, lint: Lint) -> bool:
    """Whether a request outside transactions explains the torn or lost records.

    Records are torn if one output topic has the records of a key and another has not. A transaction with the
    records of both topics would prevent this.
    """
    assert lint.shown is not None
    topics = set(lint.shown.topics)
    if case.bad.is_any(Kind.TORN) and lint.name in ("weak-producer", "second-producer"):
        return True
    is_weak = lint.shown.request.get("acks") != -1 and not all(case.bad.missing)
    return case.bad.is_any(Kind.LOST) and is_weak and bool(topics & case.bad.missing_in)


def _positions_outside(case: Case) -> Iterator[Lint]:
    """Yield lints of offsets committed outside transactions, if input was read again or skipped."""
    if progress.positions_elsewhere(case.evidence) is not None or _is_elsewhere(case):
        return
    moved = consumers.ahead_of_transactions(case.evidence)
    if moved and (_was_read_again(case) or _was_passed_over(case, moved)):
        yield from consumers.offsets_outside(case.evidence)


def _commits_by_itself(case: Case) -> Iterator[Lint]:
    return (each for each in _positions_outside(case) if each.name == "auto-commit")


def _was_read_again(case: Case) -> bool:
    again = [each.number for each in read_again(case.evidence)]
    apart = [two.number for one, two in case.pairs if not _has_positions(one) and not _has_positions(two)]
    if _is_refused_only(case):
        return bool(again)
    return any(number < wrote for number in again for wrote in apart)


def _has_positions(write: Write) -> bool:
    return write.transaction is not None and bool(write.transaction.positions)


def _was_passed_over(case: Case, moved: Iterable[Commit]) -> bool:
    """Whether a consumer may have skipped records because of the commits ``moved``, which were made too early.

    A consumer started at one of these offsets, or a transaction with outputs was aborted after one of these commits.
    """
    if not case.bad.is_any(*_MISSING, Kind.REFUSED):
        return False
    starts = [(number, key, offset) for number, key, offset, is_new in asked_for(case.evidence) if is_new]
    unsafe = [
        case.number(each.end)
        for each in case.transactions
        if each.end is not None and not each.is_committed and each.outputs
    ]
    return any(
        any(
            number > each.number and (key, offset) == (each.key, each.offset)
            for number, key, offset in starts
        )
        or any(each.number < number for number in unsafe)
        for each in moved
    )


# -- lost records ------------------------------------------------------------------------------------------------------


def _refused_batches(case: Case) -> Iterator[Lint]:
    """Yield lints of rejected batches that the job ignored. The certifier may have injected the rejection."""
    is_lost = case.bad.is_any(*_MISSING) and not all(case.bad.missing)
    ignored = deliveries.delivery_ignored(case.evidence, is_lost=is_lost)
    for each in (*producers.unawaited(case.evidence), *ignored):
        assert each.shown is not None
        is_theirs = bool(case.bad.missing_in & set(each.shown.topics)) and case.bad.is_any(*_MISSING)
        if is_theirs or _is_refused_only(case):
            yield each


def _not_aborted(case: Case) -> Iterator[Lint]:
    for each in deliveries.abort_missing(case.evidence):
        if case.bad.is_any(*_MISSING, Kind.STUCK, Kind.REFUSED) or _is_first(case, each):
            yield each


def _is_first(case: Case, lint: Lint) -> bool:
    """Whether the transaction whose rejected request ``lint`` shows wrote the first copy of a duplicated record."""
    refused = [each for each in case.transactions if any(one is lint.shown for one in each.refused)]
    return any(one.transaction is each for one, _ in case.pairs for each in refused)


def _ahead(case: Case) -> Iterator[Lint]:
    """Yield lints of offsets committed before the outputs, if some lost records were never written.

    Records in aborted transactions count as written.
    """
    if case.bad.is_any(*_MISSING) and not all(case.bad.missing):
        yield from progress.positions_ahead(case.evidence)
        yield from progress.commits_ahead(case.evidence, case.bad.expected)


def _not_rewound(case: Case) -> Iterator[Lint]:
    if not case.bad.is_any(*_MISSING, Kind.REFUSED) or _is_elsewhere(case):
        return
    for each in positions.no_rewind(case.evidence):
        assert each.shown is not None
        ours = case.producers_of(each.shown.transactional_id)
        aborted = [place.producer[0] for places in case.bad.missing for place in places if place.producer]
        if not aborted or not all(case.bad.missing) or ours & set(aborted):
            yield each


def _early(case: Case) -> Iterator[Lint]:
    if case.bad.is_any(*_MISSING, Kind.STUCK, Kind.REFUSED) and not _is_elsewhere(case):
        yield from positions.reported_early(case.evidence)


def _is_elsewhere(case: Case) -> bool:
    """Whether all wrong rows are in outputs that are not topics. Then records of topics explain nothing."""
    return bool(case.bad.wrong) and all(is_service(row.topic) for _, row in case.bad.wrong)


# -- share groups ------------------------------------------------------------------------------------------------------


def _acknowledged_early(case: Case) -> Iterator[Lint]:
    if case.bad.is_any(*_MISSING) and not all(case.bad.missing):
        yield from share_groups.acknowledged_early(case.evidence, case.bad.expected)


def _given_up(case: Case) -> Iterator[Lint]:
    if case.bad.is_any(*_MISSING) and not all(case.bad.missing):
        yield from share_groups.released_to_limit(case.evidence)


def _redelivered(case: Case) -> Iterator[Lint]:
    """Yield the lints of deliveries between the two copies of a duplicated record, if a share group delivered its input."""
    for each in (*share_groups.never_renews(case.evidence), *share_groups.redelivered(case.evidence)):
        assert each.shown is not None
        number = case.number(each.shown)
        if any(each.name == "never-renews" or number < two.number for _, two in case.pairs):
            yield each


# -- runs that do not end ----------------------------------------------------------------------------------------------


def _never_ends(case: Case) -> Iterator[Lint]:
    if case.bad.is_any(Kind.STUCK):
        dropped = clients.only_broker_dropped(case.evidence.exchanges, case.bad.exits)
        yield from producers.shared_id(_of_the_job(case))
        yield from producers.used_on(case.evidence)
        yield from () if dropped is None or _waits_for_service(case) else (dropped,)


def _waits_for_service(case: Case) -> bool:
    """Whether the last request at a service, such as a statement that waits for a lock, got no response."""
    last = next((each for each in reversed(case.evidence.exchanges) if each.service), None)
    return last is not None and last.outcome in ("in_progress", "unanswered")


def _of_the_job(case: Case) -> Evidence:
    """The trace of the failure; only up to the first fault if the plan has a fault of `_TAKES_A_PLACE`.

    After such a fault two instances may use one transactional id, and the certifier is the cause, not the job.
    """
    if not case.bad.faults & _TAKES_A_PLACE:
        return case.evidence
    return replace(case.evidence, exchanges=case.evidence.exchanges[: min(case.hits, default=0)])


def _too_slow(case: Case) -> Iterator[Lint]:
    """Yield the lint of a slow transaction if a producer with its transactional id got a fencing error.

    The coordinator then has aborted a transaction of the producer after the timeout: nothing else fences this producer.
    """
    for each in producers.short_time_out(case.evidence):
        assert each.shown is not None
        if any(_is_fenced(case, one, each.shown.transactional_id) for one in case.evidence.exchanges):
            yield each


def _is_fenced(case: Case, exchange: Exchange, transactional_id: str | None) -> bool:
    is_theirs = exchange.transactional_id == transactional_id and not case.is_injected(exchange)
    return is_theirs and bool(producers.FATAL & set(exchange.errors))


def _ended_early(case: Case) -> Iterator[Lint]:
    """Yield a lint if the job ended after a rejected request or a lost response, or because a poll returned nothing."""
    ended = [instance for instance, code in case.bad.exits if code == 0]
    if not case.bad.is_any(Kind.UNFINISHED) or not ended:
        return
    said = f"instance {ended[-1]} ended with code 0 although input was left"
    struck = [each for each in case.evidence.exchanges if case.is_injected(each)]
    failed = struck or [each for each in case.evidence.exchanges if set(each.errors) - _USUAL]
    if failed:
        what = ", ".join(dict.fromkeys(failed[-1].errors)) or "without a response"
        advice = f"{failed[-1].api} had failed ({what}). End with a nonzero code after an error"
        yield seen_at(failed[-1], "ended-early", f"{said}: {advice}")
    else:
        advice = "an empty poll does not mean the end of a topic. Compare with the end offsets"
        yield Lint("ended-early", f"{said}: {advice}, or run until the job is asked to stop")


def _waits_for_nothing(case: Case) -> Iterator[Lint]:
    is_stuck = case.bad.is_any(Kind.STUCK) and not case.bad.is_held_up and not case.bad.exits
    elsewhere = progress.positions_elsewhere(case.evidence)
    yield from (elsewhere,) if is_stuck and elsewhere is not None else ()


_CAUSES: Final[tuple[Callable[[Case], Iterator[Lint]], ...]] = (
    _ended_early,
    service_causes.causes,
    _same_batch,
    _refused_batches,
    _not_aborted,
    _without_positions,
    _position_back,
    _uncommitted_input,
    _early,
    _not_rewound,
    _outside,
    _revoked,
    _not_fenced,
    _never_ends,
    _held_up_by_another_id,
    _too_slow,
    _acknowledged_early,
    _given_up,
)
"""The functions that find causes, those that need the most evidence first."""
_LESS_EXACT: Final[tuple[Callable[[Case], Iterator[Lint]], ...]] = (_commits_by_itself, _ahead, _redelivered)
"""Functions that find offsets committed separately from the outputs, or too early. Used if `_CAUSES` find no cause."""
_LAST: Final[tuple[Callable[[Case], Iterator[Lint]], ...]] = (_positions_outside, _waits_for_nothing)
