"""What drivers really send (`record`): each statement is one request, and each response belongs to its statement."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import pytest

from odradek.certify.services.postgres.messages import Message
from odradek.certify.services.postgres.session import Execution, Outcome, Session
from tests.odradek.certify.services.postgres.record import RECORDED

SESSIONS: Mapping[str, list[tuple[str, str]]] = json.loads(RECORDED.read_text())


def replayed(name: str) -> tuple[list[Execution], list[Outcome]]:
    """The executions and outcomes of a recorded session."""
    session = Session(itertools.count(1).__next__)
    executions: list[Execution] = []
    outcomes: list[Outcome] = []
    for side, data in SESSIONS[name]:
        raw = bytes.fromhex(data)
        each = Message(chr(raw[0]), raw)
        if side == "C":
            found = session.executions(each)
            executions += found
            session.forward(each, found)
        else:
            received = session.received(each)
            assert received.data == raw
            outcomes += received.outcomes
    assert session.is_answered
    return executions, outcomes


@pytest.mark.parametrize("name", SESSIONS)
def test_each_execution_has_one_outcome(name: str):
    executions, outcomes = replayed(name)
    assert [each.execution for each in outcomes] == executions


@pytest.mark.parametrize("name", SESSIONS)
def test_the_tag_of_the_server_is_that_of_the_statement(name: str):
    for each in replayed(name)[1]:
        if each.answer is not None and (tag := str(each.answer["tag"])):
            kind = each.execution.kind
            expected = "ROLLBACK" if each.execution.kind == "COMMIT" and tag == "ROLLBACK" else kind
            assert tag.startswith(expected.split(" ")[0]), (tag, expected)


def test_a_cursor_of_jdbc_is_one_request_with_the_rows_of_its_first_fetch():
    answers = [
        each.answer
        for each in replayed("jdbc 1")[1]
        if each.execution.statement.sql.startswith("SELECT id, amount FROM results")
    ]
    assert answers == [{"tag": "", "rows": 3, "state": "T"}]
