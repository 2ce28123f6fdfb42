"""Lints on jobs that use a database or an HTTP service besides Kafka: what their runs without faults show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints import consumers, contents
from odradek.certify.lints.both_ends import BothEnds, Event, Input
from odradek.certify.lints.databases import Block, Effect, Statement
from odradek.certify.lints.evidence import DOCS, SERVICES_DOCS, Evidence, Lint, seen_at

AUTO_COMMIT: Final = "auto-commit"
_PAIRS_MIN: Final = 2
"""Minimum number of records that must show an order of requests before the order counts as the job's."""


def lints(evidence: Evidence) -> list[Lint]:
    """The first occurrence of each lint on services; empty if the job uses none."""
    ends = BothEnds(evidence)
    if not ends.is_used:
        return []
    return [found for each in _LINTS if (found := next(each(ends), None)) is not None]


def _lint(ends: BothEnds, number: int, name: str, sentence: str) -> Lint:
    return seen_at(
        ends.evidence.exchanges[number], name, sentence, DOCS if name == AUTO_COMMIT else SERVICES_DOCS
    )


# -- events beside a database ------------------------------------------------------------------------------------------


def are_paired(event: Event, block: Block) -> bool:
    """Whether a write of the committed transaction has the values of the event, or the event's key."""
    key = event.subject.key
    return block.is_committed and any(
        bool(each.given) and (key in each.given or each.given <= event.content.values)
        for each in block.writes
    )


def _dual_write(ends: BothEnds) -> Iterator[Lint]:
    """Yield a lint if events are sent beside the transactions of their rows, always in the same order."""
    pairs = []
    for event in ends.events:
        blocks = [each for each in ends.blocks if each.tables & ends.tables and are_paired(event, each)]
        is_relayed = any(each.about(event.subject, ends.relayed) for each in ends.blocks)
        if (
            event.is_visible
            and ends.is_output(event)
            and len(blocks) == 1
            and not is_relayed
            and not blocks[0].gid
        ):
            pairs.append((event, blocks[0].committed_number))
    orders = {
        (ends.is_over_before(committed, event.number), ends.is_over_before(event.visible_number, committed))
        for event, committed in pairs
    }
    if len(pairs) < _PAIRS_MIN or len(orders) > 1 or ends.is_captured or (False, False) in orders:
        return
    event, committed = pairs[0]
    one, two = sorted((committed, event.visible_number))
    order = (
        "the row is committed before the event is sent"
        if orders == {(True, False)}
        else ("the event is sent before the row is committed")
    )
    yield _lint(
        ends,
        one,
        "dual-write",
        f"{ends.pair(one, two)}: {order}, in no common transaction, so a crash in between leaves one of them. Write the "
        "event into an outbox table in the transaction of the row, and send it from there",
    )


def removed_early(ends: BothEnds, *, only_lost: bool = False) -> Iterator[Lint]:
    """Yield deletions of outbox rows that were committed before the responses to their events.

    The lint counts: rows that a relay has read and removed, and events that were acknowledged since it read them. With
    ``only_lost``, only if some of the events were never acknowledged before the relay read the table again.
    """
    for table in sorted(ends.relayed):
        removing = _removals(ends, table)
        starts = sorted(
            each.number
            for block in ends.blocks
            for each in block.statements
            if table in each.tables and each.returns_rows
        )
        for at, start in enumerate(starts):
            limit = starts[at + 1] if at + 1 < len(starts) else len(ends.evidence.exchanges)
            sent = [each for each in ends.events if start < each.number < limit and ends.is_output(each)]
            done = [each for each in sent if each.is_visible]
            removed = 0
            for block, rows in removing:
                if not start <= block.statements[-1].number < limit:
                    continue
                removed += rows
                commit = ends.evidence.exchanges[block.committed_number]
                known = sum(_answered_us(each) <= commit.arrived_us for each in done)
                if known < removed and (not only_lost or len(done) < _total(removing, start, limit)):
                    yield _removed_early(ends, table, block, sent, known, removed)
                    break


def _total(removing: list[tuple[Block, int]], start: int, limit: int) -> int:
    return sum(rows for block, rows in removing if start <= block.statements[-1].number < limit)


def _answered_us(event: Event) -> int:
    return event.exchange.answered_us or event.exchange.arrived_us


def _removed_early(
    ends: BothEnds, table: str, block: Block, sent: list[Event], known: int, removed: int
) -> Lint:
    commit = block.committed_number
    late = next(
        (each.number for each in sent if _answered_us(each) > ends.evidence.exchanges[commit].arrived_us),
        None,
    )
    first, second = (late, commit) if late is not None and late < commit else (commit, late)
    what = "Produce" if not sent or not sent[0].exchange.service else "request"
    return _lint(
        ends,
        commit,
        "outbox-deleted-early",
        f"{ends.pair(first, second, f'no {what} of the event')}: {removed} rows of {table} are deleted or marked when "
        f"{known} of their events are acknowledged: an event whose {what} fails is lost. Delete a row after the response to "
        "its event",
    )


