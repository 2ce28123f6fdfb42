"""Benchmark limits for installations without the compiled core.

Every limit belongs to a measured figure, and applies only if the core is pure Python.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pure
from benchmarks.figures import Figure

README = Path(__file__).parents[2] / "benchmarks" / "README.md"


@pytest.mark.parametrize("name", pure.LIMITS)
def test_each_limit_belongs_to_a_measured_figure(name: str) -> None:
    assert f"\n| {name} " in README.read_text("utf-8")


def test_the_limits_apply_to_pure_python_only(monkeypatch: pytest.MonkeyPatch) -> None:
    name, limit = next(iter(pure.LIMITS.items()))
    ours, other = Figure(name, limit, "ms", limit=1), Figure("another", 2, "ms", limit=1)
    monkeypatch.setattr(pure, "compiled", object())
    assert [pure.judged(each).limit for each in (ours, other)] == [1, 1]
    monkeypatch.setattr(pure, "compiled", None)
    assert [pure.judged(each).limit for each in (ours, other)] == [limit, 1]
    assert pure.judged(ours).within_limit
