"""Why rows, events and requests are wrong in runs in which a job uses services besides Kafka.

Each function gets one wrong row, and yields a cause only if the exchanges of the trace that concern this row show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from odradek.certify.judging.findings import Kind
from odradek.certify.lints.both_ends import BothEnds
from odradek.certify.lints.databases import Block, Effect, Statement
from odradek.certify.lints.evidence import Lint
from odradek.certify.lints.failures import Case
from odradek.certify.lints.lost_rows import (
    CAUSES_OF_LOST,
    commit_swallowed,
    do_nothing_hides,
    forgotten,
    offset_before,
    prepared_forgotten,
)
from odradek.certify.lints.services import AUTO_COMMIT, is_automatic
from odradek.certify.lints.wrong_rows import Wrong, automatic, dual_write, marks, table_of

Cause = Callable[[Wrong], Iterator[Lint]]


def causes(case: Case) -> Iterator[Lint]:
    """The causes of all wrong rows, and of a run that does not end."""
    ends = BothEnds(case.evidence)
    if not ends.is_used:
        return
    found = False
    for kind, row in case.bad.wrong:
        wrong = Wrong(case, ends, ends.subject(row))
        for cause in _BY_KIND.get(kind, ()):
            lints = list(cause(wrong))
            yield from lints
            found = found or bool(lints)
            if lints:
                break
    if not found and case.bad.is_any(Kind.STUCK):
        yield from (forgotten(ends, each) for each in ends.blocks if each.effect is Effect.PREPARED)


# -- duplicated rows ---------------------------------------------------------------------------------------------------


def _requests_repeated(wrong: Wrong) -> Iterator[Lint]:
    if not wrong.is_request:
        return
    sent = [
        each for each in wrong.events if each.exchange.outcome != "unanswered" or each.exchange.answered_us
    ]
    keys = [str(each.exchange.request.get("idempotency_key") or "") for each in sent]
    records = len(wrong.ends.inputs_about(wrong.about))
    if not sent or (len(set(keys)) == 1 and keys[0]) or 1 < len(sent) <= records:
        return
    one, two = sent[0], sent[-1]
    again = wrong.ends.is_fetched_between(wrong.about, one.number, two.number)
    pair = wrong.ends.pair(one.number, two.number) if len(sent) > 1 else wrong.ends.named(one.number)
    if len(set(filter(None, keys))) > max(1, records):
        name = "new-idempotency-key"
        said = (
            f"the request was sent again with the key {keys[-1]} instead of {keys[0]}, so the service handled both. Derive "
            "the key from the record, or store it before the first attempt"
        )
    elif len(sent) > 1 and not one.is_known and not again:
        name = "post-retried"
        said = (
            "the service had handled the request, its response was lost or an error, and the client sent it again without "
            "an Idempotency-Key. Send one that each retry repeats"
        )
    else:
        name = "no-idempotency-key"
        said = f"the request was {'sent for the same record again' if len(sent) > 1 else 'delivered twice'}"
        said += (
            ", and has no Idempotency-Key by which the service could know it. Derive a key from the record"
        )
    yield wrong.lint(two.number, name, f"{pair}: {said}")


def _dedup_outside_twice(wrong: Wrong) -> Iterator[Lint]:
    if not wrong.is_row or len(wrong.committed) < 2:
        return
    first, second = wrong.committed[0], wrong.committed[1]
    found = marks(wrong)
    is_inside = any(block in (first, second) for block, _ in found)
    looked = [
        each
        for block in wrong.ends.blocks
        for each in block.statements
        if each.kind == "SELECT" and each.rows == 0 and wrong.about.is_in(each.content)
    ]
    outside = [block for block, _ in found if block not in (first, second)]
    if outside and not is_inside:
        table = table_of(found[0][1])
        yield wrong.lint(
            second.committed_number,
            "dedup-outside-transaction",
            f"{wrong.ends.pair(first.committed_number, second.committed_number)}: the row of {table} that marks the record "
            "as processed is in another transaction than the output, and was missing at the second. Write both in one",
        )
        return
    blind = [each for each in looked if each.number < first.committed_number and _precedes(second, each)]
    if blind:
        yield wrong.lint(
            blind[-1].number,
            "dedup-outside-transaction",
            f"{wrong.ends.pair(first.committed_number, second.committed_number)}: both looked the record up with SELECT "
            f"in {table_of(blind[-1])} before either had committed. Insert a row with a unique key in the same transaction",
        )


def _precedes(block: Block, lookup: Statement) -> bool:
    """Whether the connection of the transaction has sent the lookup before its writes."""
    return lookup.exchange.peer == block.peer and lookup.number < block.statements[-1].number


def _commit_retried(wrong: Wrong) -> Iterator[Lint]:
    for one, two in _twice(wrong):
        end = one.end
        is_lost = end is not None and end.outcome == "answer_lost"
        again = wrong.ends.is_fetched_between(wrong.about, one.committed_number, two.statements[0].number)
        if is_lost and not again and wrong.ends.evidence.inputs:
            yield wrong.lint(
                two.committed_number,
                "commit-retried",
                f"{wrong.ends.pair(one.committed_number, two.committed_number)}: the response to the first COMMIT was lost, "
                "but the transaction was committed, and the job executed it again. Write rows that can be repeated (a "
                "unique key of the record), or look up whether they are there",
            )
            return


def _twice(wrong: Wrong) -> Iterator[tuple[Block, Block]]:
    done = wrong.committed if wrong.is_row else []
    return pairwise(done)


def _positions_apart(wrong: Wrong) -> Iterator[Lint]:
    """Yield rows that were written again because the offset was not committed in the transaction of the first ones."""
    for one, two in _twice(wrong):
        if not wrong.ends.is_fetched_between(wrong.about, one.committed_number, two.statements[0].number):
            continue
        records = wrong.ends.inputs_about(wrong.about)
        late = [each for each in map(wrong.ends.covering, records) if each is not None]
        after = min((each.number for each in late if each.number > one.committed_number), default=None)
        pair = wrong.ends.pair(one.committed_number, two.committed_number)
        if is_automatic(wrong.ends) or any(each.name == AUTO_COMMIT for each in wrong.case.bad.warned):
            yield wrong.lint(two.committed_number, AUTO_COMMIT, automatic(pair))
            return
        where = "with OffsetCommit" if after is not None or wrong.ends.commits else "outside Kafka"
        yield wrong.lint(
            two.committed_number,
            "offsets-outside",
            f"{pair}: the job stores its offsets {where}, and not in the transaction of the rows, so it wrote the rows of a "
            "record again. Store the offsets in the database in the same transaction, or write rows that can be repeated",
        )
        return


def _dual_write_twice(wrong: Wrong) -> Iterator[Lint]:
    """Yield events that were sent again because the first one was sent before the row's transaction was committed."""
    events = [each for each in wrong.events if each.is_visible]
    if wrong.is_row or len(events) < 2:
        return
    ends, first = wrong.ends, events[0]
    relayed = [each for each in ends.blocks if each.tables & ends.relayed]
    blocks = [each for each in ends.blocks_about(wrong.about) if not each.about(wrong.about, ends.relayed)]
    done = [each.committed_number for each in blocks if each.is_committed]
    if relayed or ends.is_captured or not blocks or any(number < first.number for number in done):
        return
    tried = [each.end_number for each in blocks if each.end_number > first.number]
    yield dual_write(
        wrong,
        first.visible_number,
        min(tried, default=None),
        "the COMMIT of the row is missing",
        is_row_first=False,
    )


