"""A broker that stops when its standard input is closed by the program that started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["/dev/null", __file__])
def test_what_no_loop_can_wait_for_has_an_end_too(path: str) -> None:
    command = [sys.executable, "-m", "server", "--port", "0", "--ends-with-stdin"]
    with Path(path).open("rb") as stdin:
        done = subprocess.run(
            command, cwd=ROOT, env={}, stdin=stdin, capture_output=True, text=True, timeout=HANG_S, check=True
        )
    assert done.stderr == ""
    said = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert [each for each in said if each in ("started", "stopping", "stopped")] == [
        "started",
        "stopping",
        "stopped",
    ]


def test_it_stops_cleanly_and_takes_its_temporary_directory_with_it() -> None:
    command = [sys.executable, "-m", "server", "--port", "0", "--ends-with-stdin"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        started = next(line for line in map(json.loads, process.stdout) if line["event"] == "started")
        assert Path(started["data_dir"]).is_dir()
        process.stdin.close()
        assert process.wait(HANG_S) == 0
        last = json.loads(process.stdout.read().splitlines()[-1])
    finally:
        process.kill()
        process.stdout.close()
    assert last["event"] == "stopped"
    assert not Path(started["data_dir"]).exists()
