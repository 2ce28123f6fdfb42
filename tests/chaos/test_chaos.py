"""Real clients in real time under all kinds of faults: no record is lost, duplicated or out of order.

Each transaction is visible as a whole or not at all.

ODRADEK_CHAOS_SEEDS=100-119 pytest -m slow tests/chaos          # these seeds, a minute each
ODRADEK_CHAOS_PLAN=plan.json pytest -m slow tests/chaos         # a stored plan
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
"""Assumed rate, below that of an idle machine, so that the plan ends in time."""


def seeds() -> list[int]:
    """Seeds of the long test, from ``7,8`` or ``100-119``."""
    found: list[int] = []
    for part in os.environ.get("ODRADEK_CHAOS_SEEDS", "1-4").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def new_directory(name: str) -> Path:
    """Create a directory for one run. Several runs may have the same seed."""
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
def test_a_stored_plan() -> None:
    plan = Plan.load(Path(os.environ["ODRADEK_CHAOS_PLAN"]))
    print(run(plan, LONG_S, new_directory(f"again-{plan.seed}")))
