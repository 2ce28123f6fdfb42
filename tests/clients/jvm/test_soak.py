"""The long forms: their plans, and how they go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.jvm import soak
from tests.clients.jvm.kills import Loop, draw
from tests.clients.jvm.soak import LOOPS, RIGHT, Result


@pytest.mark.parametrize("loop", LOOPS)
def test_a_seed_always_gives_the_same_plan(loop: type[Loop]):
    plans = [draw(loop, seed, 8) for seed in range(20)]
    assert plans == [draw(loop, seed, 8) for seed in range(20)]
    kills = [kill for plan in plans for kill in plan]
    assert {kill.who for kill in kills} == {"member", "broker"}
    assert {kill.point.partition(":")[0] for kill in kills} == {"", *loop.deaths}


def test_a_run_goes_on_behind_the_last_seed_of_each_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    results = tmp_path / "results.jsonl"

    def one_run(loop: type[Loop], seed: int) -> Result:
        return Result(loop.name, seed, "2026-01-01", 1.0, "lost" if seed == 2 else RIGHT)

    monkeypatch.setattr(soak, "one_run", one_run)
    calls = [["--seed", "1"], ["--only", "streams", "--seed", "7"], ["--only", "streams", "--seed", "2"]]
    assert [soak.main(["--results", str(results), *call]) for call in calls] == [0, 0, 1]
    found = soak.load(results)
    assert {each.framework for each in found} == {loop.name for loop in LOOPS}
    assert soak.next_seed(found, "streams") == 8
    assert soak.next_seed(found, "connect") == 2
    assert soak.next_seed(found, "other") == 1
