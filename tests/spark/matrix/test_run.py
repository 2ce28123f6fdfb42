"""Each planned kill is carried out: in the company, or alone if a kill for another query has made its step unnecessary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark.matrix import run
from tests.spark.matrix.company import MatrixFailed
from tests.spark.matrix.plan import DRIVER, MOMENT, WORKER, Kill, Plan
from tests.spark.matrix.story import Outcome
from tests.spark.matrix.verdict import Verdict

KILL = Kill("end.some", WORKER)
CLEAN = Verdict(0, 0, 0, 0, ())


class Played:
    """A fake company with given outcomes, which records the plans that it was to run."""

    def __init__(self, *played: list[Outcome]) -> None:
        self.outcomes = list(played)
        self.plans: list[list[Plan]] = []

    def __call__(self, plans: Sequence[Plan], directory: Path, *, seed: int) -> Any:
        self.plans.append(list(plans))
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass

    def play(self) -> list[Outcome]:
        return self.outcomes.pop(0)


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Played:
    played = Played()
    monkeypatch.setattr(run, "Company", played)
    monkeypatch.setattr(run, "KEPT", tmp_path)
    return played


def outcome(seed: int, *, caught: int = 0, missed: Kill | None = None, verdict: Verdict = CLEAN) -> Outcome:
    kill = missed or KILL
    kills = () if missed else (kill,)
    return Outcome(
        Plan(seed, (kill,)), verdict, 2, kills, caught, (missed,) if missed is not None else (), 600
    )


def test_a_kill_that_another_one_made_impossible_is_carried_out_alone(company: Played):
    fine, undone, alone = outcome(1, caught=1), outcome(2, caught=1, missed=KILL), outcome(2)
    company.outcomes = [[fine, undone], [alone]]
    assert run.run([fine.plan, undone.plan], "two") == [fine, alone]
    assert company.plans == [[fine.plan, undone.plan], [undone.plan]]


def test_a_kill_at_a_point_that_was_not_reached_is_a_failure(company: Played):
    company.outcomes = [[outcome(1, missed=KILL)]]
    with pytest.raises(MatrixFailed, match="missed 1"):
        run.run([Plan(1)], "one")


def test_a_kill_at_a_point_that_was_not_reached_alone_either_is_a_failure(company: Played):
    company.outcomes = [[outcome(1, caught=1, missed=KILL)], [outcome(1, missed=KILL)]]
    with pytest.raises(MatrixFailed, match="missed 1"):
        run.run([Plan(1)], "one")


def test_a_moment_may_pass(company: Played):
    passed = outcome(1, missed=Kill(MOMENT, DRIVER, written=0.5))
    company.outcomes = [[passed]]
    assert run.run([passed.plan], "one") == [passed]


def test_a_wrong_output_is_a_failure_after_any_kill(company: Played):
    company.outcomes = [[outcome(1, caught=1, missed=KILL, verdict=Verdict(1, 0, 0, 0, ("lost: 1",)))]]
    with pytest.raises(MatrixFailed, match="lost: 1"):
        run.run([Plan(1)], "one")
