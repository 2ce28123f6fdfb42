"""Clients in real time while everything goes wrong that can be staged: nothing is lost, duplicated, torn or out of order.

ODRADEK_CHAOS_SEEDS=100-119 pytest -m slow tests/chaos          # these seeds, a minute each
ODRADEK_CHAOS_PLAN=plan.json pytest -m slow tests/chaos         # a plan that was kept
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.chaos.plan import Plan, draw
from tests.chaos.run import run

KEPT = Path(__file__).resolve().parents[2] / ".cache" / "chaos"
SHORT_S, LONG_S = 8.0, 60.0
REQUESTS_PER_S = 400
"""Fewer than there are on a quiet machine: the plan is to be over in time."""


def seeds() -> list[int]:
    """Of the long form: ``7,8`` or ``100-119``."""
    found: list[int] = []
    for part in os.environ.get("ODRADEK_CHAOS_SEEDS", "1-4").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def new_directory(name: str) -> Path:
    """Of one run: the same seed may run somewhere else at the same time."""
    KEPT.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=KEPT))


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.more)])
def test_nothing_is_lost_duplicated_or_torn(seed: int) -> None:
    said = run(draw(seed, round(SHORT_S * REQUESTS_PER_S)), SHORT_S, new_directory(f"short-{seed}"))
    print(said)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_nothing_is_lost_duplicated_or_torn_in_a_minute(seed: int) -> None:
    print(run(draw(seed, round(LONG_S * REQUESTS_PER_S)), LONG_S, new_directory(f"seed-{seed}")))


@pytest.mark.slow
@pytest.mark.skipif("ODRADEK_CHAOS_PLAN" not in os.environ, reason="for a plan that was kept")
def test_a_plan_that_was_kept() -> None:
    plan = Plan.load(Path(os.environ["ODRADEK_CHAOS_PLAN"]))
    print(run(plan, LONG_S, new_directory(f"again-{plan.seed}")))