def _removals(ends: BothEnds, table: str) -> list[tuple[Block, int]]:
    """The committed transactions that remove rows of the outbox, each with the number of rows.

    Rows are removed by DELETE, otherwise by the last kind of UPDATE: an earlier one may only claim them for a relay.
    """
    found = [
        (block, each)
        for block in ends.blocks
        for each in block.writes
        if block.is_committed and table in each.tables and each.kind in ("DELETE", "UPDATE") and each.rows
    ]
    deleting = [each for each in found if each[1].kind == "DELETE"]
    last = found[-1][1].sql if found else ""
    return [(block, each.rows or 0) for block, each in deleting or found if deleting or each.sql == last]


# -- offsets -----------------------------------------------------------------------------------------------------------


def is_automatic(ends: BothEnds) -> bool:
    """Whether the consumer commits its offsets independently of its work.

    It commits at regular intervals, or sometimes before a record's transaction is committed, and then while the transaction
    is open, and sometimes after it.
    """
    if consumers.is_automatic(ends.evidence):
        return True
    orders = set()
    for block in ends.blocks:
        for each in block.writes if block.tables & ends.tables else ():
            record = only_input(ends, each)
            commit = ends.covering(record) if record is not None else None
            if commit is None:
                continue
            is_late = 0 <= block.decided_number < commit.number
            is_inside = not is_late and commit.number > each.number
            orders.add("after" if is_late else "inside" if is_inside else "before")
    return {"after", "inside"} <= orders


def only_input(ends: BothEnds, statement: Statement) -> Input | None:
    """The input record of a statement; None if no record has all values of the statement, or several have."""
    given = statement.given
    found = [each for each in ends.inputs if given and given <= each.content.values]
    return found[0] if len(found) == 1 else None


def _offset_before(ends: BothEnds) -> Iterator[Lint]:
    for block in ends.blocks:
        for each in block.writes if block.is_committed and block.tables & ends.tables else ():
            record = only_input(ends, each)
            commit = ends.covering(record) if record is not None else None
            if (
                record is None
                or commit is None
                or not ends.is_over_before(commit.number, block.decided_number)
            ):
                continue
            topic, partition = record.key
            name = AUTO_COMMIT if is_automatic(ends) else "offset-before-database"
            yield _lint(
                ends,
                commit.number,
                name,
                f"{ends.pair(commit.number, block.committed_number)}: the offset of {topic}-{partition}@{record.offset} is "
                "committed before the row, so a crash in between loses the row. Commit offsets after the database's COMMIT, "
                "or in it (and set enable.auto.commit=false)",
            )


# -- statements --------------------------------------------------------------------------------------------------------


def _not_idempotent(ends: BothEnds) -> Iterator[Lint]:
    for block in ends.blocks:
        alone = block.tables <= ends.tables
        for each in block.writes if block.is_committed and alone else ():
            if each.is_increment and each.tables & ends.tables:
                yield _lint(
                    ends,
                    each.number,
                    "not-idempotent-upsert",
                    f"{ends.named(each.number)}: the statement adds to the old "
                    f"value of {', '.join(sorted(each.tables))}, and its transaction has no row that marks the record as "
                    "processed: a repeated record is added twice. Insert the id of the record into an inbox table in the "
                    "same transaction",
                )


def conflicting_insert(ends: BothEnds, statement: Statement) -> Statement | None:
    """The earlier INSERT whose different row made ON CONFLICT DO NOTHING skip this statement; None if there is none."""
    if not (statement.skips_conflicts and statement.rows == 0 and statement.tables & ends.tables):
        return None
    ours = contents.given(statement.exchange)
    best: tuple[int, Statement | None] = (0, None)
    for block in ends.blocks:
        for each in block.writes if block.is_committed else ():
            theirs = contents.given(each.exchange)
            if (
                each.number >= statement.number
                or each.sql != statement.sql
                or not each.rows
                or len(theirs) != len(ours)
            ):
                continue
            equal = sum(one == two for one, two in zip(ours, theirs, strict=True))
            if equal == len(ours):
                return None
            best = max(best, (equal, each), key=lambda found: found[0])
    return best[1]


def _do_nothing_hides(ends: BothEnds) -> Iterator[Lint]:
    for block in ends.blocks:
        for each in block.writes:
            other = conflicting_insert(ends, each)
            if other is not None:
                yield _lint(
                    ends,
                    each.number,
                    "do-nothing-hides",
                    f"{ends.pair(other.number, each.number)}: ON CONFLICT DO NOTHING skipped a row that differs from the "
                    "one that is there. Use DO UPDATE, or compare the number of rows and the row",
                )


