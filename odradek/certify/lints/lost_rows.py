"""Why rows, events and requests are lost in runs in which a job uses services besides Kafka.

Each function gets one lost row, and yields a cause only if the exchanges of the trace that concern this row show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.certify.lints.both_ends import BothEnds, Input
from odradek.certify.lints.databases import Block, Effect, Statement
from odradek.certify.lints.evidence import SERVICES_DOCS, Lint, seen_at
from odradek.certify.lints.services import (
    AUTO_COMMIT,
    are_paired,
    conflicting_insert,
    is_automatic,
    removed_early,
)
from odradek.certify.lints.wrong_rows import Wrong, automatic, dual_write, marks, table_of


def prepared_forgotten(wrong: Wrong) -> Iterator[Lint]:
    for block in wrong.ends.blocks_about(wrong.about):
        if block.effect is Effect.PREPARED and not wrong.committed:
            yield forgotten(wrong.ends, block)


def forgotten(ends: BothEnds, block: Block) -> Lint:
    tables = ", ".join(sorted(block.tables))
    pair = ends.pair(block.end_number, None, "neither COMMIT PREPARED nor ROLLBACK PREPARED")
    return seen_at(
        ends.evidence.exchanges[block.end_number],
        "prepared-forgotten",
        f"{pair}: the prepared transaction '{block.gid}' keeps the rows of {tables} invisible and locked, also after a "
        "restart of the job. At each start, read pg_prepared_xacts, and commit or roll back what an earlier process has "
        "left",
        SERVICES_DOCS,
    )


def do_nothing_hides(wrong: Wrong) -> Iterator[Lint]:
    for block in wrong.ends.blocks if wrong.is_row else ():
        for each in block.about(wrong.about, wrong.ends.tables):
            other = conflicting_insert(wrong.ends, each)
            if other is None or not _is_of(wrong, each, other):
                continue
            yield wrong.lint(
                each.number,
                "do-nothing-hides",
                f"{wrong.ends.pair(other.number, each.number)}: ON CONFLICT DO NOTHING skipped a row that differs from the "
                "one that is there, and the job did not notice. Use DO UPDATE, or compare the number of rows and the row",
            )
            return


def _is_of(wrong: Wrong, skipped: Statement, other: Statement) -> bool:
    """Whether the wrong row is the one that was skipped, or the one that hides it."""
    values = frozenset(wrong.about.content.fields.values())
    return bool((skipped.given ^ other.given) & values)


def commit_swallowed(wrong: Wrong) -> Iterator[Lint]:
    done = [] if not wrong.is_row else wrong.committed
    repeated = {each.repeats for block in done for each in block.writes}
    for block in wrong.blocks if wrong.is_row else ():
        said = _failure(block)
        lost = [each for each in block.about(wrong.about, wrong.ends.tables) if each.repeats not in repeated]
        if not said or not lost or wrong.is_killed_at(block.end_number):
            continue
        went_on = _went_on(wrong, block, lost[0])
        if went_on is not None:
            yield wrong.lint(
                block.end_number,
                "commit-swallowed",
                f"{wrong.ends.pair(block.end_number, went_on)}: {said}, and the job went on as if it had committed. Treat "
                "each error of a transaction, and a COMMIT without a response, as a transaction to be repeated",
            )
            return


def _failure(block: Block) -> str:
    """How the transaction failed, as its client has seen it; empty if it did not."""
    end, failed = block.end, block.failed
    if end is None or block.effect not in (Effect.ROLLED_BACK, Effect.UNKNOWN):
        return ""
    what = end.request["kind"]
    if block.effect is Effect.UNKNOWN:
        return f"{what} got no response"
    if failed is not None:
        errors = ", ".join(failed.exchange.errors)
        after = ", COMMIT returned ROLLBACK" if what == "COMMIT" and not end.errors else ""
        return f"{failed.kind} failed ({errors}){after}"
    return f"{what} failed ({', '.join(end.errors)})" if end.errors else ""


def _went_on(wrong: Wrong, block: Block, lost: Statement) -> int | None:
    """Index of the request with which the job went on after a failed transaction: it commits the offset of its record.

    Without an input in Kafka, it is the next COMMIT on the connection.
    """
    for record in wrong.ends.inputs_about(wrong.about, lost):
        commit = wrong.ends.covering(record)
        if (
            commit is not None
            and commit.number > block.end_number
            and not _again(record, block.end_number, commit.number)
        ):
            return commit.number
    if wrong.ends.evidence.inputs:
        return None
    later = (each for each in wrong.ends.blocks if each.peer == block.peer and each.is_committed)
    return next((each.committed_number for each in later if each.committed_number > block.end_number), None)


def _again(record: Input, one: int, two: int) -> bool:
    return any(one < number < two for number in record.numbers)


def dedup_outside_lost(wrong: Wrong) -> Iterator[Lint]:
    """Yield a row that marks the record as processed, was committed alone, and made the job skip the record later."""
    if wrong.committed or (wrong.about.is_event and wrong.ends.blocks_about(wrong.about, wrong.ends.tables)):
        return
    found = marks(wrong)
    for block, mark in found:
        skipped = _skipped_by(wrong, mark, block)
        if block.is_committed and skipped is not None:
            table = table_of(mark)
            yield wrong.lint(
                block.committed_number,
                "dedup-outside-transaction",
                f"{wrong.ends.pair(block.committed_number, skipped.number)}: {table} had the record although its output "
                f"was not committed, so the job skipped it. Write the row of {table} in the transaction of the output",
            )
            return


def _skipped_by(wrong: Wrong, mark: Statement, block: Block) -> Statement | None:
    """The later statement that found the row of ``mark``."""
    for other in wrong.ends.blocks:
        for each in other.statements:
            is_later = each.number > block.committed_number and mark.tables <= each.tables
            if is_later and wrong.about.is_in(each.content) and _finds(each):
                return each
    return None


def _finds(statement: Statement) -> bool:
    if statement.kind == "SELECT":
        return (statement.rows or 0) > 0
    is_refused = "23505" in statement.exchange.errors  # unique_violation
    return is_refused or (statement.skips_conflicts and statement.rows == 0)


def outbox_deleted_early(wrong: Wrong) -> Iterator[Lint]:
    if wrong.is_row or any(each.is_visible for each in wrong.events):
        return
    for early in removed_early(wrong.ends, only_lost=True):
        yield early
        return


def dual_write_lost(wrong: Wrong) -> Iterator[Lint]:
    ends, about = wrong.ends, wrong.about
    if ends.is_captured:
        return
    blocks = [each for each in ends.blocks_about(about) if not each.about(about, ends.relayed)]
    if wrong.is_row:
        sent = [each for each in wrong.events if each.is_visible]
        tried = [each for each in wrong.blocks if each.end_number > sent[0].number] if sent else []
        if sent and not wrong.committed:
            end = tried[0].end_number if tried else None
            yield dual_write(
                wrong, sent[0].visible_number, end, "the COMMIT of the row is missing", is_row_first=False
            )
        return
    done = sorted((each for each in blocks if each.is_committed), key=lambda each: each.committed_number)
    events = wrong.events
    if not done or any(each.is_visible for each in events) or not _are_paired(wrong):
        return
    first = done[0].committed_number
    tried_at = next((each.number for each in events if each.number > first), None)
    what = "no " + ("request" if wrong.is_request else "Produce") + " of the row"
    yield dual_write(wrong, first, tried_at, what, is_row_first=True)


def _are_paired(wrong: Wrong) -> bool:
    """Whether another event of the output has the values of a committed transaction: the job writes both."""
    events = [each for each in wrong.ends.events if each.output == wrong.about.row.topic and each.is_visible]
    return bool(wrong.events) or any(
        are_paired(each, block) for each in events for block in wrong.ends.blocks
    )


def offset_before(wrong: Wrong) -> Iterator[Lint]:
    """Yield the offset commit that marked a record as processed before its row was committed, or its request sent."""
    if not (wrong.is_row or wrong.is_request):
        return
    ends = wrong.ends
    for record in ends.inputs_about(wrong.about):
        commit = ends.covering(record)
        if commit is None or not _is_made_of(wrong, record):
            continue
        done = [each for each in _applied(wrong, record) if not ends.is_over_before(commit.number, each)]
        if done or _failed_before(wrong, record, commit.number):
            continue
        later = [each.end_number for each in wrong.blocks if each.end_number > commit.number]
        later += [each.number for each in wrong.events if each.number > commit.number and not wrong.is_row]
        what = "the COMMIT of the row" if wrong.is_row else "the request"
        pair = ends.pair(commit.number, min(later, default=None), f"{what} is missing")
        topic, partition = record.key
        place = f"{topic}-{partition}@{record.offset}"
        if is_automatic(ends) or any(each.name == AUTO_COMMIT for each in wrong.case.bad.warned):
            yield wrong.lint(commit.number, AUTO_COMMIT, automatic(f"{pair}, for {place}"))
        else:
            name = "offset-before-database" if wrong.is_row else "offset-before-request"
            yield wrong.lint(
                commit.number,
                name,
                f"{pair}: the offset of {place} is committed before {what}, so the next process skips the record. Commit "
                f"offsets after {what}; if the job does not, its client does (enable.auto.commit)",
            )
        return


def _is_made_of(wrong: Wrong, record: Input) -> bool:
    """Whether the row, or the statements that write it, have only values of an input record.

    Otherwise it is unknown which statement applied the record: its values are counted or computed.
    """
    return wrong.about.is_whole_in(record.content) or any(
        each.given and each.given <= other.content.values
        for block in wrong.blocks
        for each in block.about(wrong.about, wrong.ends.tables)
        for other in wrong.ends.inputs
    )


def _applied(wrong: Wrong, record: Input) -> list[int]:
    """Indices of the requests that applied the record: COMMITs of its rows, or requests that the service has handled."""
    if not wrong.is_row:
        return [each.number for each in wrong.events if each.is_visible]
    return [
        block.decided_number
        for block in wrong.ends.blocks
        if block.is_committed
        for each in block.about(wrong.about, wrong.ends.tables)
        if each.given <= record.content.values or len(wrong.ends.inputs_about(wrong.about)) == 1
    ]


def _failed_before(wrong: Wrong, record: Input, number: int) -> bool:
    if not wrong.is_row:
        return any(each.number < number and not wrong.is_killed_at(each.number) for each in wrong.events)
    return any(
        block.end_number < number and block.end is not None and not wrong.is_killed_at(block.end_number)
        for block in wrong.blocks
        if any(each.given <= record.content.values for each in block.about(wrong.about, wrong.ends.tables))
    )


def response_ignored(wrong: Wrong) -> Iterator[Lint]:
    """Yield an HTTP request that failed, or got no response, and whose record's offset was committed nevertheless."""
    failed = [] if any(each.is_visible for each in wrong.events) or not wrong.is_request else wrong.events
    for record in wrong.ends.inputs_about(wrong.about) if failed else ():
        commit = wrong.ends.covering(record)
        last = failed[-1]
        if (
            commit is not None
            and not wrong.is_killed_at(last.number)
            and commit.number > last.number
            and not _again(record, last.number, commit.number)
        ):
            said = ", ".join(last.exchange.errors) or "no response"
            yield wrong.lint(
                last.number,
                "response-ignored",
                f"{wrong.ends.pair(last.number, commit.number)}: the request failed ({said}), and the job committed the "
                "offset of its record nevertheless. Check the status of each response, and repeat the request with the same "
                "key before the offset is committed",
            )
            return


CAUSES_OF_LOST: Final = (
    prepared_forgotten,
    do_nothing_hides,
    commit_swallowed,
    response_ignored,
    dedup_outside_lost,
    outbox_deleted_early,
    dual_write_lost,
    offset_before,
)
"""Those that need the most evidence first."""
