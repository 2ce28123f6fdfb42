"""Instances of a job are started, killed with their children, frozen, and restarted."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.instance import Instance, ProcessInstance
from odradek.certify.jobs.job import Exit, Grace, Job, wait_until
from odradek.certify.jobs.restarts import ALWAYS, NEVER, ON_FAILURE, Restart
from tests.support.deadlines import HANG_S

WAIT_S = HANG_S


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.end()


def pid_of(instance: Instance) -> int:
    assert isinstance(instance, ProcessInstance)
    return instance.process.pid


def job_of(jobs: list[Job], code: str, tmp_path: Path, restart: Restart = ALWAYS, **values: str) -> Job:
    command = Command.parse([sys.executable, "-c", code, "{bootstrap}", "{instance}"])
    job = Job(command, {"bootstrap": "h:1", "data": "d", "run": "r", **values}, tmp_path, restart)
    jobs.append(job)
    return job


SLEEPS = "import time; time.sleep(600)"


def supervised(job: Job, holds: object) -> bool:
    def look() -> bool:
        job.supervise()
        return bool(holds())  # type: ignore[operator]

    return wait_until(look, WAIT_S)


def test_what_is_filled_in_reaches_arguments_and_environment(jobs: list[Job], tmp_path: Path) -> None:
    code = "import os, sys; print(*sys.argv[1:], os.environ['KAFKA_BOOTSTRAP_SERVERS'], os.environ['ODRADEK_INSTANCE'])"
    job = job_of(jobs, code, tmp_path, ON_FAILURE)
    job.start(3)
    assert supervised(job, lambda: job.completed)
    assert (tmp_path / "job-3.log").read_text() == "h:1 3 h:1 3\n"


def test_an_instance_that_fails_is_started_again_so_often(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, "import sys; print('x', flush=True); sys.exit(4)", tmp_path, Restart(False, 2))
    job.start(1)
    assert supervised(job, lambda: job.has_ended)
    assert [each.code for each in job.exits] == [4, 4, 4]
    assert (tmp_path / "job-1.log").read_text() == "x\n" * 3
    assert (job.given_up, job.died_alike) == (1, 3)


def test_an_instance_that_ends_well_is_not_started_again_on_failure(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, "pass", tmp_path, ON_FAILURE)
    job.start(1)
    assert supervised(job, lambda: job.completed == {1})
    assert job.alive == []
    assert job.has_ended
    assert job.died_alike == 0


def test_always_starts_again_what_ends_well(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, "pass", tmp_path)
    job.start(1)
    assert supervised(job, lambda: len(job.exits) == 2)
    assert not job.has_ended
    assert job.completed == set()


def test_a_start_waits_for_its_time_without_holding_up_the_supervisor(
    jobs: list[Job], tmp_path: Path
) -> None:
    now = [0.0]
    command = Command.parse([sys.executable, "-c", "raise SystemExit(3)"])
    job = Job(command, {"bootstrap": "h:1"}, tmp_path, ON_FAILURE, now_s=lambda: now[0])
    jobs.append(job)
    job.start(1)
    assert supervised(job, lambda: job.exits)
    job.supervise()
    assert job.alive == []
    assert not job.has_ended
    now[0] = 0.2
    assert supervised(job, lambda: len(job.exits) == 2)


def test_of_each_life_the_last_lines_are_kept(jobs: list[Job], tmp_path: Path) -> None:
    code = "import sys; print('hello'); print('worse', file=sys.stderr); sys.exit(5)"
    job = job_of(jobs, code, tmp_path, Restart(False, 1))
    job.start(1)
    assert supervised(job, lambda: job.has_ended)
    assert [(each.code, each.left) for each in job.exits] == [(5, 0), (5, 0)]
    assert all(sorted(each.lines) == ["hello", "worse"] for each in job.exits)
    assert job.last_lines(1) == [job.exits[-1].lines[-1]]
    (tmp_path / "job-2.log").write_text("other\n")
    assert job.last_lines(1) == [f"job-1: {job.exits[-1].lines[-1]}", "job-2: other"]


@pytest.mark.parametrize(
    ("codes", "alike"), [((), 0), ((1,), 1), ((2, 1, 1), 2), ((1, 0), 0), ((0, 1, 1, 1), 3)]
)
def test_newest_deaths_are_alike_by_their_code(
    codes: tuple[int, ...], alike: int, jobs: list[Job], tmp_path: Path
) -> None:
    job = job_of(jobs, "pass", tmp_path)
    job.exits += [Exit(1, code) for code in codes]
    assert job.died_alike == alike


DAEMON = """
import os, sys, time
if os.fork():
    EITHER
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def pid_in(log: Path) -> int:
    assert wait_until(lambda: log.exists() and log.read_text().endswith("\n"), WAIT_S)
    return int(log.read_text().splitlines()[-1])


def test_a_daemon_of_an_instance_dies_with_it(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, DAEMON.replace("EITHER", "time.sleep(600)"), tmp_path, NEVER)
    instance = job.start(1)
    daemon = pid_in(tmp_path / "job-1.log")
    instance.freeze()
    assert wait_until(lambda: psutil.Process(daemon).status() == psutil.STATUS_STOPPED, WAIT_S)
    instance.thaw()
    assert wait_until(lambda: psutil.Process(daemon).status() != psutil.STATUS_STOPPED, WAIT_S)
    assert daemon in [pid for pid, _ in instance.processes()]
    job.killed(instance)
    assert not psutil.pid_exists(daemon)
    assert job.has_ended


