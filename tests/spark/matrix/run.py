"""Run a company (plans side by side on one broker and driver) from beginning to end, and check its outcomes.

If a check fails, the directory of the company is kept (with ``ODRADEK_MATRIX_KEEP=1`` always): the plans, which
``ODRADEK_MATRIX_PLANS`` runs again, the log of events, the driver's log, the checkpoints, the broker's log and its data.
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
    """Carry the plans out side by side, and optionally audit the broker's files at the end.

    Raises ``MatrixFailed`` with all errors.
    """
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
    # A kill for another query may have made a planned step unnecessary. A story that runs alone has no such kill.
    return [
        run([each.plan], f"{name}-alone", audited=audited)[0] if each.caught and _unseen(each) else each
        for each in outcomes
    ]


def complaints(outcomes: Iterable[Outcome]) -> list[str]:
    """Texts of the outcomes that violate exactly-once, or in which a planned kill at a point did not happen.

    A missing kill does not count if a kill for another query hit the story: it is run again.
    """
    return [str(each) for each in outcomes if each.verdict.complaints or (_unseen(each) and not each.caught)]


def _unseen(outcome: Outcome) -> bool:
    """Whether a planned kill at a point was not carried out.

    A kill at a random moment does not count: the moment may pass while the company waits for other queries.
    """
    return any(kill.point != MOMENT for kill in outcome.missed)


def kept() -> list[Plan]:
    """The saved plans that ``ODRADEK_MATRIX_PLANS`` names, to be run again."""
    return load(Path(os.environ[PLANS_VARIABLE]))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts of runs and kills, for the log of a long run."""
    kills = [kill for each in outcomes for kill in each.kills]
    victims = ", ".join(
        f"{sum(kill.victim == who for kill in kills)} {who}" for who in sorted({k.victim for k in kills})
    )
    return (
        f"{len(outcomes)} stories, {sum(each.runs for each in outcomes)} runs, {len(kills)} kills ({victims}) at "
        f"{len({kill.point for kill in kills})} points, {sum(each.caught for each in outcomes)} caught by those of others; "
        f"lost {sum(each.verdict.lost for each in outcomes)}, duplicated {sum(each.verdict.duplicated for each in outcomes)}"
    )


def split_into_companies(plans: Sequence[Plan], size: int) -> list[list[Plan]]:
    """The plans in groups of at most ``size``. Plans that kill a node form their own groups."""
    kinds = [[each for each in plans if bool(each.node) is many] for many in (False, True)]
    return [kind[at : at + size] for kind in kinds for at in range(0, len(kind), size)]
