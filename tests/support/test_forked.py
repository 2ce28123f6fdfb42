"""Tests of forked brokers. Most of these tests also run with a broker in a new interpreter, and pass too."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from odradek.process import BrokerFailed, BrokerProcess
from tests.support.deadlines import HANG_S
from tests.support.forked import CONTEXT, executed

MODULES = {"server.__main__", "broker.cluster", "lab.control.opening"}
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


@pytest.fixture(params=["forked", "executed"])
def broker(request: pytest.FixtureRequest, tmp_path: Path):
    with executed() if request.param == "executed" else contextlib.nullcontext():
        broker = BrokerProcess(tmp_path / "broker")
        broker.start()
    yield broker
    broker.close()


def test_the_fork_server_has_imported_the_server() -> None:
    process = CONTEXT.Process(
        target=exec, args=(f"import sys; sys.exit(not {MODULES} <= sys.modules.keys())",)
    )
    process.start()
    process.join(HANG_S)
    assert process.exitcode == 0


def test_a_stop_is_clean_and_the_log_complete(broker: BrokerProcess) -> None:
    broker.terminate()
    assert broker.exit_code == 0
    assert [event["event"] for event in broker.events][-2:] == ["stopping", "stopped"]


def test_a_killed_broker_has_the_signal_as_its_exit_code(broker: BrokerProcess) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    assert broker.wait() == -signal.SIGKILL
    assert not broker.is_running


@linux
def test_a_broker_has_a_session_of_its_own_and_no_descriptor_of_this_process(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    assert os.getsid(broker.pid) == broker.pid
    mine = {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    its = {os.readlink(entry) for entry in Path(f"/proc/{broker.pid}/fd").iterdir()}
    assert not {each for each in mine & its if each.startswith(("socket", "anon_inode:"))}


def test_it_dies_when_standard_input_ends(broker: BrokerProcess) -> None:
    broker._close_input()
    broker.wait()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="exit code 2"):
        BrokerProcess(tmp_path, "--no-such-option").start()


@linux
def test_what_is_read_early_is_executed(tmp_path: Path) -> None:
    for environment, is_executed in (({}, False), ({"ODRADEK_PURE": "1"}, True)):
        with BrokerProcess(tmp_path / str(is_executed), environment=environment) as broker:
            command = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
            assert (b"--data-dir" in command) is is_executed
