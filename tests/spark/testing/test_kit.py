"""The test kit without Spark: records and topics in Kafka, and drivers that are killed at a step."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from odradek.errors import OdradekError
from odradek.spark.testing.driver import Driver, DriverFailed, kill_driver_after, run_driver
from odradek.spark.testing.kafka import Record

# A fake driver of the sink: it reports the steps of two batches.
STEPS = """
import sys
from contextlib import suppress
from odradek.spark.sink.points import reached
for batch in (0, 1):
    for step in ("plan.started", "task.flushed", "decision.made"):
        print(step, batch, file=open(sys.argv[1], "a") if sys.argv[1:] else None)
        reached(step, batch)
"""
# A driver that starts a child in its own process group, like Spark's Python daemon.
WITH_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=os.setpgrp)
print(child.pid, flush=True)
time.sleep(600)
"""


def texts(records: list[Record]) -> list[str | None]:
    return [each.text for each in records]


def test_what_was_written_is_read_as_it_was_written(kafka):
    topic = kafka.topic(partitions=2)
    whole = Record(b"v", b"k", (("h", b"1"), ("h", None)), partition=1, timestamp_ms=1_000_000_000_000)
    kafka.produce(topic, ["text", b"bytes", ("key", "value"), ("gone", None)])
    kafka.produce(topic, [whole])
    found = kafka.read(topic)
    assert {(each.key, each.value) for each in found} == {
        (None, b"text"),
        (None, b"bytes"),
        (b"key", b"value"),
        (b"gone", None),
        (b"k", b"v"),
    }
    [back] = [each for each in found if each.key == b"k"]
    assert back == whole._replace(offset=back.offset)
    assert found == sorted(found, key=lambda each: (each.partition, each.offset))


def test_transactions_commit_abort_and_stay_open(kafka):
    topic = kafka.topic()
    kafka.produce(topic, ["a"], transaction="commit")
    kafka.produce(topic, ["b"], transaction="abort")
    opened = kafka.begin(topic, ["c"])
    kafka.produce(topic, ["d"])
    assert texts(kafka.read(topic)) == ["a"]
    assert texts(kafka.read(topic, "read_uncommitted")) == ["a", "b", "c", "d"]
    opened.commit()
    assert texts(kafka.wait_for(topic, 3)) == ["a", "c", "d"]
    with pytest.raises(OdradekError, match="has ended"):
        opened.produce(topic, ["e"])


def test_a_read_waits_for_the_markers_of_a_commit(kafka, monkeypatch):
    topic = kafka.topic()
    held = kafka.broker.faults.add("txn.marker", topic=topic, do="hold")
    kafka.produce(topic, ["a"], transaction="commit")
    monkeypatch.setattr(time, "sleep", lambda _: held.remove())
    assert texts(kafka.read(topic)) == ["a"]


def test_topics_are_each_test_s_own_and_have_the_settings_that_were_asked_for(kafka):
    assert kafka.topic() != kafka.topic()
    topic = kafka.topic(max_message_bytes=20_000)
    with pytest.raises(Exception, match="MSG_SIZE_TOO_LARGE"):
        kafka.produce(topic, [os.urandom(30_000)])


def test_a_driver_is_killed_at_the_given_step_and_occurrence(tmp_path: Path):
    seen = tmp_path / "seen"
    command = [sys.executable, "-c", STEPS, str(seen)]
    kill_driver_after("decision.made", command, batch=1)
    assert seen.read_text().split("\n")[-2] == "decision.made 1"
    seen.unlink()
    kill_driver_after("plan.started", command, nth=2)
    assert seen.read_text().split("\n")[-2] == "plan.started 1"


def test_a_driver_that_never_reaches_the_step_fails_with_its_output():
    with pytest.raises(
        DriverFailed,
        match=r"exit code 0 before it reached the step end\.all:nth=1=driver:\n(.*\n)*decision\.made 1$",
    ):
        kill_driver_after("end.all", [sys.executable, "-c", STEPS])


def test_an_unknown_step_is_refused_before_the_driver_starts():
    with pytest.raises(OdradekError, match=r"no step 'decided'; there are plan\.started, "):
        kill_driver_after("decided", ["true"])


def test_the_output_of_a_failed_driver_is_in_the_error():
    assert run_driver([sys.executable, "-c", "print('well')"]) == "well\n"
    with pytest.raises(DriverFailed, match=r"exit code 3:\nwhy"):
        run_driver([sys.executable, "-c", "print('why'); exit(3)"])


def test_a_driver_has_the_java_options_of_its_parent(monkeypatch):
    show = [sys.executable, "-c", "import os; print(os.environ['JDK_JAVA_OPTIONS'])"]
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    assert run_driver(show) == "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx2g")
    assert run_driver(show) == "-Xmx2g\n"


def test_children_of_a_driver_die_with_it():
    with Driver([sys.executable, "-c", WITH_A_CHILD]) as driver:
        while not driver.output.endswith("\n"):
            assert driver.process.is_running, driver.output
        child = int(driver.output)
        os.kill(child, 0)  # it is there
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
            """The child may need a moment to die from its signal."""
