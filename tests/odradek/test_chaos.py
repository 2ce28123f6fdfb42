"""`odradek chaos`, and the random steps that it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

import odradek as package
from odradek.chaos import KINDS, Chaos, verify
from odradek.commands.chaos import chaos
from tests.support.clients import PATIENCE
from tests.support.deadlines import HANG_S


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    with package.Broker(nodes=3, topics=["orders:2"], settings={"default.replication.factor": 3}) as broker:
        yield broker


def run(broker: package.Broker, *words: str) -> Result:
    return CliRunner().invoke(chaos, [*words, "--control", broker.control_url], catch_exceptions=False)


def steps(result: Result) -> list[str]:
    return [line.partition(" s  ")[2] for line in result.output.splitlines() if " s  " in line]


def test_the_same_seed_takes_the_same_steps_and_leaves_nothing_behind(broker: package.Broker) -> None:
    first, second = (run(broker, "--seed", "7", "--every", "1ms", "--steps", "12") for _ in range(2))
    assert first.exit_code == 0, first.output
    # Which steps are undone between two others depends on the time that they took.
    drawn = [
        [step for step in steps(each) if not re.search("starts|removed|restored", step)]
        for each in (first, second)
    ]
    assert drawn[0][:3] == drawn[1][:3]
    assert "seed 7: 12 steps, no findings" in first.output
    assert list(broker.faults) == []
    assert {each["state"] for each in broker.nodes.show()} == {"running"}


def test_steps_and_verdict_as_json(broker: package.Broker) -> None:
    result = run(broker, "delay", "--every", "1ms", "--steps", "1", "--json")
    *steps, verdict = [json.loads(line) for line in result.output.splitlines()]
    assert all(each["did"] and each["at_s"] >= 0 for each in steps)
    assert verdict == {"seed": 1, "steps": 1, "findings": []}


def test_each_kind_is_done_and_taken_back(broker: package.Broker) -> None:
    for kind, done in {
        "kill": "is killed",
        "stop": "is stopped",
        "cut": "is cut",
        "lose": "lose-answer",
        "drop": "-> drop",
        "refuse": "-> error",
        "delay": "-> delay",
    }.items():
        result = run(broker, kind, "--every", "1ms", "--steps", "2")
        assert result.exit_code == 0, result.output
        assert done in result.output, kind
    assert len(KINDS) == 7


def test_the_last_running_node_is_not_killed(broker: package.Broker) -> None:
    run_ = Chaos(broker._control, seed=1, kinds=["kill"], pause_s=1000)
    said = [line for _ in range(20) for line in run_.step(0)]
    assert sum("killed" in line for line in said) == 2
    assert sum("skipped" in line for line in said) == 18
    assert sum("starts" in line for line in run_.end()) == 2
    assert verify(broker._control) == []


def test_a_reset_of_another_caller_takes_back_what_was_done(broker: package.Broker) -> None:
    run_ = Chaos(broker._control, seed=1, kinds=["kill", "delay"], pause_s=1000)
    for _ in range(6):
        list(run_.step(0))
    broker.reset()
    said = list(run_.end())
    assert any(re.fullmatch(r"node \d starts: refused, node \d is running, .+", line) for line in said)
    assert any(line.startswith("rule removed: ") for line in said)
    node = broker.nodes[1]
    ending = Chaos(broker._control, seed=1, kinds=["stop"], pause_s=1000)
    node.kill()
    lines = [line for _ in range(9) for line in ending.step(0)]
    assert any(line == "node 1 is skipped: node 1 is killed, not running" for line in lines)
    node.start()
    list(ending.end())
    assert verify(broker._control) == []


def test_a_hanging_transaction_of_chaos_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.chaos.SETTLE_S", 0)
    with package.Broker(topics=["orders:1"]) as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "held", **PATIENCE}
        )
        producer.init_transactions(HANG_S)
        producer.begin_transaction()
        producer.produce("orders", b"x")
        with broker.faults.add("txn.marker -> hold"):
            producer.commit_transaction(HANG_S)
            assert verify(broker._control) == ["held stays PrepareCommit: its markers are not written"]


def test_a_replica_that_stays_out_of_the_isr_is_found(
    broker: package.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.chaos.SETTLE_S", 0)
    broker.nodes[2].kill()
    try:
        found = verify(broker._control)
    finally:
        broker.nodes[2].start()
    assert "node 2 is killed" in found
    assert "orders-0: node 2 stays out of the ISR" in found


def test_wrong_words_are_refused(broker: package.Broker) -> None:
    assert "unknown kind: burn (known: kill" in run(broker, "burn").output
    assert "expected a duration" in run(broker, "--every", "3").output
    with package.Broker() as alone:
        assert "this cluster has one" in run(alone, "cut").output
