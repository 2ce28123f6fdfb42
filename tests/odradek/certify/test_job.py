"""Instances of a job: started, killed with their children, frozen, and started again."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from odradek.certify.job import ALWAYS, Command, Job, wait_until

WAIT_S = 30.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.end()


def job_of(jobs: list[Job], code: str, log: Path, restarts: int = ALWAYS, **values: str) -> Job:
    command = Command.parse([sys.executable, "-c", code, "{bootstrap}", "{instance}"])
    job = Job(command, {"bootstrap": "h:1", "data": "d", "run": "r", **values}, log, restarts)
    jobs.append(job)
    return job


SLEEPS = "import time; time.sleep(600)"


def supervised(job: Job, holds: object) -> bool:
    def look() -> bool:
        job.supervise()
        return bool(holds())  # type: ignore[operator]

    return wait_until(look, WAIT_S)


def test_what_is_filled_in_reaches_arguments_and_environment(jobs: list[Job], log: Path) -> None:
    code = "import os, sys; print(*sys.argv[1:], os.environ['KAFKA_BOOTSTRAP_SERVERS'], os.environ['ODRADEK_INSTANCE'])"
    job = job_of(jobs, code, log)
    job.start(3)
    assert supervised(job, lambda: job.completed)
    assert log.read_text() == "h:1 3 h:1 3\n"


def test_an_instance_that_fails_is_started_again_so_often(jobs: list[Job], log: Path) -> None:
    job = job_of(jobs, "import sys; print('x', flush=True); sys.exit(4)", log, restarts=2)
    job.start(1)
    assert supervised(job, lambda: len(job.exits) == 3 and not job.alive)
    assert [each.code for each in job.exits] == [4, 4, 4]
    assert log.read_text() == "x\n" * 3


def test_an_instance_that_ends_well_is_not_started_again(jobs: list[Job], log: Path) -> None:
    job = job_of(jobs, "pass", log)
    job.start(1)
    assert supervised(job, lambda: job.completed == {1})
    assert job.alive == []


def test_a_job_lasts_while_its_instance_is_replaced(jobs: list[Job], log: Path) -> None:
    job = job_of(jobs, SLEEPS, log)
    instance = job.start(1)
    with job.replaced():
        instance.end()
        assert supervised(job, lambda: not job.alive)
        assert not job.has_ended
    assert job.has_ended


def test_a_killed_instance_dies_with_its_children_and_comes_back(jobs: list[Job], log: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); {SLEEPS}"
    job = job_of(jobs, code, log)
    first = job.start(1)
    parent = psutil.Process(first.process.pid)
    assert wait_until(lambda: len(parent.children()) == 1, WAIT_S)
    (child,) = parent.children()
    job.killed(first)
    assert wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, WAIT_S)
    (second,) = job.alive
    assert second.process.pid != first.process.pid
    assert job.kills == 1
    assert job.exits == []


def test_the_processes_of_an_instance_are_named_with_its_children(jobs: list[Job], log: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); {SLEEPS}"
    instance = job_of(jobs, code, log).start(1)
    assert wait_until(lambda: len(instance.processes()) == 2, WAIT_S)
    (first, name), (child, _) = instance.processes()
    assert first == instance.process.pid
    assert name == psutil.Process(first).name()
    assert psutil.Process(child).ppid() == first
    instance.kill()
    assert instance.processes() == []


def test_a_frozen_instance_stands_still_until_it_is_thawed(jobs: list[Job], log: Path) -> None:
    job = job_of(jobs, SLEEPS, log)
    instance = job.start(1)
    instance.freeze()
    assert wait_until(lambda: psutil.Process(instance.process.pid).status() == psutil.STATUS_STOPPED, WAIT_S)
    instance.thaw()
    assert wait_until(lambda: psutil.Process(instance.process.pid).status() != psutil.STATUS_STOPPED, WAIT_S)


def test_the_owner_of_a_connection_is_found(jobs: list[Job], log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket, time; s = socket.create_connection(('127.0.0.1', {port})); time.sleep(600)"
        job = job_of(jobs, code, log)
        other = job_of(jobs, SLEEPS, log)
        instance = job.start(1)
        other.start(2)
        connection, (host, peer_port) = server.accept()
        with connection:
            assert job.owner(f"{host}:{peer_port}") is instance
            assert other.owner(f"{host}:{peer_port}") is None


def test_a_command_that_is_not_there_is_named(jobs: list[Job], log: Path) -> None:
    job = Job(Command.parse("no-such-program-here"), {"bootstrap": "h:1"}, log)
    jobs.append(job)
    with pytest.raises(ValueError, match="no-such-program-here"):
        job.start(1)
