"""A run that is held at its fault: which request is held, and what happens when the run continues."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.job import wait_until
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection, Plan, single
from odradek.certify.runs.holding import HeldMoment
from odradek.certify.runs.patience import Patience
from odradek.certify.runs.run import Run, Stage
from odradek.certify.workload import LONGEST_S, Until, Workload
from odradek.commands import certify as command_module
from odradek.commands.certify import certify
from tests.support.deadlines import HANG_S, LONG_TEST_S

COMMIT = Moment("EndTxn", (("transactional_id", "t"),), 2, "commit")
MARKER = Moment("txn.marker", (("transactional_id", "t"),), 2, "commit")
JOB = """
import sys
from confluent_kafka import Producer

quick = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "metadata.recovery.strategy": "none"}
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "t", **quick})
producer.init_transactions(60)
for number in range(3):
    producer.begin_transaction()
    producer.produce("out", str(number))
    producer.commit_transaction(60)
"""
"""A job that commits three transactions and ends."""


# -- rules ----------------------------------------------------------------------------------------------------------


def test_a_moment_is_held_by_a_rule_of_its_own_and_then_struck() -> None:
    injection = Injection(COMMIT, BY_NAME["lose-answer"])
    assert injection.holding_rule == "EndTxn transactional_id=t nth=2 -> hold"
    assert injection.striking_rule == "EndTxn transactional_id=t nth=1 -> lose-answer"
    step = Injection(MARKER, BY_NAME["kill-node"])
    assert step.holding_rule == "txn.marker transactional_id=t nth=2 -> hold"
    assert step.striking_rule == "txn.marker transactional_id=t nth=1 -> kill"


# -- time -----------------------------------------------------------------------------------------------------------


def test_the_time_of_a_hold_does_not_count() -> None:
    clock = SimpleNamespace(now=0.0)
    patience = Patience(deadline_s=60.0, patience_s=10.0, now_s=lambda: clock.now)
    assert patience.over(1) == ""
    clock.now = 1000.0
    patience.stood_still(1000.0)
    assert patience.over(1) == ""
    clock.now = 1009.0
    assert patience.over(1) == ""
    clock.now = 1011.0
    assert patience.over(1) == "the job has requested no change for 10 s"
    clock.now = 1059.0
    assert patience.over(2) == ""
    clock.now = 1061.0
    assert patience.over(3) == "60 s have passed"
    assert patience.held_s == 1000.0


# -- a run ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    command = Command.parse([sys.executable, "-c", JOB, "{bootstrap}"])
    with Stage(Workload(command, ("out",), ("out:1",), until=Until("exit"))) as stage:
        yield stage


def held_run(stage: Stage, fault: str, look: Callable[[HeldMoment], None], moment: Moment = COMMIT) -> Run:
    return stage.run(single(moment, BY_NAME[fault]), LONGEST_S, on_hold=look)


def values(run: Run) -> list[str | bytes | None]:
    return [each.value for each in run.outputs.committed]


def test_the_run_stands_still_before_the_fault(stage: Stage) -> None:
    seen: list[HeldMoment] = []

    def look(held: HeldMoment) -> None:
        seen.append(held)
        assert stage.cluster.handle.transactions["t"].state == "Ongoing"
        assert [each.value for each in stage.cluster.handle.records("out")] == ["0"]
        ((number, processes),) = held.instances
        assert (number, held.owner) == (1, 1)
        assert all(psutil.pid_exists(pid) for pid, _ in processes)

    run = held_run(stage, "lose-answer", look)
    (held,) = seen
    ((_, ((pid, name), *_)),) = held.instances
    assert str(held).splitlines() == [
        "held at EndTxn transactional_id=t #2 (commit)",
        "  next lose-answer: the broker handles the request, and its response is lost",
        f"  instance 1: {pid} ({name}), which sent the request",
        f"  bootstrap.servers={stage.cluster.bootstrap_servers}",
        f"  ODRADEK_CONTROL={stage.cluster.control_url}",
        "  timeouts of the job's clients, sessions and transactions keep running",
    ]
    assert run.hits == [1]
    assert values(run) == ["0", "1", "2"]
    lost = [
        each for each in stage.cluster.handle.trace.entries(api="EndTxn") if each["outcome"] == "answer_lost"
    ]
    assert len(lost) == 1


def test_what_the_certifier_does_comes_after_the_hold(stage: Stage) -> None:
    alive: list[int] = []

    def look(held: HeldMoment) -> None:
        alive.extend(pid for _, processes in held.instances for pid, _ in processes)
        assert psutil.Process(alive[0]).status() != psutil.STATUS_ZOMBIE

    run = held_run(stage, "kill-after", look)
    assert (run.hits, run.notes) == ([1], ["instance 1 is killed"])
    assert not psutil.pid_exists(alive[0])
    assert values(run) == ["0", "1", "0", "1", "2"]


def test_a_request_whose_instance_is_gone_is_not_struck(stage: Stage) -> None:
    def look(held: HeldMoment) -> None:
        ((_, ((pid, _), *_)),) = held.instances
        os.killpg(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(each.held for each in stage.cluster.handle.faults), HANG_S)

    run = held_run(stage, "lose-answer", look)
    assert run.hits == [0]
    assert sorted(map(str, values(run))) == ["0", "0", "1", "2"]


def test_a_plan_without_holding_is_not_held(stage: Stage) -> None:
    run = stage.run(single(COMMIT, BY_NAME["lose-answer"]), LONGEST_S)
    assert (run.hits, values(run)) == ([1], ["0", "1", "2"])


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        *((name, COMMIT) for name in ("lose-request", "reset", "retriable-error", "fatal-error", "late")),
        *((name, COMMIT) for name in ("duplicate", "time-out-transaction", "second-copy", "kill-node")),
        ("kill-node", MARKER),
        ("abortable-error", Moment("AddPartitionsToTxn", COMMIT.matchers, 2, "opens")),
    ],
)
def test_each_fault_strikes_what_was_held(stage: Stage, fault: str, moment: Moment) -> None:
    seen: list[HeldMoment] = []
    plan = single(moment, BY_NAME[fault])
    run = stage.run(plan, LONGEST_S, on_hold=seen.append)
    assert [each.injection for each in seen] == list(plan.injections)
    assert run.hits == [1]


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_each_fault_of_a_plan_is_held_in_its_turn(stage: Stage) -> None:
    seen: list[str] = []
    third = Moment("EndTxn", COMMIT.matchers, 3, "commit")
    plan = Plan((Injection(COMMIT, BY_NAME["lose-answer"]), Injection(third, BY_NAME["lose-request"])))
    run = stage.run(plan, LONGEST_S, on_hold=lambda held: seen.append(held.injection.fault.name))
    assert seen == ["lose-answer", "lose-request"]
    assert (run.hits, values(run)) == ([1, 1], ["0", "1", "2"])


# -- the command ----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_enter_continues_a_held_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal("\nnot read")
    monkeypatch.setattr(sys, "stdin", terminal)
    command_module._hold("what is held")
    assert terminal.read() == "not read"
    assert capsys.readouterr().err == "what is held\npress Enter to inject the fault\n"


def test_without_a_terminal_the_end_of_the_input_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO("\n\nmore")
    monkeypatch.setattr(sys, "stdin", pipe)
    command_module._hold("what is held")
    assert pipe.read() == ""


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_plan_is_tried_again_and_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    words = ["--job", f"{sys.executable} job.py {{bootstrap}}", "--topic", "out:1", "--output", "out"]
    plan = single(COMMIT, BY_NAME["kill-after"]).as_json()
    again = ["again", plan, "--hold-at-fault", "--json"]
    result = CliRunner().invoke(certify, [*words, "--until", "exit", *again], input="")
    assert result.exit_code == 1, result.output
    assert '"reached": true' in result.stdout
    assert result.stderr.count("held at EndTxn transactional_id=t #2 (commit)") == 1
    assert "close standard input to inject the fault" in result.stderr
