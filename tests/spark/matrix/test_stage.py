"""A stage stops only the first process that reaches a point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.spark.matrix.processes import ROOT, processes, signal_to, state_of
from tests.spark.matrix.stage import Stage
from tests.support.clients import eventually

STEPS = """
import json, sys
from tests.spark.matrix.stage import here
for line in sys.stdin:
    query, point, batch = json.loads(line)
    here().reached(query, point, batch)
    print("went on", flush=True)
"""


@contextmanager
def actor(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    """A process that reports the points that it reads from standard input as reached."""
    process = subprocess.Popen(
        [sys.executable, "-c", STEPS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **stage.environment},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def goes(process: subprocess.Popen[str], query: str, point: str, batch: int | None) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps([query, point, batch]) + "\n")
    process.stdin.flush()


def went_on(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "went on\n"


def stands(stage: Stage, query: str) -> int:
    return eventually(lambda: stage.standing(query), f"{query} stands at its point") or 0


def test_a_process_stops_at_its_point_until_it_is_continued(tmp_path: Path):
    stage = Stage(tmp_path)
    with actor(stage) as process:
        stage.set("q", "decided", batch=3)
        for point, batch in [("planned", 3), ("decided", 2)]:
            goes(process, "q", point, batch)
            assert went_on(process)
        goes(process, "other", "decided", 3)
        assert went_on(process)
        goes(process, "q", "decided", 4)
        assert stands(stage, "q") == process.pid
        assert state_of(process.pid) == psutil.STATUS_STOPPED
        signal_to(process.pid, signal.SIGCONT)
        assert went_on(process)
        # A point stops only one process.
        goes(process, "q", "decided", 4)
        assert went_on(process)


def test_the_nth_is_counted_over_all_processes_and_also_where_no_batch_is_known(tmp_path: Path):
    stage = Stage(tmp_path)
    with actor(stage) as first, actor(stage) as second:
        stage.set("q", "planned", nth=3)
        assert stage.is_set("q")
        for process in (first, second):
            goes(process, "q", "planned", None)
            assert went_on(process)
        goes(second, "q", "planned", None)
        assert stands(stage, "q") == second.pid
        assert not stage.is_set("q")
        goes(first, "q", "planned", None)
        assert went_on(first)


def test_a_process_killed_at_its_point_is_reported_until_the_next_set(tmp_path: Path):
    stage = Stage(tmp_path)
    with actor(stage) as process:
        stage.set("q", "decided")
        goes(process, "q", "decided", 0)
        assert stands(stage, "q") == process.pid
        assert [each.pid for each in processes(process.pid)] == [process.pid]
        signal_to(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert processes(process.pid) == []
        assert stage.standing("q") == process.pid
        stage.set("q", "decided")
        assert stage.standing("q") is None


def test_no_process_stops_where_no_test_waits(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.set("q", "decided")
    stage.clear("q")
    with actor(stage) as process:
        goes(process, "q", "decided", 0)
        assert went_on(process)
