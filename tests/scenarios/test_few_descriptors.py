"""With 256 open files and six hundred connections partitions still work. Once connections close, all clients are served."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.health import HealthError, ask_api_versions
from odradek.process import _free_port
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]
DESCRIPTORS, CONNECTIONS, PARTITIONS = 256, 600, 24


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    number = _free_port()
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"']
    broker = [sys.executable, "-m", "server", "--port", str(number), "--data-dir", str(tmp_path / "data")]
    broker += ["--set", "odradek.background.flush.interval.ms=100"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*limited, *broker], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            healthy(number, process)
            yield number
        finally:
            process.terminate()
            assert process.wait(HANG_S) == 0


def healthy(port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    while process is None or process.poll() is None:
        with contextlib.suppress(HealthError):
            ask_api_versions(f"127.0.0.1:{port}", 10)
            return
    raise AssertionError("the broker has ended")


def test_connections_take_no_descriptor_from_the_logs(port: int, tmp_path: Path) -> None:
    servers: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{port}"}
    admin, producer = AdminClient(servers), Producer(servers)
    failures: list[object] = []

    def paused() -> bool:
        return "accept paused" in (tmp_path / "log").read_text()

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    def write_to_all(topic: str) -> None:
        for index in range(PARTITIONS):
            producer.produce(topic, b"x", partition=index, on_delivery=delivered)
        assert producer.flush(HANG_S) == 0
        assert failures == []

    def make_and_write(topic: str) -> None:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        write_to_all(topic)
        # Flushes open each log's files for a moment. If they fail, the next write fails.
        time.sleep(1)
        write_to_all(topic)

    make_and_write("before")
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(("127.0.0.1", port))
        make_and_write("meanwhile")
        write_to_all("before")
    healthy(port)
    make_and_write("after")
    assert paused()
    log = (tmp_path / "log").read_text()
    assert "partition offline" not in log
    assert "Too many open files" not in log
