"""Outdated processes do no harm: an attempt whose request arrives after its successor's report, a driver that wakes up."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.spark.matrix.company import Company
from tests.spark.matrix.plan import ZOMBIE, Kill, Plan
from tests.spark.matrix.processes import signal_to
from tests.spark.matrix.run import run
from tests.support.clients import eventually
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.spark_apart, pytest.mark.slow]
SMALL: dict[str, Any] = {"batches": 3, "records": 120, "partitions": 2}


def epochs(company: Company, name: str) -> dict[str, int]:
    """By transactional id: the producer epoch, for ids of attempts of the first task in the first plan."""
    ids = company.broker.transactions.list()
    return {
        each.transactional_id: each.producer_epoch
        for each in ids
        if each.transactional_id.startswith(f"{name}-1-0-1.")
    }


def has_moved(company: Company, name: str, was: Any) -> bool:
    return epochs(company, name) != was


@pytest.mark.timeout(LONG_TEST_S)
def test_an_attempt_whose_id_is_initialised_when_its_successor_has_reported_does_no_harm(tmp_path: Path):
    """An attempt whose InitProducerId arrives after its successor has reported does no harm.

    The request arrives right before the decision, when all reports have been checked, and in a second query right after. The
    first attempt of each task 0 is killed while its first InitProducerId is in flight. A second attempt replaces it.
    """
    before, after = Plan(1, **SMALL), Plan(2, **SMALL)
    with Company([before, after], tmp_path) as company:
        names = [each.name for each in company.stories]
        lates = [
            company.broker.faults.add(
                "InitProducerId", transactional_id=f"{name}-1-0-1.*", nth=1, do="detach"
            )
            for name in names
        ]
        for name, point in zip(names, ("decision.written", "decision.made"), strict=True):
            company.stage.set(name, point)
        company.until(lambda: all(each.hits for each in lates), "both attempts have asked for their ids")
        assert company.driver is not None
        for each in company.driver.task_workers():
            signal_to(each.pid, signal.SIGKILL)
        company.until(lambda: all(map(company.stage.standing, names)), "both commits stand at their points")
        for name, late in zip(names, lates, strict=True):
            known = epochs(company, name)
            assert late.release() == 1
            eventually(partial(has_moved, company, name, known), "the late one is carried out")
            late.remove()
            signal_to(company.stage.standing(name) or 0, signal.SIGCONT)
        outcomes = company.play()
    assert [each.verdict.complaints for each in outcomes] == [(), ()]


@pytest.mark.timeout(LONG_TEST_S)
def test_a_driver_that_wakes_beside_its_successor_decides_nothing():
    """A driver that wakes up beside its successor decides nothing.

    It wakes right before its decision (others have decided this and later batches), after the decision, or in planning.
    """
    points = ("commit.checked", "decision.written", "decision.made", "end.first", "plan.fenced", "plan.swept")
    plans = [
        Plan(
            number,
            (Kill(point, ZOMBIE, 0 if point.startswith("plan.") else 1, sleeps=1 + number % 2 * 9),),
            **SMALL,
        )
        for number, point in enumerate(points)
    ]
    assert [len(each.kills) for each in run(plans, "zombies")] == [1] * len(plans)
