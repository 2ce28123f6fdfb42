"""The transactions of a database in a trace: their statements, and how they ended."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.lints import contents
from odradek.certify.lints.contents import Content, Subject
from odradek.certify.lints.evidence import Evidence

_TABLE: Final = re.compile(r"\b(?:from|join|into|update)\s+(?:only\s+)?([\w.\"]+)", re.IGNORECASE)
_GID: Final = re.compile(r"\bprepared?\b[^']*'([^']*)'", re.IGNORECASE)
_INCREMENT: Final = re.compile(r"\b(\w+)\s*=\s*(?:coalesce\(\s*)?(?:\w+\.)?\1\b[^,]*?[-+|*]", re.IGNORECASE)


class Effect(Enum):
    """What has become of a transaction, as the database knows it. The client may not know it."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PREPARED = "prepared"
    UNKNOWN = "unknown"
    """The COMMIT got no response, so the database may not have received it."""
    OPEN = "open"
    """No end is in the trace. The database rolls the transaction back when the connection ends."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that reads or writes tables."""

    number: int
    """Index in the trace."""
    exchange: Exchange
    content: Content
    given: frozenset[str]
    """The values of the parameters, or the literals if there are no parameters."""

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(map(_base, self.exchange.request.get("tables") or ()))

    @property
    def kind(self) -> str:
        return str(self.exchange.request["kind"])

    @property
    def sql(self) -> str:
        return str(self.exchange.request.get("sql") or "")

    @property
    def is_write(self) -> bool:
        return bool(self.exchange.request.get("is_write"))

    @property
    def rows(self) -> int | None:
        """Number of rows that the statement returned or changed; None if unknown."""
        found = (self.exchange.answer or {}).get("rows")
        return found if isinstance(found, int) else None

    @property
    def returns_rows(self) -> bool:
        """Whether the client got rows of the tables: a query, or a change with RETURNING."""
        return bool(self.rows) and (self.kind == "SELECT" or bool(self.exchange.request.get("returning")))

    @property
    def where(self) -> dict[str, str]:
        """The columns that the statement compares with parameters."""
        return contents.compared(self.exchange)

    @property
    def skips_conflicts(self) -> bool:
        return self.exchange.request.get("on_conflict") == "nothing"

    @property
    def is_increment(self) -> bool:
        """Whether the statement computes a column from its old value, such as ``amount = totals.amount + 1``."""
        changes = self.kind == "UPDATE" or self.exchange.request.get("on_conflict") == "update"
        return (
            changes
            and _INCREMENT.search(re.split(r"\bset\b", self.sql, maxsplit=1, flags=re.IGNORECASE)[-1])
            is not None
        )

    @property
    def repeats(self) -> tuple[object, ...]:
        """What is equal in two executions of the same statement with the same parameters."""
        return self.sql, str(self.exchange.request.get("parameters") or ())


@dataclass(slots=True, eq=False)
class Block:
    """A transaction block of one connection, or a statement that committed by itself."""

    peer: str
    service: str
    statements: list[Statement] = field(default_factory=list)
    end: Exchange | None = None
    """COMMIT, ROLLBACK or PREPARE TRANSACTION; the statement itself if it committed by itself."""
    end_number: int = -1
    effect: Effect = Effect.OPEN
    committed_number: int = -1
    """Index in the trace of the request that committed the transaction: COMMIT, or COMMIT PREPARED; -1 if none did."""
    gid: str = ""
    """Identifier of a prepared transaction; empty for others."""

    @property
    def is_committed(self) -> bool:
        return self.effect is Effect.COMMITTED

    @property
    def decided_number(self) -> int:
        """Index of the request after which the rows cannot be lost any more: PREPARE TRANSACTION or COMMIT; -1 if none."""
        return self.end_number if self.gid and self.is_committed else self.committed_number

    @property
    def writes(self) -> list[Statement]:
        return [each for each in self.statements if each.is_write]

    @property
    def tables(self) -> frozenset[str]:
        """The tables that the transaction wrote."""
        return frozenset(name for each in self.writes for name in each.tables)

    def about(self, subject: Subject, tables: frozenset[str] | None = None) -> list[Statement]:
        """The writes that concern the row, of these tables if they are given."""
        return [
            each
            for each in self.writes
            if (tables is None or tables & each.tables) and subject.is_in(each.content)
        ]

    @property
    def failed(self) -> Statement | None:
        """The first statement that the database rejected."""
        return next((each for each in self.statements if each.exchange.errors), None)


def output_tables(evidence: Evidence) -> frozenset[str]:
    """The tables from which the outputs are read."""
    return frozenset(
        _base(name)
        for each in evidence.outputs
        if ":" in each
        for name in _TABLE.findall(each.partition(":")[2])
    )


def _base(name: str) -> str:
    """The table's name without its schema.

    >>> _base('public."Orders"')
    'orders'
    """
    return name.rpartition(".")[2].strip('"').lower()


def blocks(evidence: Evidence) -> list[Block]:
    """The transactions of all connections, in the order of their first statements."""
    found: dict[tuple[str, int], Block] = {}
    prepared: dict[str, Block] = {}
    for number, exchange in enumerate(evidence.exchanges):
        if "sql" not in exchange.request:
            continue
        what = exchange.request["kind"]
        if what in ("COMMIT PREPARED", "ROLLBACK PREPARED"):
            _resolve(number, exchange, what, prepared)
            continue
        inside = exchange.request["phase"] == "transaction"
        whose = exchange.request["transaction"] if inside else -number
        block = found.setdefault((exchange.service, whose), Block(exchange.peer, exchange.service))
        if what in _ENDS and inside:
            _end(block, number, exchange)
            if block.effect is Effect.PREPARED:
                prepared[block.gid] = block
        elif exchange.request.get("is_moment", True):
            given = frozenset(contents.given(exchange))
            block.statements.append(Statement(number, exchange, contents.of_statement(exchange), given))
            if not inside:
                _end(block, number, exchange)
    return [each for each in found.values() if each.statements]


_ENDS: Final = frozenset({"COMMIT", "ROLLBACK", "PREPARE TRANSACTION"})


def _end(block: Block, number: int, exchange: Exchange) -> None:
    what = exchange.request["kind"]
    block.end, block.end_number = exchange, number
    block.effect = _effect(exchange, Effect.PREPARED if what == "PREPARE TRANSACTION" else Effect.COMMITTED)
    if block.is_committed:
        block.committed_number = number
    elif block.effect is Effect.PREPARED:
        block.gid = _gid(exchange)


def _effect(exchange: Exchange, wanted: Effect) -> Effect:
    """What the end of a transaction has done. COMMIT of a failed transaction returns ROLLBACK."""
    if exchange.errors or "ROLLBACK" in (exchange.request["kind"], _tag(exchange)):
        return Effect.ROLLED_BACK
    return wanted if exchange.outcome in ("answered", "answer_lost") else Effect.UNKNOWN


def _tag(exchange: Exchange) -> str:
    return str((exchange.answer or {}).get("tag") or "").partition(" ")[0]


def _gid(exchange: Exchange) -> str:
    found = _GID.search(str(exchange.request.get("sql")))
    return found[1] if found else ""


def _resolve(number: int, exchange: Exchange, what: str, prepared: dict[str, Block]) -> None:
    block = prepared.get(_gid(exchange))
    if block is None or exchange.errors or exchange.outcome not in ("answered", "answer_lost"):
        return
    is_commit = what == "COMMIT PREPARED"
    block.effect = Effect.COMMITTED if is_commit else Effect.ROLLED_BACK
    block.committed_number = number if is_commit else -1
