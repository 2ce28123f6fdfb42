"""The report of a test that hung has the stacks of threads and tasks, and what processes had written."""

import re
from pathlib import Path

from tests.support.inner_pytest import run_pytest

PIPES = """
from subprocess import TimeoutExpired

def test_it_ends():
    raise TimeoutExpired(["worker"], 120, output=b"so far\\n", stderr=b"a reason\\n")
"""

TASKS = """
import asyncio
import signal
from tests.support.deadlines import Deadline

async def wait_for_an_event():
    await asyncio.Event().wait()

async def test_it_ends():
    task = asyncio.create_task(wait_for_an_event(), name="the waiter")
    await asyncio.sleep(0)
    try:
        {hangs}
    finally:
        asyncio.get_running_loop().call_soon(task.cancel)
"""
WAYS_TO_HANG = {
    "deadline": "Deadline(0).check('it has come')",
    "asyncio": "await asyncio.wait_for(asyncio.Event().wait(), 0.01)",
    # The signal that pytest-timeout's timer raises.
    "pytest_timeout": "signal.raise_signal(signal.SIGALRM)",
}

CHILDREN = """
import subprocess, sys
from tests.support.deadlines import Deadline

PROGRAM = '''
import signal, sys
from server.stacks import stacks_writer
signal.signal(signal.SIGQUIT, stacks_writer())
def serve():
    print("ready", flush=True)
    while True: signal.pause()
serve()
'''

def test_it_ends(tmp_path):
    with open(tmp_path / "broker.log", "w") as file:
        child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=file, stderr=file)
    try:
        while "ready" not in (tmp_path / "broker.log").read_text(): pass
        Deadline(0).check("the child ends")
    finally:
        pytest_calls_this_later(child)

def pytest_calls_this_later(child):
    import atexit
    atexit.register(child.kill)
"""


def test_a_report_has_what_a_process_wrote_before_it_hung(tmp_path: Path):
    done = run_pytest("tests.support.hangs", tmp_path, {"worker": PIPES})
    assert "1 failed" in done.stdout
    assert "stdout of the process that hung -" in done.stdout
    assert "\nso far\n" in done.stdout
    assert "stderr of the process that hung -" in done.stdout
    assert "\na reason\n" in done.stdout


def test_a_report_has_the_stacks_of_tasks(tmp_path: Path):
    cases = {name: TASKS.format(hangs=hangs) for name, hangs in WAYS_TO_HANG.items()}
    arguments = ("--timeout", "600", "-o", "asyncio_mode=auto")
    done = run_pytest("tests.support.hangs", tmp_path, cases, *arguments)
    assert "3 failed" in done.stdout
    waiting = re.findall(r"\ntask the waiter: .* wait < .*:\d+ wait_for_an_event\n", done.stdout)
    assert len(waiting) == len(cases)


def test_a_report_has_the_stacks_of_a_process_that_the_test_has_started(tmp_path: Path):
    done = run_pytest("tests.support.hangs", tmp_path, {"children": CHILDREN})
    assert "written by process" in done.stdout
    assert re.search(r"\nthread MainThread: <string>:\d+ serve < <string>:\d+ <module>\n", done.stdout)
