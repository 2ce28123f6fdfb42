"""State of one connection: which statements the client executes, and which response belongs to which of them.

Pure: `Session` takes the messages of both sides in order, and says what the proxy reports and passes on. The proxy asks
`executions` before it passes a message of the client on with `forward`, and `received` for each message of the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.certify.services.postgres import messages
from odradek.certify.services.postgres.messages import Bind, Message
from odradek.certify.services.postgres.statements import ENDS, Statement, prepared, statement, statements

IDLE: Final = "I"
BLOCK: Final = "T"
FAILED: Final = "E"
OURS: Final = "injected by odradek certify"
"""Name of a portal that does not exist, so that the server fails by itself; and of the proxy's own statements."""
LINE_CHARS: Final = 300


@dataclass(slots=True, eq=False)
class Execution:
    """One execution of a statement."""

    statement: Statement
    parameters: list[str | None]
    kind: str
    on: str
    """The request as in rules, without the service."""
    phase: str
    transaction: int
    """Number of the transaction, unique in the service."""
    is_write: bool
    is_moment: bool
    call: Any = None
    """Of the proxy, which reports the execution."""

    @property
    def ends_transaction(self) -> bool:
        return self.kind in ENDS and self.phase == "transaction"

    @property
    def request(self) -> dict[str, Any]:
        stated = self.statement
        return {
            "sql": stated.sql,
            "parameters": self.parameters,
            "kind": self.kind,
            "tables": list(stated.tables),
            "reads": list(stated.reads),
            "returning": stated.returning,
            "on_conflict": stated.on_conflict,
            "transaction": self.transaction,
            "is_moment": self.is_moment,
        }

    @property
    def line(self) -> str:
        sql = " ".join(self.statement.sql.split())
        values = ", ".join("NULL" if each is None else each for each in self.parameters)
        return f"{sql} [{values}]"[:LINE_CHARS] if values else sql[:LINE_CHARS]


@dataclass(slots=True)
class Outcome:
    """The end of an execution."""

    execution: Execution
    answer: dict[str, Any] | None = None
    """None if the server has skipped the statement, after an error of an earlier one."""
    errors: tuple[str, ...] = ()


@dataclass(slots=True)
class Received:
    """What the proxy does with one message of the server."""

    data: bytes
    """Bytes for the client; empty for the response to a message of the proxy's own."""
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Expected:
    """A message of the client, or of the proxy, that the server has not answered yet."""

    kind: str
    """Its type: P, B, C, D, E, S, Q or F."""
    executions: list[Execution] = field(default_factory=list)
    types: list[int] | None = None
    """Types of the parameters of a prepared statement, which the response to its Describe contains."""
    is_ours: bool = False
    error: Message | None = None
    """The ErrorResponse that the client gets in place of the server's response."""


