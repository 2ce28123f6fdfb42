"""The types of the package match the broker's language for rules, and a type checker finds misspelt names."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import odradek
from broker.clock import Domain
from broker.clock.virtual import ALL
from broker.cluster.runtime import NodeState
from broker.transactions.transaction import NAMED_STATES
from lab.control.routes.disk import Damage
from lab.control.routes.topics import RecordsForm
from lab.faults.rules import ACTIONS, SENDERS
from odradek import security, words
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[2]

RIGHT = """
import odradek
from odradek import Broker, Faults, Record, Rule, Transaction

def stage(faults: Faults) -> Rule:
    faults.add("EndTxn nth=2 -> lose-answer")
    faults.add(do="cut", nodes=(1, 2), one_way=True, expires="30s")
    faults.add("EndTxn", do="answer", fields={"error_code": "CONCURRENT_TRANSACTIONS"})
    return faults.add("EndTxn", transactional_id="payments", nth=2, do="lose-answer")

async def look(broker: Broker, rule: Rule) -> None:
    reveal_type(await rule.wait_async(2, timeout_s=1.0))
    reveal_type(await broker.records_async("orders"))
    reveal_type(await broker.nodes[1].stop_async())
    reveal_type(await broker.reset_async())
    reveal_type(broker.transactions.wait("payments", ["CompleteCommit", "CompleteAbort"]).state)
    [record] = broker.records("orders", isolation="read_uncommitted")
    reveal_type(record.outcome)
    broker.clock.advance("7d", only=["groups"])
    try:
        rule.wait()
    except (broker.FaultNotHit, odradek.NotFound) as error:
        reveal_type(error)
"""
REVEALED = [
    "odradek.remote.Rule",
    "list[odradek.topics.Record]",
    "None",
    "odradek.broker.Broker",
    "Literal['Empty'",
    "Literal['committed'",
    "odradek.errors.FaultNotHit | odradek.errors.NotFound",
]
WRONG = """
from odradek import Broker

async def wrong(broker: Broker) -> None:
    broker.faults.add("EndTxn", do="lose-answr")
    broker.faults.add("EndTxn", do="drop", trnsactional_id="payments")
    broker.faults.add("EndTxn", do="drop", nth="2")
    broker.transactions.wait("payments", "Committed")
    broker.records("orders", "read_comitted")
    broker.clock.advance("7d", only="group")
    broker.noeds
    await broker.faults.list()[0].wait_async(timeout="1s")
"""


def test_every_name_of_the_package_is_there() -> None:
    assert set(odradek._HOMES) == set(odradek.__all__) == set(dir(odradek))
    found = {name: getattr(odradek, name) for name in odradek.__all__}
    for name, value in found.items():
        assert not inspect.isclass(value) or value.__module__ == odradek._HOMES[name], name
    errors = {name for name in found if inspect.isclass(found[name]) and issubclass(found[name], Exception)}
    assert {name for name in errors if getattr(odradek.Broker, name) is found[name]} == errors


def test_the_words_are_those_of_the_broker() -> None:
    for ours, theirs in (
        (words.Action, ACTIONS),
        (get_type_hints(words.MatchWords)["sender"], SENDERS),
        (words.TransactionState, NAMED_STATES),
        (words.NodeState, ["paused", *(each.value for each in NodeState)]),
        (words.Domain, [ALL, *(each.value for each in Domain)]),
        (words.Isolation, get_args(get_type_hints(RecordsForm)["isolation"])),
        (words.Damage, get_args(get_type_hints(Damage)["how"])),
        (words.Library, security.LIBRARIES),
        (words.Mechanism, security.MECHANISMS),
    ):
        assert set(get_args(ours)) == set(theirs)


@pytest.mark.more
def test_a_type_checker_passes_what_is_right_and_finds_what_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for name, text in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
    # In the checkout's own folder mypy would read its configuration.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "."],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    revealed = [line for line in lines if line.startswith("right.py")]
    assert len(revealed) == len(REVEALED), done.stdout + done.stderr
    for line, kind in zip(revealed, REVEALED, strict=True):
        assert "note: Revealed type is " in line
        assert kind in line
    first = WRONG.splitlines().index('    broker.faults.add("EndTxn", do="lose-answr")') + 1
    wrong = [line for line in lines if line.startswith("wrong.py") and ": error: " in line]
    assert {int(line.split(":")[1]) for line in wrong} == {*range(first, WRONG.count("\n") + 1)}, done.stdout


def test_a_name_of_the_module_that_the_fixture_hides_says_the_way_round() -> None:
    broker = odradek.Broker()
    assert broker.FaultNotHit is odradek.FaultNotHit
    with pytest.raises(AttributeError, match=r"`from odradek import connect`, or .* odradek_clean"):
        broker.connect  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Broker' object has no attribute 'noeds'$"):
        broker.noeds  # type: ignore[attr-defined]  # noqa: B018
    broker.close()
