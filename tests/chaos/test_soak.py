"""The results of a soak are stored by seed, and the next call continues after the last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import soak
from tests.chaos.plan import Plan
from tests.chaos.run import ChaosFailed
from tests.support.kept_runs import load


def test_runs_continue_after_the_last_stored_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minutes = iter(range(100))
    monkeypatch.setattr(soak, "new_directory", lambda name: tmp_path / name)

    def play(plan: Plan, seconds: float, directory: Path) -> str:
        if plan.seed == 8:
            raise ChaosFailed("one record is gone")
        return "10 requests"

    monkeypatch.setattr(soak, "run", play)
    results = tmp_path / "results.jsonl"
    call = ["--results", str(results), "--first", "7", "--seconds", "60"]

    def now_s() -> float:
        return 60 * next(minutes)

    assert soak.main([*call, "--minutes", "1.5"], now_s) == 0
    assert soak.main([*call, "--minutes", "2.5"], now_s) == 1
    kept = load(results, soak.Result)
    assert [(each.seed, each.verdict) for each in kept] == [(7, "right"), (8, "wrong"), (9, "right")]
    assert "one record is gone" in kept[1].said
    assert "3 runs, 3 minutes; wrong: 1 [8]" in capsys.readouterr().out
