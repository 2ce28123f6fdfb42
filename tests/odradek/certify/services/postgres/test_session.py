"""Which statements a connection executes, and which response belongs to which of them."""

from __future__ import annotations

import itertools
import struct

import pytest

from odradek.certify.services.postgres import messages
from odradek.certify.services.postgres.messages import Message, message, text
from odradek.certify.services.postgres.session import Execution, Outcome, Session

REJECTED = messages.error_response("ERROR", "40001", "could not serialize access")


class Dialogue:
    """A session, and both sides of its connection."""

    def __init__(self, *volatile: str) -> None:
        self.session = Session(itertools.count(1).__next__, volatile)
        self.executions: list[Execution] = []
        self.outcomes: list[tuple[str, str | None, tuple[str, ...], str | None]] = []
        self.passed: list[str] = []

    def client(self, *sent: Message, gate: bool = False) -> None:
        for each in sent:
            found = self.session.executions(each)
            self.executions += found
            self.session.forward(each, found, gate=gate)

    def server(self, *got: Message) -> None:
        for each in got:
            received = self.session.received(each)
            self.passed += [received.data[:1].decode()] if received.data else []
            self.outcomes += map(self._outcome, received.outcomes)

    @staticmethod
    def _outcome(found: Outcome) -> tuple[str, str | None, tuple[str, ...], str | None]:
        answer = found.answer or {}
        return found.execution.on, answer.get("tag"), found.errors, answer.get("state")

    def simple(self, sql: str, tag: str, state: str) -> None:
        self.client(messages.query(sql))
        self.server(complete(tag), ready(state))

    @property
    def requests(self) -> list[tuple[str, str, int]]:
        return [(each.on, each.phase, each.transaction) for each in self.executions]


def parse(sql: str, name: str = "") -> Message:
    return message("P", text(name), text(sql), b"\0\0")


def bind(name: str = "", portal: str = "") -> Message:
    return message("B", text(portal), text(name), b"\0\0\0\0\0\0")


def extended(sql: str) -> list[Message]:
    return [parse(sql), bind(), messages.execute("")]


def complete(tag: str) -> Message:
    return message("C", text(tag))


def ready(state: str = "I") -> Message:
    return message("Z", state.encode())


SYNC, FLUSH, PARSED, BOUND = message("S"), message("H"), message("1"), message("2")
FAILED = messages.error_response("ERROR", "23505", "duplicate key")


def test_statements_of_a_transaction_block():
    at = Dialogue()
    at.simple("BEGIN", "BEGIN", "T")
    at.simple("INSERT INTO a VALUES (1)", "INSERT 0 1", "T")
    at.simple("COMMIT", "COMMIT", "I")
    at.simple("INSERT INTO a VALUES (2)", "INSERT 0 1", "I")
    assert at.requests == [
        ("BEGIN", "autocommit", 1),
        ("INSERT a", "transaction", 1),
        ("COMMIT", "transaction", 1),
        ("INSERT a", "autocommit", 2),
    ]
    assert [each.is_write for each in at.executions] == [False, True, True, True]
    assert at.outcomes[1] == ("INSERT a", "INSERT 0 1", (), "T")


def test_the_end_of_a_transaction_that_only_reads_is_no_moment():
    at = Dialogue()
    for sql in ("BEGIN", "SELECT * FROM a", "COMMIT", "BEGIN", "SELECT * FROM a", "ROLLBACK"):
        at.simple(sql, sql, "I" if sql in ("COMMIT", "ROLLBACK") else "T")
    assert at.requests[2] == ("COMMIT of reads", "transaction", 1)
    assert at.requests[5] == ("ROLLBACK of reads", "transaction", 2)
    assert not any(each.is_write for each in at.executions)
    assert [each.is_moment for each in at.executions] == [False, True, False] * 2


def test_statements_before_a_sync_are_one_transaction():
    at = Dialogue()
    at.client(*extended("INSERT INTO a VALUES (1)"), *extended("INSERT INTO b VALUES (1)"), SYNC)
    at.client(*extended("INSERT INTO c VALUES (1)"), SYNC)
    at.server(PARSED, BOUND, complete("INSERT 0 1"), PARSED, BOUND, complete("INSERT 0 1"))
    assert at.outcomes == []
    at.server(ready())
    assert at.outcomes == [("INSERT a", "INSERT 0 1", (), "I"), ("INSERT b", "INSERT 0 1", (), "I")]
    assert at.requests == [
        ("INSERT a", "autocommit", 1),
        ("INSERT b", "autocommit", 1),
        ("INSERT c", "autocommit", 2),
    ]