def _dedup_outside(ends: BothEnds) -> Iterator[Lint]:
    """Yield rows that mark records as processed, but are committed in other transactions than the outputs."""
    pairs = []
    for mark in ends.blocks:
        if not mark.is_committed or mark.tables & (ends.tables | ends.relayed):
            continue
        for each in mark.writes:
            output = next((block for block in ends.blocks if _writes_with(ends, block, each)), None)
            if output is not None and _is_lookup(ends, each):
                pairs.append((mark, output, each))
    if len(pairs) < _PAIRS_MIN:
        return
    mark, output, each = pairs[0]
    one, two = sorted((mark.committed_number, output.committed_number))
    yield _lint(
        ends,
        one,
        "dedup-outside-transaction",
        f"{ends.pair(one, two)}: the row of {', '.join(sorted(each.tables))} that marks the record as processed "
        "is in another transaction than the output: a crash in between loses or duplicates the output. Write both in one "
        "transaction",
    )


def _writes_with(ends: BothEnds, block: Block, mark: Statement) -> bool:
    """Whether the transaction writes an output with all values of the mark."""
    return block.is_committed and any(
        bool(mark.given) and mark.given <= each.given for each in block.writes if each.tables & ends.tables
    )


def _is_lookup(ends: BothEnds, mark: Statement) -> bool:
    """Whether the job asks whether it has processed a record: by the INSERT itself, or by a SELECT before it."""
    if mark.kind != "INSERT":
        return False
    return mark.skips_conflicts or any(
        each.kind == "SELECT"
        and each.number < mark.number
        and each.tables == mark.tables
        and each.given <= mark.given
        for block in ends.blocks
        for each in block.statements
    )


def _prepared_forgotten(ends: BothEnds) -> Iterator[Lint]:
    for block in ends.blocks:
        if block.effect is Effect.PREPARED:
            yield _lint(
                ends,
                block.end_number,
                "prepared-forgotten",
                f"{ends.named(block.end_number)}: the transaction '{block.gid}' was prepared, and neither committed nor "
                "rolled back. At each start, read pg_prepared_xacts, and end what an earlier process has left",
            )


# -- HTTP --------------------------------------------------------------------------------------------------------------


def _no_key(ends: BothEnds) -> Iterator[Lint]:
    for each in ends.events:
        is_post = each.exchange.request.get("method") in ("POST", "PATCH") and ends.is_output(each)
        if is_post and not each.exchange.request.get("idempotency_key"):
            yield _lint(
                ends,
                each.number,
                "no-idempotency-key",
                f"{ends.named(each.number)}: the request has no Idempotency-Key, so the service cannot know one that is "
                "sent again. Send a key that is derived from the record",
            )


def changing_keys(ours: BothEnds, theirs: BothEnds) -> Iterator[Lint]:
    """Yield a lint if requests with the same body have other keys in another run, and the job has not stored the keys."""
    before = _keys(theirs)
    for number, exchange in enumerate(ours.evidence.exchanges):
        key = str(exchange.request.get("idempotency_key") or "")
        asked = before.get(_asked(exchange), frozenset()) if key and exchange.service else frozenset()
        if asked and key not in asked and not _is_stored(ours, key, number):
            yield _lint(
                ours,
                number,
                "new-idempotency-key",
                f"{ours.named(number)}: the Idempotency-Key is another one at each start ({key}), so the service handles a "
                "request again that is sent again after a restart. Derive the key from the record, or store it before the "
                "first attempt",
            )


def _keys(ends: BothEnds) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for each in ends.evidence.exchanges:
        key = str(each.request.get("idempotency_key") or "")
        if key and each.service:
            found[_asked(each)] = found.get(_asked(each), frozenset()) | {key}
    return found


def _asked(exchange: Exchange) -> tuple[str, str]:
    request = exchange.request
    return str(request.get("path")), str(request.get("digest") or request.get("body"))


def _is_stored(ends: BothEnds, key: str, number: int) -> bool:
    """Whether the key was in a statement, or in an input record, before the request."""
    stored = any(
        key in each.content.values and each.number < number for block in ends.blocks for each in block.writes
    )
    return stored or any(key in each.content.values for each in ends.inputs)


_LINTS: Final[tuple[Callable[[BothEnds], Iterator[Lint]], ...]] = (
    _prepared_forgotten,
    _do_nothing_hides,
    _dedup_outside,
    removed_early,
    _dual_write,
    _offset_before,
    _not_idempotent,
    _no_key,
)
