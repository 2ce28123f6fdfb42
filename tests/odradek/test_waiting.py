"""The notices of a waiting command on stderr, and the causes that they name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import odradek as package
from odradek.commands.waiting import cause_of, explained_cause, rule_that_holds, same_port, telling_waits
from odradek.pending import Pending, Step, pending_now, waiting_for
from tests.support.deadlines import HANG_S

START = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"


# -- times of the notices


def begun(*whats: str) -> Pending:
    pending = Pending()
    for what in whats:
        pending.begin(what, "localhost:9092", 100.0)
    return pending


def test_a_notice_is_due_after_2_s_and_then_rarely() -> None:
    pending = begun("Fetch")
    due = []
    for now in range(100, 1000):
        if pending.is_due(now):
            due.append(now - 100)
            pending.notices += 1
    assert due == [2, 10, 60, 360, 660]


def test_nothing_is_due_while_nothing_is_waited_for() -> None:
    pending = Pending()
    assert (pending.due_in_s(5.0), pending.is_due(500.0)) == (2.0, False)


def test_quick_steps_one_after_the_other_are_no_wait() -> None:
    pending = Pending()
    for now in range(100, 200):
        pending.begin("Fetch", "localhost:9092", now)
        assert not pending.is_due(now + 0.5)
        pending.end(now + 0.5, is_interrupted=False)


def test_slow_steps_one_after_the_other_are_one_wait() -> None:
    pending = begun("Fetch")
    pending.end(101.5, is_interrupted=False)
    pending.begin("Fetch", "localhost:9092", 101.5)
    assert pending.due_in_s(101.5) == 0.5
    assert pending.is_due(102.0)


def test_what_a_command_shows_itself_needs_no_notice() -> None:
    pending = begun("POST /v1/clock/advance")
    pending.is_muted = True
    assert not pending.is_due(500.0)


# -- steps


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (("Fetch", "localhost:9092"), "no response to Fetch from localhost:9092 yet"),
        (("", "localhost:9092"), "no connection to localhost:9092 yet"),
        (("etl-1 is not in CompleteCommit yet", ""), "etl-1 is not in CompleteCommit yet"),
    ],
)
def test_the_sentence_of_a_step(step: tuple[str, str], text: str) -> None:
    pending = Pending()
    pending.begin(*step, 100.0)
    assert pending.text(112.0) == f"waiting for 12 s: {text}"


def test_an_error_that_is_retried_says_more_than_the_request_that_is_out() -> None:
    pending = Pending()
    pending.begin("", "", 100.0)
    for _ in range(14):
        pending.refused("the coordinator of etl-1: COORDINATOR_NOT_AVAILABLE")
    expected = "waiting for 2 s: the coordinator of etl-1: COORDINATOR_NOT_AVAILABLE, asked 14 times"
    assert pending.text(102.0) == expected
    pending.begin("FindCoordinator", "localhost:9092", 101.9)
    assert pending.text(102.0) == expected
    assert "no response to FindCoordinator" in pending.text(104.0)


def test_the_steps_of_another_thread_are_not_those_of_the_command() -> None:
    found: list[Pending | None] = []
    with telling_waits():
        found.append(pending_now())
        other = threading.Thread(target=lambda: found.append(pending_now()))
        other.start()
        other.join()
    assert found[0] is not None
    assert (found[1], pending_now()) == (None, None)


def test_a_program_that_is_no_command_has_no_steps() -> None:
    with waiting_for("Fetch", "localhost:9092"):
        assert pending_now() is None


def test_ctrl_c_says_what_was_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), telling_waits(), waiting_for("Fetch", "localhost:9092"):
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert said == "\ninterrupted after waiting for 0 s: no response to Fetch from localhost:9092 yet\n"


# -- causes


def node(node_id: int, state: str = "running") -> dict[str, Any]:
    listener = {"address": f"127.0.0.1:{9091 + node_id}", "advertised": f"localhost:{9091 + node_id}"}
    return {"node_id": node_id, "state": state, "listeners": [listener]}


def rule(text: str, *, code: str | None = None, hits: int = 0, **held: str | None) -> dict[str, Any]:
    one = {"client_id": None, "transactional_id": None, "group": None, **held}
    action = {"code": code} if code else {}
    return {
        "id": 3,
        "text": text,
        "rule": {"action": action},
        "hits": hits,
        "held": [one] if held else [],
    }


FETCH = Step("Fetch", "localhost:9092", 0.0)
LETS = "`odradek fault release 3` releases it"


def cause(*rules: dict[str, Any], names: tuple[str, ...] = (), refusal: str = "") -> str:
    return cause_of(FETCH, names, refusal, [node(1), node(2)], rules)


def test_the_rule_that_holds_the_request_is_named() -> None:
    assert cause(rule("Fetch -> hold", at="Fetch", client_id="odradek")) == (
        f"rule 3 (Fetch -> hold) holds such a request; {LETS}"
    )


def test_a_request_of_another_client_is_not_this_one() -> None:
    assert cause(rule("Fetch -> hold", at="Fetch", client_id="reader")) == ""


def test_the_rule_that_holds_a_step_of_the_transaction_is_named() -> None:
    held = rule("txn.marker -> hold", at="txn.marker", transactional_id="etl-1")
    assert cause(held, names=("etl-1",)) == (f"rule 3 (txn.marker -> hold) holds txn.marker of etl-1; {LETS}")
    assert cause(held, names=("etl-2",)) == ""


def test_the_rule_that_holds_the_markers_of_a_partition_is_named() -> None:
    held = rule("WriteTxnMarkers -> hold", at="WriteTxnMarkers")
    held["held"][0]["partitions"] = ["orders-0", "orders-1"]
    assert rule_that_holds(["etl-1"], [held], ["orders-1"]) == (
        f"rule 3 (WriteTxnMarkers -> hold) holds WriteTxnMarkers for orders-1; {LETS}"
    )
    assert rule_that_holds(["etl-1"], [held], ["orders-2"]) == ""


def test_what_the_broker_explains_is_told_in_one_line() -> None:
    held = {
        "cause": "marker-held",
        "lines": ["Rule 3 (hold) holds the marker.", "Release it: odradek fault release 3", "Node 1."],
    }
    fine = {"cause": "nothing", "lines": ["Nothing is wrong."]}
    assert (
        explained_cause([fine, held]) == "rule 3 (hold) holds the marker. Release it: odradek fault release 3"
    )
    assert explained_cause([fine]) == ""
    assert explained_cause([{"cause": "open-transaction", "lines": ["etl-1 is open."]}]) == "etl-1 is open"


def test_the_rule_that_gives_the_error_is_named_once_it_has() -> None:
    text = "FindCoordinator -> error NOT_COORDINATOR"
    refusal = "the coordinator of etl-1: NOT_COORDINATOR"
    assert cause(rule(text, code="NOT_COORDINATOR", hits=7), refusal=refusal) == (
        f"rule 3 ({text}) returns this error, 7 times so far"
    )
    assert cause(rule(text, code="NOT_COORDINATOR"), refusal=refusal) == ""
    assert cause(rule(text, code="NOT_COORDINATOR", hits=7)) == ""


def test_a_node_that_does_not_run_is_named_the_one_that_is_asked_first() -> None:
    assert cause_of(FETCH, (), "", [node(1, "paused"), node(2, "killed")], []) == "node 1 is paused"
    assert cause_of(None, (), "", [node(1), node(2, "killed")], []) == "node 2 is killed"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("localhost:9092", "127.0.0.1:9092", True),
        ("[::1]:9092", "localhost:9092", True),
        ("localhost:9092", "localhost:9093", False),
        ("broker.example:9092", "localhost:9092", False),
    ],
)
def test_the_control_port_of_another_cluster_knows_no_cause(one: str, other: str, is_same: bool) -> None:
    assert same_port(one, other) is is_same


# -- whole commands


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    with package.Broker(topics=["orders"]) as broker:
        yield broker


@pytest.mark.more
def test_a_command_names_the_rule_that_holds_its_request_and_has_the_same_output(
    broker: package.Broker,
) -> None:
    where = {
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "ODRADEK_CONTROL": broker.control_url,
        "ODRADEK_DEADLINE_FACTOR": "20",
    }
    command = [sys.executable, "-c", START, "consume", "orders", "--json"]
    with (
        broker.faults.add("ListOffsets nth=1 -> hold") as held,
        subprocess.Popen(
            command, env={**os.environ, **where}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stderr is not None
        line = process.stderr.readline()
        held.release()
        output, rest = process.communicate(timeout=HANG_S)
    assert re.match(r"waiting for \d+ s: no response to ListOffsets from ", line)
    assert f"rule {held.id} (ListOffsets nth=1 -> hold) holds such a request" in line
    assert (output, rest, process.returncode) == ("", "", 0)


@pytest.mark.more
def test_ctrl_c_ends_a_command_that_waits(broker: package.Broker) -> None:
    command = [sys.executable, "-c", START, "txn", "wait", "etl-none", "--control", broker.control_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=HANG_S)
    assert re.fullmatch(r"waiting for \d+ s: etl-none is not in CompleteCommit yet\n", line)
    assert "interrupted after waiting for " in rest
    assert process.returncode == 1
