"""A broker whose standard output is closed, full or never read still serves clients, and stops on a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.health import HealthError, ask_api_versions
from odradek.process import _free_port
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def reader_gone() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextlib.contextmanager
def never_read() -> Iterator[int]:
    """The write end of a full pipe that no process reads: writing the first log line blocks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65_536)
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@contextlib.contextmanager
def disk_full() -> Iterator[int]:
    full = os.open("/dev/full", os.O_WRONLY)
    yield full
    os.close(full)


def wait_until_it_answers(bootstrap: str, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None
        with contextlib.suppress(HealthError):
            ask_api_versions(bootstrap)
            return


@pytest.mark.parametrize(
    ("output", "number"),
    [(reader_gone, signal.SIGTERM), (never_read, signal.SIGINT), (disk_full, signal.SIGTERM)],
)
def test_a_log_that_cannot_be_written_blocks_neither_clients_nor_the_stop(
    output: object, number: signal.Signals, tmp_path: Path
) -> None:
    port = _free_port()
    command = [sys.executable, "-m", "server", "--port", str(port), "--data-dir", str(tmp_path / "data")]
    with output() as descriptor:  # type: ignore[operator]
        process = subprocess.Popen(command, cwd=ROOT, stdout=descriptor, stderr=subprocess.PIPE)
        try:
            wait_until_it_answers(f"127.0.0.1:{port}", process)
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
            # The broker logs "topic not created" for the first topic.
            made = admin.create_topics([NewTopic("t", 1, 5), NewTopic("u", 1, 1)], request_timeout=HANG_S)
            assert "INVALID_REPLICATION_FACTOR" in str(made["t"].exception())
            assert made["u"].result() is None
            process.send_signal(number)
            _, errors = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert errors == b""
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
