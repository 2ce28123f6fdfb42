"""The whole pipeline on a part of the flights, with a driver killed inside a decided batch, and an audit at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.spark.pipeline.plan import Kills
from odradek.spark.pipeline.run import Pipeline, Settings
from odradek.spark.pipeline.show import Show
from odradek.spark.pipeline.verdict import Outcome
from tests.spark.archive import java_options
from tests.support import kafka_oracle
from tests.support.deadlines import LONG_TEST_S

# Each test takes a minute on an idle machine, because Spark starts three times.
pytestmark = [pytest.mark.spark, pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]

FLIGHTS = 12_000
PER_BATCH = 4_000


@pytest.fixture(autouse=True)
def short_lived_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", java_options())


def run(settings: Settings) -> tuple[Pipeline, Outcome]:
    with Show(FLIGHTS) as show:
        pipeline = Pipeline(settings, show, FLIGHTS)
        return pipeline, pipeline.run()


def check(pipeline: Pipeline, outcome: Outcome) -> None:
    assert outcome.is_clean
    assert outcome.report is not None
    assert outcome.report.figures["aborted_transactions"] > 0
    assert len(pipeline.toll.driver) == 1
    assert pipeline.heard.late == 0
    assert pipeline.plan.is_done


def test_statistics_are_there_once_when_producer_broker_worker_and_driver_are_killed(
    spark: object, tmp_path: Path
):
    kills = Kills(driver=1, worker=1, producer=1, broker=1)
    pipeline, outcome = run(Settings(tmp_path, 1, flights=FLIGHTS, per_batch=PER_BATCH, kills=kills))
    check(pipeline, outcome)
    assert pipeline.toll.total == 4
    assert (tmp_path / "audit" / "report.html").exists()


@pytest.mark.java
@pytest.mark.slow
def test_the_same_job_runs_against_apache_kafka_by_its_address(spark: object, tmp_path: Path):
    kills = Kills(driver=1, worker=0, producer=1, broker=0)
    home = tmp_path / "kafka"
    home.mkdir()
    with kafka_oracle.kafka(directory=home) as kafka:
        settings = Settings(
            tmp_path,
            1,
            flights=FLIGHTS,
            per_batch=PER_BATCH,
            bootstrap=f"{kafka.host}:{kafka.port}",
            data_dir=home / "data",
            kills=kills,
        )
        check(*run(settings))
