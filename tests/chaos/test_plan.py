"""Plans depend only on the seed, can be stored as JSON, and use rules that the broker accepts."""

from __future__ import annotations

import pytest

from lab.faults.text import parse_rule
from tests.chaos.actors import PARTITIONS
from tests.chaos.plan import NODES, Plan, draw


def test_the_same_seed_gives_the_same_plan() -> None:
    assert draw(7, 3000) == draw(7, 3000)
    assert draw(7, 3000) != draw(8, 3000)


@pytest.mark.parametrize("seed", range(50))
def test_every_step_is_valid_and_every_fault_ends(seed: int) -> None:
    plan = draw(seed, 5000)
    assert Plan.from_json(plan.to_json()) == plan
    assert str(plan).startswith(f"seed {seed}\nat ")
    for number, step in enumerate(plan.steps):
        behind = plan.steps[number + 1 :]
        if step.do == "rule":
            parse_rule(step.rule)
            assert any(later.do == "unrule" and later.rule == step.rule for later in plan.steps)
        elif step.do in ("kill", "stop"):
            assert step.node in NODES
            assert any(later.do == "start" for later in behind)
        elif step.do == "move":
            topic, _, partition = step.place.rpartition("-")
            assert int(partition) < PARTITIONS[topic]
            assert set(step.replicas) <= set(NODES)


def test_each_third_plan_is_gentle() -> None:
    assert [draw(seed, 5000).is_gentle for seed in range(6)] == [True, False, False] * 2


def test_the_seeds_together_have_every_fault() -> None:
    text = "\n".join(str(draw(seed, 5000)) for seed in range(20))
    words = (
        "kill node",
        "stop node",
        "move transfers-0 to",
        "advance",
        "cut",
        "one-way",
        "slow-link",
        "pause",
        "-> hold",
        "-> detach",
        "-> lose-answer",
        "-> lose-request",
        "-> drop",
        "-> duplicate",
        "-> error",
        "-> delay",
        "-> kill",
    )
    assert [word for word in words if word not in text] == []
