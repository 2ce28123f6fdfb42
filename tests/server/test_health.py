"""The health socket: the responses to health checks in a container, with the program of the image and without it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.certify.jobs.job import wait_until
from server.health import HealthSocket
from server.process import HEALTH_SOCKET_VARIABLE
from tests.support.broker import StartBroker
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

SOURCE = Path(__file__).parents[2] / "docker/src/odradek-image.c"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"odradek-test-{os.getpid()}-{request.node.name}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program `odradek-image` of the container image, built with gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: the program of the image cannot be built")
    path = tmp_path_factory.mktemp("program") / "odradek-image"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path, SOURCE], check=True)
    return path


def read(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as check:
        # Blocking like the program of the image, so that the connect waits while many checks come at once.
        check.connect(f"\0{name}")
        return b"".join(iter(lambda: check.recv(4096), b"")).decode()


def check(program: Path, name: str) -> tuple[int, str]:
    environ = {HEALTH_SOCKET_VARIABLE: name}
    done = subprocess.run([program, "health"], env=environ, capture_output=True, text=True, timeout=HANG_S)
    return done.returncode, done.stdout


async def test_a_check_reads_what_is_served_and_finds_nothing_after_the_end(name: str) -> None:
    health = HealthSocket(name, lambda: "PLAINTEXT://0.0.0.0:9092")
    assert await asyncio.to_thread(read, name) == "healthy: PLAINTEXT://0.0.0.0:9092\n"
    assert await asyncio.to_thread(read, name) == "healthy: PLAINTEXT://0.0.0.0:9092\n"
    health.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(read, name)


async def test_of_two_brokers_of_a_container_the_first_answers(name: str) -> None:
    first = HealthSocket(name, lambda: "first")
    second = HealthSocket(name, lambda: "second")
    assert await asyncio.to_thread(read, name) == "healthy: first\n"
    second.close()
    assert await asyncio.to_thread(read, name) == "healthy: first\n"
    first.close()


async def test_a_check_that_goes_at_once_does_no_harm(name: str) -> None:
    health = HealthSocket(name, lambda: "x")
    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as gone:
            gone.setblocking(False)
            gone.connect_ex(f"\0{name}")
    assert await asyncio.to_thread(read, name) == "healthy: x\n"
    health.close()


def test_a_broker_answers_from_its_start_to_its_end_without_a_line_in_its_log(
    start_broker: StartBroker, name: str, program: Path
) -> None:
    assert check(program, name) == (1, "unhealthy: no broker of this container serves clients\n")
    broker = start_broker("--nodes", "2", environment={HEALTH_SOCKET_VARIABLE: name})
    assert wait_until(lambda: sum("Redpanda" in line for line in broker.log) == 2, HANG_S), (
        "each node's start ends with this line"
    )
    lines = len(broker.log)
    code, text = check(program, name)
    assert code == 0
    assert text.startswith(f"healthy: PLAINTEXT://127.0.0.1:{broker.port}, PLAINTEXT://127.0.0.1:")
    assert len(broker.log) == lines
    broker.terminate()
    assert check(program, name)[0] == 1


def test_a_partition_whose_disk_was_full_is_named(start_broker: StartBroker, name: str) -> None:
    """The health check names a partition whose disk was full. The partition stays offline when the disk has space again, and
    all other partitions are served."""
    environment = {HEALTH_SOCKET_VARIABLE: name, "ODRADEK_FAULTS": "full-disk topic=orders"}
    broker = start_broker(topics=["orders:1"], environment=environment)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1000})
    producer.produce("orders", b"")
    producer.flush(HANG_S)
    assert "orders-0 is offline until the node starts again (" in read(name)


def test_a_broker_that_stands_still_is_unhealthy(start_broker: StartBroker, name: str, program: Path) -> None:
    broker = start_broker(environment={HEALTH_SOCKET_VARIABLE: name})
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        assert check(program, name) == (1, "unhealthy: the broker has not responded for 2 s\n")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    eventually(lambda: check(program, name)[0] == 0)


async def test_a_loop_that_hangs_answers_no_check(name: str, program: Path) -> None:
    health = HealthSocket(name, lambda: "x")
    # The check runs in this thread, so it blocks the event loop until it times out.
    assert check(program, name) == (1, "unhealthy: the broker has not responded for 2 s\n")
    health.close()
