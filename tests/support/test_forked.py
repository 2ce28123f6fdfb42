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

MODULES = {"tests.support.forked", "server.__main__", "broker.cluster", "lab.control.opening"}
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def opened(pid: int) -> set[str]:
    """The open files of a process, as /proc names them: ``socket:[1234]``."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the directory that is read
            found.add(os.readlink(each))
    return found


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
    mine, its = opened(os.getpid()), opened(broker.pid)
    # The broker's standard input is one end of a pipe, whose other end this process has.
    assert {each for each in mine & its if each.startswith(("socket:", "pipe:"))} == {
        os.readlink(f"/proc/{broker.pid}/fd/0")
    }


def test_it_dies_when_standard_input_ends(broker: BrokerProcess) -> None:
    broker._close_input()
    broker.wait()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="exit code 2"):
        BrokerProcess(tmp_path, "--no-such-option").start()


@linux
def test_a_broker_is_executed_if_it_needs_its_own_interpreter(tmp_path: Path) -> None:
    def is_executed(name: str, **environment: str) -> bool:
        with BrokerProcess(tmp_path / name, environment=environment) as broker:
            return b"--data-dir" in Path(f"/proc/{broker.pid}/cmdline").read_bytes()

    assert not is_executed("usual")
    assert is_executed("pure", ODRADEK_PURE="1")
    with executed():
        assert is_executed("in the block")