def test_the_state_of_a_pipeline_is_known_before_its_responses():
    at = Dialogue()
    for sql in ("BEGIN", "INSERT INTO a VALUES (1)", "COMMIT", "INSERT INTO a VALUES (2)"):
        at.client(*extended(sql), SYNC)
    assert [phase for _, phase, _ in at.requests] == [
        "autocommit",
        "transaction",
        "transaction",
        "autocommit",
    ]


@pytest.mark.parametrize("is_sync_sent", [True, False])
def test_the_server_skips_what_is_between_an_error_and_the_sync(is_sync_sent: bool):
    at = Dialogue()
    at.client(*extended("INSERT INTO a VALUES (1)"), *extended("INSERT INTO b VALUES (1)"))
    if not is_sync_sent:
        at.server(PARSED, BOUND, complete("INSERT 0 1"), PARSED, BOUND, FAILED)
    at.client(*extended("INSERT INTO c VALUES (1)"), SYNC, *extended("INSERT INTO d VALUES (1)"), SYNC)
    if is_sync_sent:
        at.server(PARSED, BOUND, complete("INSERT 0 1"), PARSED, BOUND, FAILED)
    at.server(ready(), PARSED, BOUND, complete("INSERT 0 1"), ready())
    assert [each[:3] for each in at.outcomes] == [
        ("INSERT a", "INSERT 0 1", ()),
        ("INSERT b", "", ("23505",)),
        ("INSERT c", None, ()),
        ("INSERT d", "INSERT 0 1", ()),
    ]
    assert at.session.is_answered


def test_an_error_of_a_parse_is_that_of_its_statement():
    at = Dialogue()
    at.client(*extended("INSERT INTO missing VALUES (1)"), SYNC)
    at.server(messages.error_response("ERROR", "42P01", "relation does not exist"), ready())
    assert at.outcomes == [("INSERT missing", "", ("42P01",), "I")]


def test_a_commit_that_fails_at_the_sync_is_an_error_of_the_statement():
    at = Dialogue()
    at.client(*extended("INSERT INTO a VALUES (1)"), SYNC)
    at.server(PARSED, BOUND, complete("INSERT 0 1"), FAILED, ready())
    assert at.outcomes == [("INSERT a", "INSERT 0 1", ("23505",), "I")]


def test_the_other_statements_of_a_query_are_skipped_after_an_error():
    at = Dialogue()
    at.client(messages.query("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); INSERT INTO c VALUES (1)"))
    at.server(complete("INSERT 0 1"), FAILED, ready())
    assert [each[:3] for each in at.outcomes] == [
        ("INSERT a", "INSERT 0 1", ()),
        ("INSERT b", "", ("23505",)),
        ("INSERT c", None, ()),
    ]
    assert {each.transaction for each in at.executions} == {1}


def test_with_a_flush_a_statement_is_over_before_the_sync():
    at = Dialogue()
    at.client(*extended("INSERT INTO a VALUES (1)"), FLUSH)
    at.server(PARSED, BOUND, complete("INSERT 0 1"))
    assert [each[:2] for each in at.outcomes] == [("INSERT a", "INSERT 0 1")]
    at.client(SYNC)
    at.server(ready())
    assert len(at.outcomes) == 1


def test_the_next_rows_of_a_portal_are_no_other_request():
    at = Dialogue()
    at.client(parse("SELECT * FROM a", "s"), bind("s", "p"), messages.execute("p"), FLUSH)
    at.server(PARSED, BOUND, message("D"), message("s"))
    at.client(messages.execute("p"), SYNC)
    at.server(message("D"), complete("SELECT 1"), ready())
    assert len(at.executions) == 1
    at.client(bind("s", "p"), messages.execute("p"), SYNC)
    assert len(at.executions) == 2


def test_a_sync_in_the_middle_of_a_copy_is_ignored():
    at = Dialogue()
    at.client(*extended("COPY a FROM STDIN"), SYNC)
    at.server(PARSED, BOUND, message("G", b"\0\0\0"))
    at.client(message("d", b"1\n"), SYNC, message("c"), SYNC)
    at.server(complete("COPY 1"), ready())
    assert at.outcomes == [("COPY a", "COPY 1", (), "I")]
    assert at.session.is_answered
    at.simple("INSERT INTO a VALUES (1)", "INSERT 0 1", "I")
    assert at.outcomes[-1][0] == "INSERT a"