class Session:
    """State of one connection behind its start. ``number`` returns the next number of a transaction."""

    def __init__(self, number: Callable[[], int], volatile: Collection[str] = ()) -> None:
        self._number, self._volatile = number, volatile
        self._statements: dict[str, tuple[Statement, list[int]]] = {}
        self._portals: dict[str, tuple[Statement, list[str | None]] | None] = {}
        """None for a portal of which the first rows have been fetched."""
        self._prepared: dict[str, Statement] = {}
        """Statements of SQL's PREPARE."""
        self._expected: deque[_Expected] = deque()
        self._complete: list[Outcome] = []
        """Executions whose CommandComplete has arrived, and that are over with the ReadyForQuery."""
        self._gate: Execution | None = None
        self._state = IDLE
        """The state of the transaction once the server has handled all that was passed on."""
        self._transaction: int | None = None
        self._has_writes = False
        self._is_flushed = False
        self._is_copying = False
        self._rows = 0
        """Number of rows that the server has sent for the statement in progress."""
        self.drops = False
        """Whether the proxy drops the client's messages until a Sync, because it has rejected a statement itself."""
        self.is_gated = False
        """Whether the response to the execution of `gate` has begun."""

    # -- the client ----------------------------------------------------------------------------------------------

    def executions(self, sent: Message) -> list[Execution]:
        """The statements that the server executes when it gets this message."""
        match sent.kind:
            case "Q":
                return self._plan([(each, []) for each in statements(messages.Body(sent.body).text())])
            case "E":
                bound = self._portals.get(messages.portal_of(sent))
                return self._plan([bound]) if bound is not None else []
            case "F":
                number = messages.Body(sent.body).int32()
                return self._plan([(Statement(f"function {number}", "CALL", (f"function {number}",)), [])])
        return []

    def _plan(self, bound: list[tuple[Statement, list[str | None]]]) -> list[Execution]:
        """The executions of statements, one after the other, from the present state of the transaction."""
        kept = self._state, self._transaction, self._has_writes
        planned = []
        for stated, parameters in bound:
            planned.append(self._execution(stated, parameters))
            self._advance(planned[-1])
        self._state, self._transaction, self._has_writes = kept
        return planned

    def _execution(self, stated: Statement, parameters: list[str | None]) -> Execution:
        if stated.kind == "EXECUTE" and stated.name in self._prepared:
            stated = self._prepared[stated.name]
        kind, on = stated.kind, stated.on
        is_moment, is_write = stated.has_effect, stated.has_effect and not stated.is_read
        if function := stated.calls(self._volatile):
            kind, on, is_moment, is_write = "CALL", f"CALL {function}", True, True
        in_block = self._state != IDLE
        if kind in ("COMMIT", "ROLLBACK"):
            is_moment = in_block and self._has_writes
            is_write = is_moment and kind == "COMMIT"
            # Rules count the requests by their names, and faults are tried only at those that change something.
            on = kind if is_moment else f"{kind} of reads"
        if self._transaction is None:
            self._transaction = self._number()
        phase = "transaction" if in_block and not kind.endswith(" PREPARED") else "autocommit"
        return Execution(stated, parameters, kind, on, phase, self._transaction, is_write, is_moment)

    def _advance(self, execution: Execution) -> None:
        """Assume that the statement succeeds."""
        kind = execution.kind
        if kind == "BEGIN":
            self._state = BLOCK if self._state == IDLE else self._state
        elif kind in ENDS:
            self._end()
            if execution.statement.is_chained:
                self._state = BLOCK
        elif execution.is_write:
            self._has_writes = True

    def _end(self) -> None:
        self._state, self._transaction, self._has_writes = IDLE, None, False

    def forward(
        self, sent: Message, executions: list[Execution] | None = None, *, gate: bool = False
    ) -> None:
        """The proxy passes the message on. With ``gate``, `is_gated` is True from the response to it on."""
        match sent.kind:
            case "Q" | "E" | "F":
                self._execute(sent, executions or [])
                if gate and executions:
                    self._gate = executions[0]
            case "P":
                self._parse(sent)
            case "B":
                self._bind(messages.bind(sent))
            case "C" | "D":
                self._close_or_describe(sent)
            case "H":
                self._is_flushed = True
            case "S":
                self._sync()
            case "c" | "f":
                self._is_copying = False

    def _execute(self, sent: Message, executions: list[Execution]) -> None:
        self._expected.append(_Expected(sent.kind, list(executions)))
        for each in executions:
            self._remember(each)
        if sent.kind == "E":
            portal = messages.portal_of(sent)
            if self._portals.get(portal) is not None:
                self._portals[portal] = None
            self._is_flushed = False
        elif self._state == IDLE:
            self._end()

    def _remember(self, execution: Execution) -> None:
        if self._transaction is None:
            self._transaction = execution.transaction
        self._advance(execution)
        stated = execution.statement
        if stated.kind == "PREPARE":
            self._prepared[stated.name] = prepared(stated.sql)
        elif stated.kind == "DEALLOCATE":
            self._prepared.pop(stated.name, None)
            self._statements.pop(stated.name, None)

    def _parse(self, sent: Message) -> None:
        name, sql, types = messages.parse(sent)
        self._statements[name] = (statement(sql), types)
        self._expected.append(_Expected("P"))

    def _bind(self, bound: Bind) -> None:
        stated, types = self._statements.get(bound.statement, (Statement("", ""), []))
        self._portals[bound.portal] = (stated, bound.parameters(types))
        self._expected.append(_Expected("B"))

    def _close_or_describe(self, sent: Message) -> None:
        kind, name = messages.target(sent)
        expected = _Expected(sent.kind)
        if sent.kind == "C":
            if kind == "S":
                self._statements.pop(name, None)
            else:
                self._portals.pop(name, None)
        elif kind == "S" and name in self._statements:
            expected.types = self._statements[name][1]
        self._expected.append(expected)

    def _sync(self) -> None:
        self.drops = False
        # The server ignores a Sync while it reads the rows of a COPY.
        if self._is_copying:
            return
        self._expected.append(_Expected("S"))
        if self._state == IDLE:
            self._end()

    # -- statements that the proxy rejects -----------------------------------------------------------------------

    def reject(self, sent: Message, executions: list[Execution], at: int, error: Message) -> list[Message]:
        """The messages for the server in place of ``sent``, so that its transaction fails as by a failure of the statement.

        The client gets ``error``. The server fails by itself, because of a portal that does not exist, or of a text that is
        no statement. A COMMIT that fails ends the transaction, so the server gets a ROLLBACK in place of it.
        """
        rolls_back = executions[at].ends_transaction
        if sent.kind == "Q":
            self._expected.append(_Expected("Q", executions, error=error))
            instead = [messages.query("ROLLBACK" if rolls_back else f'"{OURS}"')]
        elif rolls_back:
            for kind in "CPB":
                self._expected.append(_Expected(kind, is_ours=True))
            self._expected.append(_Expected("E", executions, error=error))
            self.drops = True
            instead = messages.one_execution(OURS, "ROLLBACK")
        else:
            self._expected.append(_Expected("E", executions, error=error))
            instead = [messages.execute(OURS)]
        if rolls_back:
            self._end()
        else:
            self._has_writes = self._has_writes or any(each.is_write for each in executions)
        return instead

    # -- the server ----------------------------------------------------------------------------------------------

    @property
    def is_answered(self) -> bool:
        """Whether the server has answered everything up to the last Sync or Query."""
        return not any(each.kind in "SQF" for each in self._expected)

    def received(self, got: Message) -> Received:
        """What the proxy does with a message of the server."""
        head = self._expected[0] if self._expected else None
        self._look_for_gate(got, head)
        match got.kind:
            case "D":
                self._rows += 1
            case "1" | "2" | "3" | "n" | "T" | "t":
                return self._acknowledged(got, head)
            case "C" | "I" | "s" | "V":
                return self._completed(got, head)
            case "G":
                self._copy_in()
            case "E":
                return self._failed(got, head)
            case "Z":
                return self._ready(got)
            case "N" if head is not None and (head.is_ours or head.error is not None):
                return Received(b"")
        return Received(got.data)

    def _look_for_gate(self, got: Message, head: _Expected | None) -> None:
        # After a CopyInResponse (G) the client sends the rows. Notices, settings and notifications have no statement.
        if head is not None and self._gate in head.executions and got.kind not in "NSAG":
            self.is_gated, self._gate = True, None

    def _acknowledged(self, got: Message, head: _Expected | None) -> Received:
        """ParseComplete, BindComplete, CloseComplete, or the response to a Describe."""
        if head is None or head.kind not in "PBCD":
            return Received(got.data)
        if got.kind == "t":
            if head.types is not None:
                head.types[:] = messages.parameter_types(got)
            return Received(got.data)
        self._expected.popleft()
        return Received(b"" if head.is_ours else got.data)

    def _completed(self, got: Message, head: _Expected | None) -> Received:
        if head is None or head.kind not in "EQF":
            return Received(got.data)
        fetched, self._rows = self._rows, 0
        if head.error is not None:
            return self._failed(head.error, head)
        if head.kind == "E":
            self._expected.popleft()
        if not head.executions:
            return Received(got.data)
        tag = messages.Body(got.body).text() if got.kind == "C" else ""
        # A cursor has fetched its first rows: there is no tag yet.
        rows = fetched if got.kind == "s" else messages.rows_of(tag)
        outcome = Outcome(head.executions.pop(0), {"tag": tag, "rows": rows, "state": self._state})
        self._complete.append(outcome)
        # Without a Sync in flight, a client that has sent Flush gets the response now.
        if head.kind == "E" and self._is_flushed and self.is_answered:
            return Received(got.data, self._over())
        return Received(got.data)

    def _over(self) -> list[Outcome]:
        over, self._complete = self._complete, []
        return over

    def _copy_in(self) -> None:
        self._is_copying = True
        self._expected = deque(each for each in self._expected if each.kind != "S")

    def _failed(self, got: Message, head: _Expected | None) -> Received:
        """ErrorResponse: the server skips all messages up to the next Sync, or the other statements of the Query."""
        self._is_copying = False
        failed: list[Execution] = []
        if head is None:
            return Received(got.data)
        got = head.error or got
        code = messages.fields(got).get("C", "")
        if head.kind in "QF":
            failed, head.executions = head.executions, []
            head.error = None
        elif head.kind == "S":
            # The commit at a Sync has failed: a deferred constraint, or a serialization failure.
            for each in self._complete:
                each.errors = (code,)
            return Received(got.data)
        else:
            while self._expected and self._expected[0].kind not in "SQF":
                failed += self._expected.popleft().executions
        if self._state != IDLE:
            self._state = FAILED
        outcomes = list(map(Outcome, failed))
        for first in outcomes[:1]:
            first.answer, first.errors = {"tag": "", "rows": 0, "state": self._state}, (code,)
        self._complete += outcomes
        return Received(got.data, [] if not self.is_answered else self._over())

    def _ready(self, got: Message) -> Received:
        """ReadyForQuery: the transaction's state is known."""
        state = messages.Body(got.body).byte()
        while self._expected:
            done = self._expected.popleft()
            self._complete += map(Outcome, done.executions)
            if done.kind in "SQF":
                break
        if not self._expected:
            if state == IDLE:
                self._end()
            self._state = state
        for each in self._complete:
            if each.answer is not None:
                each.answer["state"] = state
        return Received(got.data, self._over())
