"""A broker ends with the process that started it, and so does its temporary directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

PARENT = """
import sys, time
import odradek

data_dir = sys.argv[1] or None
broker = odradek.Broker(topics=["orders:1"], data_dir=data_dir).start()
print(broker.process.pid, broker.process.directory, flush=True)
{then}
"""


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that has ended, but was not reaped by its parent, is a zombie.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def parent_of_a_broker(then: str, data_dir: str = "") -> tuple[subprocess.Popen[str], int, Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then), data_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    assert not has_ended(int(pid))
    assert (Path(folder) / "broker.log").exists()
    return process, int(pid), Path(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_broker_and_its_directory_go_when_the_parent_is_killed(number: signal.Signals):
    process, pid, folder = parent_of_a_broker("time.sleep(1000)")
    with process:
        process.send_signal(number)
    eventually(lambda: has_ended(pid), "the broker still runs")
    eventually(lambda: not folder.exists(), f"{folder} still exists")


def test_the_broker_goes_when_the_parent_ends_without_closing_it():
    process, pid, folder = parent_of_a_broker("sys.stdin.read()")
    with process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(HANG_S) == 0
    eventually(lambda: has_ended(pid), "the broker still runs")
    eventually(lambda: not folder.exists(), f"{folder} still exists")


def test_a_data_directory_of_the_user_is_kept(tmp_path: Path):
    process, pid, folder = parent_of_a_broker("time.sleep(1000)", str(tmp_path))
    with process:
        process.kill()
    eventually(lambda: has_ended(pid), "the broker still runs")
    eventually(lambda: not folder.exists(), f"{folder} still exists")
    assert (tmp_path / "__cluster_metadata-0").is_dir()
