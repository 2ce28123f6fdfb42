"""A child process: its output, its input, and the processes that are killed with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.child import Child
from tests.support.clients import eventually

AT_ONCE_S = 0.01
ECHO = "import sys; [print('heard', line, end='', flush=True) for line in sys.stdin]"
WITH_A_CHILD = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
{then}
"""


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for each in started:
        each.kill()


def test_a_child_is_read_and_written_line_by_line_until_its_input_ends(children: list[Child], tmp_path: Path):
    said: list[str] = []
    child = Child([sys.executable, "-c", ECHO], tmp_path / "log", hears=said.append)
    children.append(child)
    child.tell("one")
    child.tell(2)
    eventually(lambda: said == ["heard one", "heard 2"], "both lines")
    assert child.is_running
    child.close_input()
    assert child.wait() == 0
    child.tell("three")
    assert said == ["heard one", "heard 2"]


def test_a_child_whose_output_is_not_read_writes_it_to_its_log(children: list[Child], tmp_path: Path):
    log = tmp_path / "log"
    for word in ("first", "second"):
        program = f"import sys; print('{word}', flush=True); sys.exit('why {word}')"
        children.append(Child([sys.executable, "-c", program], log))
        assert children[-1].wait() == 1
    assert log.read_text().split("\n") == ["first", "why first", "second", "why second", ""]
    assert children[-1].complaint() == "why second"


def test_a_complaint_is_the_last_line_with_a_message(children: list[Child], tmp_path: Path):
    program = "import sys; sys.exit('java.lang.Error: this\\n\\tat Some.where\\n\\n')"
    children += [Child([sys.executable, "-c", each], tmp_path / each[:4]) for each in (program, "pass")]
    assert [each.wait() for each in children] == [1, 0]
    assert [each.complaint() for each in children] == ["java.lang.Error: this", "it printed nothing"]


def test_a_child_gets_the_environment_that_it_is_given_and_no_other(children: list[Child], tmp_path: Path):
    log = tmp_path / "log"
    program = "import os; print(os.environ.get('GIVEN'), os.environ.get('PATH'))"
    children.append(Child([sys.executable, "-c", program], log, environment={"GIVEN": "yes"}))
    assert children[0].wait() == 0
    assert log.read_text() == "yes None\n"


@pytest.mark.parametrize("then", ["sys.stdin.read()", "sys.exit()"], ids=["running", "ended"])
def test_what_a_child_has_started_is_killed_with_it(then: str, children: list[Child], tmp_path: Path):
    said: list[str] = []
    child = Child([sys.executable, "-c", WITH_A_CHILD.format(then=then)], tmp_path / "log", hears=said.append)
    children.append(child)
    eventually(lambda: bool(said), "the child has started a process")
    below = psutil.Process(int(said[0]))
    if then == "sys.exit()":
        assert child.wait() == 0
    assert below.is_running()
    child.kill()
    eventually(lambda: _is_gone(below), "the child's process has ended too")
    assert not child.is_running


def _is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_that_does_not_end_in_time_is_reported(children: list[Child], tmp_path: Path):
    children.append(Child([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log"))
    with pytest.raises(subprocess.TimeoutExpired):
        children[0].wait(AT_ONCE_S)
