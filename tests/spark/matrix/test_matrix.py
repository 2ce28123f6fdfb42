"""The crash matrix: a read_committed reader finds each record once, whichever process is killed at whichever step.

ODRADEK_MATRIX_SEEDS=5 pytest -m slow tests/spark/matrix                # more seeds than three
ODRADEK_MATRIX_POINTS='decision.*' pytest -m slow tests/spark/matrix    # some of the points
ODRADEK_MATRIX_PLANS=plans.json pytest -m slow tests/spark/matrix       # saved plans again
"""

from __future__ import annotations

import os
from fnmatch import fnmatch

import pytest

from odradek.spark.sink.points import POINTS
from tests.spark.matrix.plan import MOMENT, NODES, VICTIMS, column, fewest, pairwise, sample
from tests.spark.matrix.run import PLANS_VARIABLE, kept, run, split_into_companies, summary
from tests.support.deadlines import LONG_TEST_S

pytestmark = pytest.mark.spark_apart
SEEDS = int(os.environ.get("ODRADEK_MATRIX_SEEDS", "3"))
CHOSEN = [each for each in (*POINTS, MOMENT) if fnmatch(each, os.environ.get("ODRADEK_MATRIX_POINTS", "*"))]
SIDE_BY_SIDE = 16
"""Number of plans that one company runs at once. Each occupies a driver's thread and up to five Python processes."""


@pytest.mark.timeout(LONG_TEST_S)
def test_each_record_is_there_once_after_a_kill_in_any_phase():
    """Each record is there once after a kill in any phase, on three nodes.

    The sample has every phase, victim and feature. In two stories a node is killed too.
    """
    print(summary(run(fewest(sample(1, POINTS)), "sample")))


@pytest.mark.slow
@pytest.mark.timeout(LONG_TEST_S)
def test_each_record_is_there_once_with_any_two_circumstances():
    """Each record is written once with any combination of two values of phase, victim and features."""
    print(summary(run(sample(1, POINTS), "pairs")))


@pytest.mark.slow
@pytest.mark.timeout(LONG_TEST_S)
def test_each_record_is_there_once_also_when_a_second_death_and_a_bad_network_are_added():
    plans = pairwise(100, POINTS)[:SIDE_BY_SIDE]
    print(summary(run(plans, "more", audited=True)))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize("node", ["", *NODES])
@pytest.mark.parametrize("victim", VICTIMS)
def test_the_whole_matrix(victim: str, node: str, seed: int):
    """Each record is there once after a kill at any point of the sink, or at a random moment."""
    plans = column(CHOSEN, seed, victim, node)
    name = f"{seed}-{victim}-{node or 'single'}"
    print(
        summary(
            [
                each
                for some in split_into_companies(plans, SIDE_BY_SIDE)
                for each in run(some, name, audited=True)
            ]
        )
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.skipif(PLANS_VARIABLE not in os.environ, reason="for plans that were kept")
def test_saved_plans():
    print(summary(run(kept(), "again")))
