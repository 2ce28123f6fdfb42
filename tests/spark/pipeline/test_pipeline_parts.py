"""The parts of the pipeline that need neither Spark nor a broker: data, plan of kills, verdict, end of a run."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import cast

import psutil
import pytest

from odradek.child import Child
from odradek.demo import flights
from odradek.spark.pipeline import expected
from odradek.spark.pipeline.departures import CLOSING, WATERMARK_DELAY, Departure, disorder, in_order
from odradek.spark.pipeline.expected import Row
from odradek.spark.pipeline.job import is_over
from odradek.spark.pipeline.plan import BROKER_POINTS, LATEST, SINK_POINTS, Kills, draw
from odradek.spark.pipeline.programs import Program
from odradek.spark.pipeline.run import GIVING_UP_MAX, Pipeline, PipelineFailed, Settings
from odradek.spark.pipeline.show import Show
from odradek.spark.pipeline.verdict import compare, sees_planted_errors
from odradek.spark.processes import python_workers
from tests.support.clients import eventually

PREFIX = 5000


@cache
def told() -> list[Departure]:
    return in_order(flights.lines(flights.data_file()))


def row(origin: str, flights: int) -> Row:
    return {"origin": origin, "hour": "2013-01-01T10:00:00Z", "flights": flights, "mean_delay_minutes": 1.5}


@pytest.mark.more
def test_no_flight_is_written_after_its_watermark_has_passed():
    most = disorder(told())
    assert len(told()) == 336_776
    # This holds for every partition: a subsequence is not more out of order than the whole sequence.
    assert most < WATERMARK_DELAY
    # The flights are out of order.
    assert most.total_seconds() > 3600


def test_every_flight_lies_before_the_closing_record():
    last = max(json.loads(each.value)["scheduled"] for each in told()[-PREFIX:])
    assert "2013" < last < CLOSING


@pytest.mark.more
def test_written_and_expected_flights_are_the_same():
    wanted = expected.statistics(flights.data_file(), PREFIX)
    seen: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for each in told()[:PREFIX]:
        flight = json.loads(each.value)
        key = expected.key_of({"origin": flight["origin"], "hour": f"{flight['scheduled'][:13]}:00:00Z"})
        seen[key] += 1
        known[key] += flight["delay_minutes"] is not None
    assert {key: (each["flights"], each["departed"]) for key, each in wanted.items()} == {
        key: (count, known[key]) for key, count in seen.items()
    }


def test_statistics_of_an_hour_by_hand():
    day = {"year": "2013", "month": "1", "day": "1", "hour": "5", "origin": "JFK"}
    rows = expected._statistics(
        [
            {**day, "minute": "0", "dep_delay": "-4"},
            {**day, "minute": "59", "dep_delay": "16"},
            {**day, "minute": "30", "dep_delay": "15"},
            {**day, "minute": "30", "dep_delay": "NA"},
            {**day, "minute": "30", "origin": "LGA", "dep_delay": "NA"},
        ],
        None,
    )
    assert rows["JFK 2013-01-01T10:00:00Z"] == {
        "origin": "JFK",
        "hour": "2013-01-01T10:00:00Z",
        "flights": 4,
        "departed": 3,
        "mean_delay_minutes": 9.0,
        "max_delay_minutes": 16,
        "delayed_share": 1 / 3,
    }
    cancelled = rows["LGA 2013-01-01T10:00:00Z"]
    assert [cancelled[name] for name in ("departed", "mean_delay_minutes", "delayed_share")] == [
        0,
        None,
        None,
    ]


def test_the_verdict_sees_what_is_lost_duplicated_changed_or_unexpected():
    wanted = {expected.key_of(each): each for each in (row("JFK", 3), row("LGA", 2), row("EWR", 1))}
    right = [(key, json.dumps(each)) for key, each in wanted.items()]
    assert not compare(wanted, right)
    assert sees_planted_errors(wanted, right)
    other = (right[0][0], json.dumps(row("JFK", 4)))
    difference = compare(wanted, [other, right[1], right[1], ("SFO", "{}")])
    assert difference.summary == "lost 1, duplicated 1, changed 1, unexpected 1"
    assert compare(wanted, right[:2])


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_kills_as_often_as_is_asked_and_before_the_end(seed: int):
    kills = Kills(driver=3, worker=2, producer=1, broker=4)
    plan = draw(random.Random(seed), kills, batches=12, transactions=336, ahead=60, has_points=True)
    assert len(plan.sink_points) + len(plan.driver) == 3
    assert {point for point, _ in plan.sink_points} <= set(SINK_POINTS)
    assert {point for point, _ in plan.broker_points} <= set(BROKER_POINTS)
    assert (len(plan.worker), len(plan.producer), len(plan.broker_points)) == (2, 1, 4)
    assert all(0 < share <= LATEST for share in [*plan.driver, *plan.worker, *plan.producer])
    assert sum(times for _, times in plan.sink_points) <= 12
    assert sum(at for _, at in plan.broker_points) <= 336
    assert plan.broker_points[0][1] > 60
    assert all(share * 336 >= 60 for share in plan.producer)
    assert plan == draw(random.Random(seed), kills, batches=12, transactions=336, ahead=60, has_points=True)


def test_a_plan_lists_its_remaining_kills():
    plan = draw(random.Random(1), Kills(1, 1, 0, 0), batches=9, transactions=30, ahead=0, has_points=False)
    assert plan.sink_points == []
    assert plan.left() == "driver, worker"
    plan.driver.clear()
    plan.worker.clear()
    assert plan.is_done


def batch(checkpoint: Path, number: int, watermark_ms: int, done: bool) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    said = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}}
    (checkpoint / "offsets" / str(number)).write_text(f'v1\n{json.dumps(said)}\n{{"flights":{{"0":9}}}}\n')
    if done:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_query_is_over_when_a_batch_behind_the_last_window_is_done(tmp_path: Path):
    closed_ms = 4_102_444_800_000 - int(WATERMARK_DELAY.total_seconds() * 1000)
    assert not is_over(tmp_path)
    batch(tmp_path, 9, 1_388_000_000_000, done=True)
    assert not is_over(tmp_path)
    batch(tmp_path, 10, closed_ms, done=False)
    assert not is_over(tmp_path)
    batch(tmp_path, 10, closed_ms, done=True)
    assert is_over(tmp_path)


# A driver whose only child is a daemon that forks two workers, like Spark's daemon.
DAEMON = """
import os, time
os.fork() and os.fork()
print("started", flush=True)
time.sleep(600)
"""
DRIVER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], 'pyspark.daemon'])"


def test_spark_s_python_workers_are_found_below_their_own_driver_only(tmp_path: Path):
    said: list[str] = []
    command = [sys.executable, "-c", DRIVER, DAEMON]
    drivers = [Child(command, tmp_path / "log", hears=said.append) for _ in range(2)]
    try:
        eventually(lambda: len(said) == 6, "two daemons and four workers")
        found = [python_workers(each.pid) for each in drivers]
        assert [len(pids) for pids in found] == [2, 2]
        daemons = {psutil.Process(pid).ppid() for pids in found for pid in pids}
        assert {psutil.Process(pid).ppid() for pid in daemons} == {each.pid for each in drivers}
    finally:
        for each in drivers:
            each.kill()
    assert python_workers(drivers[0].pid) == []


class Ended:
    """A fake program that has always ended, however often it is started."""

    name = "job"
    pid = 0

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.starts = 0

    def start(self, environment: object = None) -> None:
        self.starts += 1

    def tell(self, line: object) -> None:
        pass

    def complaint(self) -> str:
        return "no such topic"


def pipeline(directory: Path, job: Ended, kills: Kills) -> Pipeline:
    made = Pipeline(Settings(directory, 1, bootstrap="unknown:1", kills=kills), Show(500), 500)
    made.producer, made.job = cast(Program, Ended(0)), cast(Program, job)
    return made


def test_a_run_that_did_not_kill_what_it_should_have_shows_nothing(tmp_path: Path):
    with pytest.raises(PipelineFailed, match=r"before all kills were carried out: worker, producer$"):
        pipeline(tmp_path, Ended(0), Kills(0, 1, 1, 0))._work()
    pipeline(tmp_path, Ended(0), Kills(0, 0, 0, 0))._work()


def test_a_program_that_gives_up_without_end_ends_the_run(tmp_path: Path):
    job = Ended(1)
    with pytest.raises(PipelineFailed, match="failed too often: no such topic"):
        pipeline(tmp_path, job, Kills(0, 0, 0, 0))._work()
    assert job.starts == GIVING_UP_MAX
