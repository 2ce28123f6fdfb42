"""A process is killed at a named step of the sink's protocol."""

import os
import signal
import subprocess
import sys

import pytest

from odradek.spark.sink.points import POINTS, VARIABLE, Kill, parse
from tests.support.deadlines import HANG_S


def test_a_kill_is_read_from_its_text():
    assert parse("decision.written") == (Kill("decision.written", None, 1, "driver"),)
    assert parse("task.flushed:batch=3:nth=2=both, end.all:nth=4=worker") == (
        Kill("task.flushed", 3, 2, "both"),
        Kill("end.all", None, 4, "worker"),
    )
    assert parse("") == ()


@pytest.mark.parametrize(
    ("text", "what"), [("decision.maid", "no point"), ("end.all:batch", "form"), ("end.all=jvm", "form")]
)
def test_a_kill_that_could_never_happen_is_refused(text, what):
    with pytest.raises(ValueError, match=what):
        parse(text)


def come_to(point: str, kill: str, times: int, batch: int, tmp_path) -> int:
    """Run a process that reaches a point ``times`` times, with the kill ``kill``; return its exit code."""
    program = (
        "from odradek.spark.sink.points import reached\n"
        f"for _ in range({times}): reached({point!r}, {batch})\n"
    )
    environment = {**os.environ, VARIABLE: kill, "TMPDIR": str(tmp_path)}
    return subprocess.run([sys.executable, "-c", program], env=environment, timeout=HANG_S).returncode


@pytest.mark.parametrize("point", ["plan.pooled", "end.some"])
def test_the_driver_s_own_processes_die_with_it(point, tmp_path):
    assert point in POINTS
    assert come_to(point, f"{point}:batch=7=driver", 1, 7, tmp_path) == -signal.SIGKILL


def test_a_task_outlives_its_driver_unless_both_are_meant(tmp_path):
    assert come_to("task.opened", "task.opened=driver", 1, 7, tmp_path) == 0
    assert come_to("task.opened", "task.opened=both", 1, 7, tmp_path) == -signal.SIGKILL
    assert come_to("task.opened", "task.opened=worker:nth=1", 0, 7, tmp_path) == 1  # a malformed kill


def test_it_counts_over_all_processes(tmp_path):
    kill = "task.opened:nth=3:batch=1=worker"
    with pytest.raises(ValueError, match="form"):
        parse(kill)
    kill = "task.opened:batch=1:nth=3=worker"
    assert come_to("task.opened", kill, 2, 1, tmp_path) == 0
    assert come_to("task.opened", kill, 5, 2, tmp_path) == 0, "another batch"
    assert come_to("task.opened", kill, 1, 1, tmp_path) == -signal.SIGKILL
    assert come_to("task.opened", kill, 3, 1, tmp_path) == 0, "once"