# -- changed rows ------------------------------------------------------------------------------------------------------


def _not_idempotent(wrong: Wrong) -> Iterator[Lint]:
    """Yield a statement that changes a value relative to the old one, and was committed more often than it has records."""
    done: dict[tuple[object, ...], list[tuple[Block, Statement]]] = {}
    for block in wrong.ends.blocks if wrong.is_row else ():
        for each in block.about(wrong.about, wrong.ends.tables) if block.is_committed else ():
            if each.is_increment:
                done.setdefault(each.repeats, []).append((block, each))
    for found in done.values():
        records = [each for each in wrong.ends.inputs_about(wrong.about, found[0][1])]
        of_it = [each for each in records if found[0][1].given <= each.content.values]
        (one, _), (two, again) = found[0], found[-1]
        if of_it and len(found) > len(of_it):
            yield wrong.lint(
                again.number,
                "not-idempotent-upsert",
                f"{wrong.ends.pair(one.committed_number, two.committed_number)}: both have the same {again.kind} of "
                f"{table_of(again)}, which adds to the old value, so the second adds it again. Insert the id of the record "
                "into an inbox table in the same transaction, or set values that do not depend on the old ones",
            )
            return


_TWICE: Final[tuple[Cause, ...]] = (
    _requests_repeated,
    _dedup_outside_twice,
    _commit_retried,
    _positions_apart,
    _dual_write_twice,
)
_OTHER: Final[tuple[Cause, ...]] = (
    _not_idempotent,
    prepared_forgotten,
    do_nothing_hides,
    commit_swallowed,
    offset_before,
)
_BY_KIND: Final = {
    Kind.LOST: CAUSES_OF_LOST,
    Kind.DUPLICATED: _TWICE,
    Kind.CHANGED: _OTHER,
    Kind.UNEXPECTED: _OTHER,
}
"""For each kind of wrong row the functions that find causes, those that need the most evidence first."""
