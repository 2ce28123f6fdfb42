"""The last lines of a failed ``.ci/run`` step explain the failure."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES = 60

CASES = """
import asyncio
import pytest
from tests.support.deadlines import Deadline

async def wait_for_an_event():
    await asyncio.Event().wait()

async def test_hangs():
    task = asyncio.create_task(wait_for_an_event(), name="the waiter")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(60, task.cancel)
    print("not found in\\n" * 500)
    Deadline(0).check("it has come")

def test_fails():
    assert {"error_code": 3} == {"error_code": 0}

def test_passes():
    pass
"""
HANGS = """
import signal
from server.stacks import stacks_writer
signal.signal(signal.SIGQUIT, stacks_writer())
def wait_for_ever():
    while True:
        signal.pause()
wait_for_ever()
"""


def step(folder: Path, limit_s: str, *command: str) -> tuple[int, list[str]]:
    """Run a command by ``.ci/step``. Returns the exit code and the last lines of output."""
    done = subprocess.run(
        [ROOT / ".ci" / "step", limit_s, *command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()[-LINES:]


def test_the_last_lines_name_the_tests_that_failed_with_their_reasons_and_stacks(tmp_path: Path):
    (tmp_path / "test_cases.py").write_text(CASES)
    plugins = ("-p", "tests.support.hangs", "-p", "tests.support.failures_file")
    pytest_ini = ("--rootdir", ".", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider")
    failed, lines = step(
        tmp_path, "600", sys.executable, "-m", "pytest", *pytest_ini, *plugins, "test_cases.py"
    )
    assert failed == 1
    assert any("failed, 2 failed tests" in line for line in lines)
    assert "FAILED test_cases.py::test_hangs (call)" in lines
    assert "FAILED test_cases.py::test_fails (call)" in lines
    text = "\n".join(lines)
    assert "NotInTime: did not happen within 0 s: it has come" in text
    assert re.search(r"\ntask the waiter: .* wait < .*:\d+ wait_for_an_event\n", text)
    assert "AssertionError: assert {'error_code': 3} == {'error_code': 0}" in text


def test_the_last_lines_of_a_command_that_runs_no_test_are_its_own(tmp_path: Path):
    failed, lines = step(tmp_path, "600", "sh", "-c", "seq 1 200; echo no module named x >&2; exit 2")
    assert failed == 2
    assert lines[-1] == "no module named x"


def test_a_step_that_passes_says_no_more_than_its_command(tmp_path: Path):
    assert step(tmp_path, "600", "echo", "3 passed") == (0, ["3 passed"])


@pytest.mark.more
def test_a_step_that_hangs_ends_with_its_stacks(tmp_path: Path):
    failed, lines = step(tmp_path, "3", sys.executable, "-c", HANGS)
    assert failed == 128 + signal.SIGKILL
    assert re.search(
        r"thread MainThread: <string>:\d+ wait_for_ever < <string>:\d+ <module>", "\n".join(lines)
    )