def test_the_gate_of_a_copy_is_behind_its_rows():
    at = Dialogue()
    at.client(messages.query("COPY a FROM STDIN"), gate=True)
    at.server(message("G", b"\0\0\0"))
    assert not at.session.is_gated
    at.client(message("d", b"1\n"), message("c"))
    at.server(complete("COPY 1"))
    assert at.session.is_gated


def test_a_gate_is_behind_the_responses_to_earlier_statements():
    at = Dialogue()
    at.client(*extended("SELECT 1"), SYNC)
    at.client(*extended("INSERT INTO a VALUES (1)"), gate=True)
    at.client(SYNC)
    at.server(PARSED, BOUND, complete("SELECT 1"), ready(), PARSED, BOUND)
    assert not at.session.is_gated
    at.server(complete("INSERT 0 1"))
    assert at.session.is_gated


def test_statements_that_sql_prepares_are_known():
    at = Dialogue()
    at.simple("PREPARE p AS INSERT INTO a VALUES ($1)", "PREPARE", "I")
    at.simple("EXECUTE p (1)", "INSERT 0 1", "I")
    assert [on for on, _, _ in at.requests] == ["PREPARE", "INSERT a"]


def test_a_query_with_a_volatile_function_is_a_call():
    at = Dialogue("add_order")
    at.simple("SELECT add_order(1)", "SELECT 1", "I")
    at.simple("SELECT other(1)", "SELECT 1", "I")
    assert [(each.on, each.is_write) for each in at.executions] == [
        ("CALL add_order", True),
        ("SELECT", False),
    ]


def test_binary_parameters_are_read_by_the_described_types():
    at = Dialogue()
    at.client(parse("INSERT INTO a VALUES ($1)", "s"), message("D", b"S", text("s")), SYNC)
    at.server(PARSED, message("t", struct.pack("!hi", 1, 23)), message("n"), ready())
    at.client(
        message("B", text(""), text("s"), struct.pack("!hhhiih", 1, 1, 1, 4, 9, 0)), messages.execute("")
    )
    assert at.executions[0].request["parameters"] == ["9"]


# -- statements that the proxy rejects -------------------------------------------------------------------------------


def reject(at: Dialogue, sent: Message) -> list[Message]:
    found = at.session.executions(sent)
    at.executions += found
    return at.session.reject(sent, found, 0, REJECTED)


def test_a_rejected_query_lets_the_server_fail():
    at = Dialogue()
    at.simple("BEGIN", "BEGIN", "T")
    (instead,) = reject(at, messages.query("INSERT INTO a VALUES (1)"))
    assert instead == messages.query('"injected by odradek certify"')
    assert (
        at.session.received(messages.error_response("ERROR", "42601", "syntax error")).data == REJECTED.data
    )
    at.server(ready("E"))
    assert at.outcomes[1:] == [("INSERT a", "", ("40001",), "E")]


def test_a_rejected_execute_lets_the_server_fail():
    at = Dialogue()
    at.client(parse("INSERT INTO a VALUES (1)"), bind())
    (instead,) = reject(at, messages.execute(""))
    assert instead == messages.execute("injected by odradek certify")
    at.client(SYNC)
    at.server(PARSED, BOUND)
    assert (
        at.session.received(messages.error_response("ERROR", "34000", "no such portal")).data == REJECTED.data
    )
    at.server(ready())
    assert at.outcomes == [("INSERT a", "", ("40001",), "I")]


def test_a_rejected_commit_rolls_back():
    at = Dialogue()
    at.simple("BEGIN", "BEGIN", "T")
    assert reject(at, messages.query("COMMIT")) == [messages.query("ROLLBACK")]
    assert at.session.received(complete("ROLLBACK")).data == REJECTED.data
    at.server(ready())
    at.simple("INSERT INTO a VALUES (1)", "INSERT 0 1", "I")
    assert at.requests[-1] == ("INSERT a", "autocommit", 2)


def test_a_rejected_commit_of_the_extended_protocol_rolls_back():
    at = Dialogue()
    at.simple("BEGIN", "BEGIN", "T")
    at.client(parse("COMMIT"), bind())
    instead = reject(at, messages.execute(""))
    assert [each.kind for each in instead] == ["C", "P", "B", "E"]
    assert at.session.drops
    at.client(SYNC)
    assert not at.session.drops
    at.passed.clear()
    at.server(PARSED, BOUND, message("3"), PARSED, BOUND, complete("ROLLBACK"), ready())
    assert at.passed == ["1", "2", "E", "Z"]
    assert at.outcomes[-1][1:] == ("", ("40001",), "I")
