"""Tests of the soak runs of clients: their plans of kills, and the choice of the next run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.clients import soak
from tests.clients.jvm.kills import Loop, draw
from tests.clients.soak import Result
from tests.clients.soak_jobs import DEATHS, FRAMEWORKS, JOBS, Job, points
from tests.support.kept_runs import RIGHT, load


@pytest.mark.parametrize("loop", FRAMEWORKS)
def test_a_seed_always_gives_the_same_plan(loop: type[Loop]):
    plans = [draw(loop, seed, 8) for seed in range(20)]
    assert plans == [draw(loop, seed, 8) for seed in range(20)]
    kills = [kill for plan in plans for kill in plan]
    assert {kill.who for kill in kills} == {"member", "broker"}
    assert {kill.point.partition(":")[0] for kill in kills} == {"", *loop.deaths}


def test_a_seed_always_draws_the_same_points():
    drawn = [points(Random(seed), DEATHS) for seed in range(40)]
    assert drawn == [points(Random(seed), DEATHS) for seed in range(40)]
    names = {point.partition(":")[0] for each in drawn for point in each}
    assert names == set(DEATHS)


def test_each_client_continues_after_its_last_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    results = tmp_path / "results.jsonl"

    def one_run(job: Job, seed: int) -> Result:
        return Result(seed, "2026-01-01", 1.0, "lost" if seed == 2 else RIGHT, job.name)

    monkeypatch.setattr(soak, "one_run", one_run)
    calls = [["--seed", "1"], ["--only", "streams", "--seed", "7"], ["--only", "streams", "--seed", "2"]]
    assert [soak.main(["--results", str(results), *call]) for call in calls] == [0, 0, 1]
    found = load(results, Result)
    assert {each.job for each in found} == {job.name for job in JOBS}
    assert soak.next_seed_of(found, "streams") == 8
    assert soak.next_seed_of(found, "connect") == 2
    assert soak.next_seed_of(found, "other") == 1


def test_the_client_with_the_oldest_run_is_next():
    found = [Result(1, "2026-01-01", 1.0, RIGHT, job.name) for job in JOBS]
    assert soak.longest_ago([], JOBS) == JOBS[0]
    assert soak.longest_ago(found[:3], JOBS) == JOBS[3]
    assert soak.longest_ago(found, JOBS) == JOBS[0]
    assert soak.longest_ago([*found, found[0]], JOBS) == JOBS[1]
