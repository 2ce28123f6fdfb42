"""`odradek certify --job-container` in a real engine: it kills, freezes, restarts and identifies instances in containers.

The job is Python with confluent-kafka, in an image that is built from this interpreter's own package.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from odradek.certify import settings
from odradek.certify.certifier import Certifier
from odradek.certify.jobs.command import Command
from odradek.certify.jobs.container import ContainerInstance
from odradek.certify.jobs.job import Grace, Job, wait_until
from odradek.certify.jobs.restarts import NEVER, ON_FAILURE
from tests.odradek.certify.zoo import ZOO, input_lines
from tests.support.deadlines import HANG_S, LONG_TEST_S
from tests.support.docker import Docker

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)]

SERVES = """
import signal, socket, sys, time
def end(*_):
    print("goodbye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1]))) if len(sys.argv) > 1 else None
print("hello", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with Python, confluent-kafka, and the job `copier.py` of the certifier's tests."""
    docker, folder = Docker(), tmp_path_factory.mktemp("image")
    packages = Path(confluent_kafka.__file__).parents[1]
    for each in [*packages.glob("confluent_kafka*"), *packages.glob("typing_extensions*")]:
        copied = folder / "packages" / each.name
        shutil.copytree(each, copied) if each.is_dir() else shutil.copy(each, copied)
    shutil.copy(ZOO / "right" / "copier.py", folder)
    (folder / "serves.py").write_text(SERVES)
    (folder / "Dockerfile").write_text(
        "FROM python:3.11-slim\nCOPY packages /packages\nENV PYTHONPATH=/packages\nCOPY *.py /job/\nWORKDIR /job\n"
        'CMD ["python", "serves.py"]\n'
    )
    name = f"odradek-job:{secrets.token_hex(4)}"
    docker.build(folder, name)
    yield name
    docker("rmi", "--force", name)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for each in made:
        each.end()


def job_of(jobs: list[Job], image: str, folder: Path, text: str = "", restart=NEVER) -> Job:
    command = Command.parse(text or (), container=[image])
    job = Job(command, {"bootstrap": "h:1", "data": str(folder)}, folder, restart)
    jobs.append(job)
    return job


def container_of(job: Job) -> ContainerInstance:
    instance = job.start(1)
    assert isinstance(instance, ContainerInstance)
    assert wait_until(lambda: job.last_lines() == ["hello"], HANG_S)
    return instance


def names(docker: Docker) -> str:
    return docker("ps", "--all", "--format", "{{.Names}}")


def test_a_killed_container_is_gone_and_can_be_restarted(jobs: list[Job], image: str, tmp_path: Path) -> None:
    docker = Docker()
    job = job_of(jobs, image, tmp_path, restart=ON_FAILURE)
    first = container_of(job)
    assert docker("inspect", "--format", "{{.State.Status}}", first.name) == "running"
    first.freeze()
    assert docker("inspect", "--format", "{{.State.Status}}", first.name) == "paused"
    job.killed(first)  # while the container is frozen
    assert first.name not in names(docker)
    assert not first.is_alive
    assert wait_until(lambda: job.last_lines() == ["hello", "hello"], HANG_S)
    (second,) = job.alive
    assert second.processes()
    second.end()
    assert job.last_lines()[-1] == "goodbye"


@pytest.mark.parametrize("is_frozen", [False, True])
def test_at_the_end_of_a_run_a_container_may_end_by_itself(
    is_frozen: bool, jobs: list[Job], image: str, tmp_path: Path
) -> None:
    job = job_of(jobs, image, tmp_path)
    instance = container_of(job)
    if is_frozen:
        job.freeze()
    job.end(Grace(HANG_S))
    assert job.last_lines() == ["hello", "goodbye"]
    assert instance.name not in names(Docker())


def test_exit_code_and_output_are_those_of_the_job(jobs: list[Job], image: str, tmp_path: Path) -> None:
    job = job_of(jobs, image, tmp_path, "cd / && echo $ODRADEK_INSTANCE >{data}/said && echo worse && exit 7")
    job.start(1)

    def has_ended() -> bool:
        job.supervise()
        return job.has_ended

    assert wait_until(has_ended, HANG_S)
    assert [(each.code, each.lines) for each in job.exits] == [(7, ("worse",))]
    assert (tmp_path / "said").read_text() == "1\n"


def test_the_owner_of_a_connection_is_found(jobs: list[Job], image: str, tmp_path: Path) -> None:
    """The certifier finds the process that owns a connection, in the containers of an engine on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        job = job_of(jobs, image, tmp_path, f"python serves.py {server.getsockname()[1]}")
        instance, other = job.start(1), job_of(jobs, image, tmp_path)
        other.start(2)
        connection, (host, port) = server.accept()
        with connection:
            assert job.owner(f"{host}:{port}") is instance
            assert other.owner(f"{host}:{port}") is None


def test_a_job_in_containers_is_certified(image: str, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("".join(input_lines()))
    options = {
        "job": "python copier.py {bootstrap} {instance}",
        "job-container": image,
        "jobs": 2,
        "topic": ["in:2", "out:2"],
        "seed-records": ["in=in.ndjson"],
        "output": ["out"],
    }
    certificate = Certifier(settings.workload(options, tmp_path), budget_s=30.0).run()
    assert certificate.failures == []
    assert certificate.runs > 2
    assert "odradek-certify" not in names(Docker())


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the image odradek-absent:none does not exist"):
        settings.workload({"job-container": "odradek-absent:none", "output": ["out"]}, tmp_path)