def test_what_an_instance_leaves_behind_is_killed_when_it_ends(jobs: list[Job], tmp_path: Path) -> None:
    wait = f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n    os._exit(0)"
    job = job_of(jobs, DAEMON.replace("EITHER", wait), tmp_path, ON_FAILURE)
    job.start(1)
    daemon = pid_in(tmp_path / "job-1.log")
    (tmp_path / "go").touch()
    assert supervised(job, lambda: job.has_ended)
    (end,) = job.exits
    assert str(end).startswith("instance 1 ended with exit code 0; 1 process was left behind, and killed")
    assert not psutil.pid_exists(daemon)


SAYS_GOODBYE = """
import signal, sys, time
def end(*_):
    print("goodbye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("hello", flush=True)
while True:
    time.sleep(0.02)
"""
IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('hello', flush=True); time.sleep(600)"


@pytest.mark.parametrize("is_frozen", [False, True])
def test_at_the_end_of_a_run_an_instance_may_end_by_itself(
    is_frozen: bool, jobs: list[Job], tmp_path: Path
) -> None:
    """An instance that exits on SIGTERM is not killed, even if a shell started it or it is frozen.

    The next run then waits after SIGTERM for as long as this run did.
    """
    job = Job(Command.parse(f"true && {sys.executable} -c '{SAYS_GOODBYE}'"), {"bootstrap": "h:1"}, tmp_path)
    job.start(1)
    assert wait_until(lambda: job.last_lines() == ["hello"], WAIT_S)
    if is_frozen:
        job.freeze()
    grace = Grace(WAIT_S)
    job.end(grace)
    assert job.last_lines() == ["hello", "goodbye"]
    assert job.has_ended
    assert grace.seconds == WAIT_S


@pytest.mark.parametrize(
    ("said_s", "in_time", "end_s", "is_kept"),
    [(None, True, 0.3, True), (None, True, 0.5, False), (None, False, 0.3, False), (9.0, False, 9.0, True)],
)
def test_grace_is_kept_as_long_as_it_costs_few_runs(
    said_s: float | None, in_time: bool, end_s: float, is_kept: bool
) -> None:
    grace = Grace(said_s)
    before_s = grace.seconds
    grace.learn(in_time=in_time, end_s=end_s, run_s=2.0)
    assert grace.seconds == (before_s if is_kept else 0.0)


@pytest.mark.parametrize(("said_s", "then_s"), [(None, 0.0), (0.01, 0.01)])
def test_a_job_that_ignores_sigterm_is_killed(
    said_s: float | None, then_s: float, jobs: list[Job], tmp_path: Path
) -> None:
    """A job that ignores SIGTERM is killed, and later runs send it SIGKILL at once, unless the user has set the time."""
    job = job_of(jobs, IGNORES, tmp_path)
    instance = job.start(1)
    assert wait_until(lambda: job.last_lines() == ["hello"], WAIT_S)
    grace = Grace(said_s)
    job.end(grace)
    assert not psutil.pid_exists(pid_of(instance))
    assert grace.seconds == then_s


def test_a_job_lasts_while_its_instance_is_replaced(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, SLEEPS, tmp_path)
    instance = job.start(1)
    with job.replaced():
        instance.end()
        assert supervised(job, lambda: not job.alive)
        assert not job.has_ended
    assert job.has_ended


def test_a_killed_instance_dies_with_its_children_and_comes_back(jobs: list[Job], tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); {SLEEPS}"
    job = job_of(jobs, code, tmp_path)
    first = job.start(1)
    parent = psutil.Process(pid_of(first))
    assert wait_until(lambda: len(parent.children()) == 1, WAIT_S)
    (child,) = parent.children()
    job.killed(first)
    assert wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, WAIT_S)
    (second,) = job.alive
    assert pid_of(second) != pid_of(first)
    assert job.kills == 1
    assert job.exits == []


def test_the_processes_of_an_instance_are_named_with_its_children(jobs: list[Job], tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); {SLEEPS}"
    instance = job_of(jobs, code, tmp_path).start(1)
    assert wait_until(lambda: len(instance.processes()) == 2, WAIT_S)
    (first, name), (child, _) = instance.processes()
    assert first == pid_of(instance)
    assert name == psutil.Process(first).name()
    assert psutil.Process(child).ppid() == first
    instance.kill()
    assert instance.processes() == []


def test_a_frozen_instance_is_stopped_until_it_is_thawed(jobs: list[Job], tmp_path: Path) -> None:
    job = job_of(jobs, SLEEPS, tmp_path)
    instance = job.start(1)
    instance.freeze()
    assert wait_until(lambda: psutil.Process(pid_of(instance)).status() == psutil.STATUS_STOPPED, WAIT_S)
    instance.thaw()
    assert wait_until(lambda: psutil.Process(pid_of(instance)).status() != psutil.STATUS_STOPPED, WAIT_S)


def test_the_owner_of_a_connection_is_found(jobs: list[Job], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket, time; s = socket.create_connection(('127.0.0.1', {port})); time.sleep(600)"
        job = job_of(jobs, code, tmp_path)
        other = job_of(jobs, SLEEPS, tmp_path)
        instance = job.start(1)
        other.start(2)
        connection, (host, peer_port) = server.accept()
        with connection:
            assert job.owner(f"{host}:{peer_port}") is instance
            assert other.owner(f"{host}:{peer_port}") is None


def test_an_unknown_command_is_named(jobs: list[Job], tmp_path: Path) -> None:
    job = Job(Command.parse("no-such-program-here"), {"bootstrap": "h:1"}, tmp_path)
    jobs.append(job)
    with pytest.raises(ValueError, match="no-such-program-here"):
        job.start(1)
