"""The ends of runs with real jobs: the condition that is waited for, and jobs that write late or end too early."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from odradek.certify.jobs.command import Command
from odradek.certify.judging.findings import Ending, Outputs
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Plan, single
from odradek.certify.runs.run import Run, Stage
from odradek.certify.runs.until import Until
from odradek.certify.workload import LONGEST_S, PATIENCE_S, Seed, Workload
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]

RECORDS = 6
LATE_S = 0.4
JOB = """
import os, pathlib, sys, time
from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, data, mode = sys.argv[1:]
quick = {"bootstrap.servers": bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20}
quick["metadata.recovery.strategy"] = "none"
consumer = Consumer({**quick, "group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
producer = Producer(quick)
file = pathlib.Path(data, "position")
place = TopicPartition("in", 0)
if mode == "file":
    place.offset = int(file.read_text()) if file.exists() else 0
else:
    place.offset = max(0, consumer.committed([place], 30)[0].offset)
consumer.assign([place])
outbox = pathlib.Path(data, "outbox")
done = place.offset
while True:
    if mode == "late":
        for each in sorted(outbox.glob("*")) if outbox.exists() else []:
            time.sleep(LATE_S / 2)
            producer.produce("out", each.read_bytes())
            producer.flush()
            each.unlink()
    record = consumer.poll(0.1)
    if record is None or record.error():
        continue
    if mode == "late":
        outbox.mkdir(exist_ok=True)
        (outbox / str(record.offset())).write_bytes(record.value())
    else:
        producer.produce("out", record.value())
        producer.flush()
    done = record.offset() + 1
    if mode == "file":
        file.write_text(str(done))
    else:
        consumer.commit(offsets=[TopicPartition("in", 0, done)], asynchronous=False)
    if (mode, record.value()) in (("ends", b"5"), ("early", b"2")):
        sys.exit(0)
""".replace("LATE_S", str(LATE_S))
"""A job that copies one record at a time. Its modes: offsets in Kafka or in a file, run forever or end, write late from an
outbox."""


def workload(mode: str, until: str = "auto") -> Workload:
    seeds = tuple(Seed("in", str(number), partition=0) for number in range(RECORDS))
    command = Command.parse([sys.executable, "-c", JOB, "{bootstrap}", "{data}", mode])
    return Workload(command, ("out",), ("in:1", "out:1"), seeds, until=Until.parse(until))


def is_right(outputs: Outputs) -> bool:
    return sorted(values(outputs)) == [str(number) for number in range(RECORDS)]


def values(outputs: Outputs) -> Sequence[str]:
    return [str(each.value) for each in outputs.committed]


def runs(job: Workload, *plans: Plan) -> list[Run]:
    with Stage(job) as stage:
        reference = stage.run(Plan(), LONGEST_S, is_right=None)
        tries = [
            stage.run(each, LONGEST_S, PATIENCE_S, is_right, None, reference.settled_s) for each in plans
        ]
        return [reference, *tries]


@pytest.mark.parametrize(("mode", "until"), [("ends", "exit"), ("file", "idle=2s")], ids=lambda each: each)
def test_the_first_run_shows_what_to_wait_for(mode: str, until: str) -> None:
    (run,) = runs(workload(mode))
    assert (str(run.until), run.outputs.ending) == (until, Ending.FINISHED)
    assert run.notes == [f"done when {run.until.words} (--until {until})"]


def test_outputs_that_come_behind_the_last_commit_are_waited_for() -> None:
    """A run waits for outputs that are written after the last commit.

    It also waits for those of an instance that was killed at that commit and restarted.
    """
    last = Moment("OffsetCommit", (("group", "g"),), RECORDS, "")
    reference, run = runs(workload("late"), single(last, BY_NAME["kill-after"]))
    assert reference.settled_s > LATE_S / 4
    assert (run.hits, run.outputs.ending, is_right(run.outputs)) == ([1], Ending.FINISHED, True)


def test_what_comes_when_the_job_is_started_once_more_was_not_lost() -> None:
    read = Moment("Fetch", (("topic", "in"),), 1, "records")
    _, run = runs(workload("early", "exit"), single(read, BY_NAME["lose-answer"]))
    assert run.outputs.ending is Ending.UNFINISHED
    assert run.notes[0] == "all instances have ended with code 0 and are started again"
    assert values(run.outputs) == ["0", "1", "2"]


def test_an_instance_that_is_killed_between_two_requests() -> None:
    """An instance that is killed 3 ms after a response loses no record, and writes at most one record twice.

    A record is written twice if the instance had written it and not committed its offset.
    """
    moment = Moment("OffsetCommit", (("group", "g"),), 2, "")
    reference, run = runs(workload("goes on"), single(moment, BY_NAME["kill-between"], 3))
    assert (run.hits, run.without_effect) == ([1], {})
    assert set(values(run.outputs)) == {str(number) for number in range(RECORDS)}
    assert len(run.outputs.committed) <= RECORDS + 1
    assert run.notes[0] == "instance 1 is killed"
    assert str(reference.until) == "lag=0"
