"""The start of the program `odradek`: signals before the server is ready, and closed standard descriptors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.health import HealthError, ask_api_versions
from odradek.process import _free_port
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

ODRADEK = (
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'odradek'; from odradek.program import main; main()",
)
MASKS = ("SigBlk", "SigCgt")
HANDLE = """
import os, sys, traceback
for descriptor in range(3):
    os.close(descriptor)
import odradek
with open(sys.argv[1], "w") as said:
    try:
        with odradek.Broker(topics=["orders:1"]) as broker:
            print(broker.partitions("orders")[0].leader, file=said)
    except BaseException:
        traceback.print_exc(file=said)
"""


def start(*words: str, redirections: str = "") -> subprocess.Popen[str]:
    """Start a shell with these redirections, which executes the program."""
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *ODRADEK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Without broker settings from the environment.
        env={
            name: value for name, value in os.environ.items() if not name.startswith(("ODRADEK_", "KAFKA_"))
        },
        text=True,
    )


def obeys(pid: int, number: signal.Signals) -> bool:
    """Whether the process blocks the signal or has a handler: then the kernel does not drop it, even for process 1."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = dict(re.findall(r"^(\w+):\s*(\w+)$", status, re.M))
    return any(int(masks[mask], 16) >> number - 1 & 1 for mask in MASKS)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("serve", "--port", "0", "--data-dir", str(tmp_path), "--log-format", "json")
    yield process
    process.kill()
    process.communicate()


def has_begun(process: subprocess.Popen[str]) -> None:
    """Wait until the first lines of the program have run, that is, after the start of the interpreter."""
    eventually(lambda: obeys(process.pid, signal.SIGTERM), "SIGTERM is blocked or handled")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_start_ends_a_server(
    serving: subprocess.Popen[str], number: signal.Signals
) -> None:
    has_begun(serving)
    serving.send_signal(number)
    _, said = serving.communicate(timeout=HANG_S)
    assert (serving.returncode, said) == (0, f"stopped by {number.name} before the start\n")


def test_a_signal_right_after_the_exec_ends_a_server(serving: subprocess.Popen[str]) -> None:
    command = Path(f"/proc/{serving.pid}/cmdline")
    while b"_server" not in command.read_bytes():
        pass
    serving.send_signal(signal.SIGTERM)
    said, errors = serving.communicate(timeout=HANG_S)
    assert serving.returncode == 0
    assert "SIGTERM" in said + errors


def test_from_its_first_lines_on_a_server_misses_no_signal(serving: subprocess.Popen[str]) -> None:
    has_begun(serving)
    output = serving.stdout
    assert output is not None
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(iter(output.readline, "")), daemon=True)
    reading.start()
    while not any('"started"' in line for line in lines):
        assert obeys(serving.pid, signal.SIGTERM)
        assert obeys(serving.pid, signal.SIGINT)
    serving.terminate()
    assert serving.wait(HANG_S) == 0
    reading.join()


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_broker_serves_and_stops_with_closed_descriptors(redirections: str, tmp_path: Path) -> None:
    port = _free_port()
    broker = start("serve", "--port", str(port), "--data-dir", str(tmp_path), redirections=redirections)

    def serves() -> bool:
        assert broker.poll() is None, broker.communicate()
        try:
            return ask_api_versions(f"127.0.0.1:{port}") > 0
        except HealthError:
            return False

    eventually(serves, "it serves")
    broker.terminate()
    _, errors = broker.communicate(timeout=HANG_S)
    assert (broker.returncode, errors) == (0, "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    "words", [("--version",), ("fault", "--help"), ("topic", "--help"), ("serve", "--help")]
)
def test_commands_run_with_closed_descriptors(words: tuple[str, ...]) -> None:
    for redirections in ("<&- >&-", "<&- >&- 2>&-"):
        done = start(*words, redirections=redirections)
        assert (done.communicate(timeout=HANG_S), done.returncode) == (("", ""), 0)


def test_a_program_without_descriptors_has_a_broker(tmp_path: Path) -> None:
    said = tmp_path / "said"
    subprocess.run([sys.executable, "-c", HANDLE, str(said)], check=True, timeout=HANG_S)
    assert said.read_text() == "1\n"
