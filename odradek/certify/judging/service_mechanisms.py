"""The mechanisms of exactly-once at services besides Kafka, as runs without faults show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints import contents
from odradek.certify.lints.both_ends import BothEnds
from odradek.certify.lints.databases import Block, Statement
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.services import changing_keys
from odradek.certify.lints.transactions import was_taken

POSITIONS: Final = "positions-in-database"
INBOX: Final = "inbox"
UPSERT: Final = "idempotent-upsert"
TWO_PHASES: Final = "two-phase-commit"
OUTBOX: Final = "outbox"
SOURCE: Final = "offsets-in-transaction"
KEYS: Final = "idempotency-keys"

SENTENCES: Final = {
    POSITIONS: "the transaction of the rows also stores the offsets of their input",
    INBOX: "the transaction of the rows also inserts the record's id into another table",
    UPSERT: "each row is written by its key with the same values, so that a repetition changes nothing",
    TWO_PHASES: "the transactions of the rows are prepared, and then committed",
    OUTBOX: "the transaction that changes a table also inserts the event, which a relay sends",
    SOURCE: "records and the connector's offsets are in one transaction, and its transactional.id is the same at each start",
    KEYS: "each request has an Idempotency-Key that is the same at each start",
}
_IDEMPOTENT: Final = frozenset({"PUT", "DELETE"})


def found(one: Evidence, two: Evidence) -> dict[str, Exchange | None]:
    """For each mechanism the request that shows it; None if none does."""
    ours, theirs = BothEnds(one), BothEnds(two)
    if not ours.services:
        return {SOURCE: next(_source(one, two), None)} if not one.inputs else {}
    rows = [each for each in ours.blocks if each.tables & ours.tables and (each.is_committed or each.gid)]
    return {
        POSITIONS: _positions(ours, rows),
        INBOX: _in_all(rows, lambda block: _inbox(ours, block)),
        UPSERT: _upsert(ours, theirs),
        TWO_PHASES: next((each.end for each in rows if each.gid and each.is_committed), None),
        OUTBOX: next(_outbox(ours), None),
        SOURCE: next(_source(one, two), None),
        KEYS: _keys(ours, theirs),
    }


def are_seen(evidence: Evidence) -> bool:
    """Whether there are outputs at services, or an input that is not in topics, so that the mechanisms here are seen."""
    is_used = any(each.service for each in evidence.exchanges)
    return is_used and (not evidence.inputs or any(":" in each for each in evidence.outputs))


def _positions(ends: BothEnds, rows: list[Block]) -> Exchange | None:
    """The write of an offset in the transaction of the rows, to a table that the job also reads."""
    read = {
        name
        for block in ends.blocks
        for each in block.statements
        if each.kind == "SELECT"
        for name in each.tables
    }
    ends_at = {str(each.offset + 1) for each in ends.inputs} | {str(each.offset) for each in ends.inputs}
    shown = None
    for block in rows:
        moves = [each for each in block.writes if each.tables & read - ends.tables and each.given & ends_at]
        if not moves:
            return None
        shown = shown or moves[0].exchange
    return shown


def _in_all(rows: list[Block], found: Callable[[Block], Exchange | None]) -> Exchange | None:
    shown = [found(each) for each in rows]
    return shown[0] if shown and all(shown) else None


def _inbox(ends: BothEnds, block: Block) -> Exchange | None:
    written = {value for each in block.writes if each.tables & ends.tables for value in each.given}
    for each in block.writes:
        if each.kind != "INSERT" or each.tables & (ends.tables | ends.relayed):
            continue
        if each.skips_conflicts or (each.given and _is_known(ends, each, written)):
            return each.exchange
    return None


def _is_known(ends: BothEnds, mark: Statement, written: set[str]) -> bool:
    """Whether the inserted values are those of a record, without its payload."""
    if mark.given <= written:
        return True
    places = {str(value) for each in ends.inputs for value in (*each.key, each.offset)}
    return any(mark.given <= each.content.values | places for each in ends.inputs)


def _upsert(ours: BothEnds, theirs: BothEnds) -> Exchange | None:
    one, two = _row_writes(ours), _row_writes(theirs)
    if not one or not all(map(_is_idempotent, (*one, *two))) or _keys_of(one) != _keys_of(two):
        return None
    return one[0].exchange


def _row_writes(ends: BothEnds) -> list[Statement]:
    """The statements of committed transactions that write output tables."""
    return [
        each
        for block in ends.blocks
        if block.is_committed
        for each in block.writes
        if each.tables & ends.tables
    ]


def _keys_of(statements: list[Statement]) -> Counter[tuple[str, tuple[str, ...]]]:
    """The statements with their first values, which contain the key. Other values, such as times, may differ."""
    return Counter((each.sql, contents.given(each.exchange)[:1]) for each in statements)


def _is_idempotent(statement: Statement) -> bool:
    is_keyed = bool(statement.exchange.request.get("on_conflict")) or statement.kind in (
        "UPDATE",
        "DELETE",
        "MERGE",
    )
    return is_keyed and not statement.is_increment


def _outbox(ends: BothEnds) -> Iterator[Exchange]:
    """Statements that read or fill an outbox table, if its events are sent."""
    for event in ends.events if ends.relayed else ():
        if event.is_visible and ends.is_output(event):
            yield from (
                each.exchange
                for block in ends.blocks
                for each in block.statements
                if each.tables & ends.relayed
            )


def _source(one: Evidence, two: Evidence) -> Iterator[Exchange]:
    """Produces to a topic that is no output, in a committed transaction with outputs, of an id that both runs have."""
    stable = set(two.transactional_ids)
    open_ids: dict[str, dict[bool, Exchange]] = {}
    for exchange in one.exchanges:
        name = exchange.transactional_id or ""
        if exchange.api == "Produce" and was_taken(exchange) and name in stable:
            for topic in exchange.topics:
                open_ids.setdefault(name, {}).setdefault(topic in one.outputs, exchange)
        elif exchange.api == "EndTxn" and name in open_ids and was_taken(exchange):
            sent = open_ids.pop(name)
            if exchange.request.get("committed") and len(sent) == 2:
                yield sent[False]


def _keys(ours: BothEnds, theirs: BothEnds) -> Exchange | None:
    sent = [each for each in ours.events if each.exchange.service and ours.is_output(each)]
    are_keyed = all(
        each.exchange.request.get("idempotency_key") or each.exchange.request["method"] in _IDEMPOTENT
        for each in sent
    )
    is_new = next(changing_keys(ours, theirs), None) is not None
    return sent[0].exchange if sent and are_keyed and not is_new else None
