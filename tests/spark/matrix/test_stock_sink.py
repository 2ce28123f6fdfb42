"""Spark's own sink in the same harness: it loses no record, and writes the records of an interrupted batch twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.matrix.company import Company
from tests.spark.matrix.plan import Plan
from tests.spark.matrix.sinks import STOCK
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.spark_apart, pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)]


def test_spark_s_own_sink_duplicates_an_interrupted_batch(tmp_path: Path):
    """Spark's own sink writes an interrupted batch twice.

    The task has written and waits for one of its responses, so its batch cannot be in Spark's commit log.
    """
    plan = Plan(1, sink=STOCK)
    with Company([plan], tmp_path) as company:
        (story,) = company.stories
        written = company.broker.faults.add("log.write", topic=story.output, partition=0, nth=3, do="hold")
        company.until(lambda: written.hits, "the third write is under way")
        company.kill_driver()
        written.release()
        (outcome,) = company.play()
    assert outcome.runs == 2
    assert outcome.verdict.lost == outcome.verdict.unexpected == 0
    assert 0 < outcome.verdict.duplicated <= plan.per_batch
