"""One company from beginning to end, and the verdict; what was not right stays where it is.

A company that was not right leaves its directory behind (with ``ODRADEK_MATRIX_KEEP=1`` each does): the plans, to be
carried out again (``ODRADEK_MATRIX_PLANS``), what happened when, the driver's log, the checkpoints, the broker's log and
its data.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.spark.matrix.company import Company, MatrixFailed
from tests.spark.matrix.plan import MOMENT, Plan, load
from tests.spark.matrix.story import Outcome

KEPT = Path(__file__).resolve().parents[3] / ".cache" / "matrix"
PLANS_VARIABLE = "ODRADEK_MATRIX_PLANS"


def run(plans: Sequence[Plan], name: str, *, audited: bool = False) -> list[Outcome]:
    """Carry the plans out side by side, and have the files audited in the end. ``MatrixFailed`` with everything about it if
    something was not right."""
    KEPT.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=KEPT))
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    company = Company(plans, directory, seed=plans[0].seed)
    try:
        with company:
            outcomes = company.play()
            if audited:
                company.broker.process.terminate()
                wrong += company.audit()
    except Exception:
        wrong.append(traceback.format_exc())
    (directory / "outcomes.txt").write_text("\n".join(map(str, outcomes)) + "\n")
    wrong += complaints(outcomes)
    if wrong:
        (directory / "wrong.txt").write_text("\n".join(wrong) + "\n")
        again = f"{PLANS_VARIABLE}={directory / 'plans.json'} pytest -m slow tests/spark/matrix"
        raise MatrixFailed("\n".join([*wrong, f"All of it is kept in {directory}; again: {again}"]))
    if not os.environ.get("ODRADEK_MATRIX_KEEP"):
        shutil.rmtree(directory)
    # A death of others may do away with the step that was to come: alone, a story has none.
    return [
        run([each.plan], f"{name}-alone", audited=audited)[0] if each.caught and _unseen(each) else each
        for each in outcomes
    ]


def complaints(outcomes: Iterable[Outcome]) -> list[str]:
    """What must not be with an exactly-once sink; and kills that were planned at points that no process reached. (A
    story that was caught by the death of others is played again.)"""
    return [str(each) for each in outcomes if each.verdict.complaints or (_unseen(each) and not each.caught)]


def _unseen(outcome: Outcome) -> bool:
    """A kill was not carried out. (A moment may pass while others are waited for.)"""
    return any(kill.point != MOMENT for kill in outcome.missed)


def kept() -> list[Plan]:
    """The plans that are to be carried out again."""
    return load(Path(os.environ[PLANS_VARIABLE]))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts, for the log of a long run."""
    kills = [kill for each in outcomes for kill in each.kills]
    victims = ", ".join(
        f"{sum(kill.victim == who for kill in kills)} {who}" for who in sorted({k.victim for k in kills})
    )
    return (
        f"{len(outcomes)} stories, {sum(each.runs for each in outcomes)} runs, {len(kills)} kills ({victims}) at "
        f"{len({kill.point for kill in kills})} points, {sum(each.caught for each in outcomes)} caught by those of others; "
        f"lost {sum(each.verdict.lost for each in outcomes)}, duplicated {sum(each.verdict.duplicated for each in outcomes)}"
    )


def companies(plans: Sequence[Plan], size: int) -> list[list[Plan]]:
    """So many at a time, those with nodes that die by themselves."""
    kinds = [[each for each in plans if bool(each.node) is many] for many in (False, True)]
    return [kind[at : at + size] for kind in kinds for at in range(0, len(kind), size)]
