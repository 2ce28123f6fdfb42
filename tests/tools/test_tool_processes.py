"""`odradek topic` and other commands as processes: `odradek.cli` starts an isolated interpreter for them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from functools import partial

import pytest

import odradek as package
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S
from tools.__main__ import COMMANDS

START = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"


def typed(*words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START, *words]
    return subprocess.run(command, input=input, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_in_its_own_name(name: str) -> None:
    done = typed(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: odradek {name} ")


def test_records_go_through_pipes_and_errors_through_exit_codes(cluster_of_two: package.Broker) -> None:
    where = ("-b", cluster_of_two.bootstrap_servers)
    assert typed("topic", "create", "p1", *where).returncode == 0
    assert typed("produce", "p1", *where, input="one\ntwo\n").returncode == 0
    assert typed("consume", "p1", *where, "--format", r"%v\n").stdout == "one\ntwo\n"
    assert typed("topic", "describe", "nope", *where).returncode == 1
    assert typed("topic", "list", "-b", "localhost:1").returncode == 3


def test_a_line_is_written_before_the_next_one_comes(cluster_of_two: package.Broker) -> None:
    where = ("-b", cluster_of_two.bootstrap_servers)
    command = [sys.executable, "-c", START, "produce", "p3", "-p", "0", *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        for written in (["one"], ["one", "two"]):
            process.stdin.write(f"{written[-1]}\n")
            process.stdin.flush()
            eventually(partial(holds, cluster_of_two, "p3", written))
        said, _ = process.communicate("three", timeout=HANG_S)
    assert (process.returncode, said) == (0, "3 records to p3\n")
    assert holds(cluster_of_two, "p3", ["one", "two", "three"])


def holds(broker: package.Broker, topic: str, values: list[str]) -> bool:
    try:
        return [each.value for each in broker.records(topic)] == values
    except package.NotFound:
        return False


def test_a_short_measurement_prints_four_rates(cluster_of_two: package.Broker) -> None:
    small = ("--megabytes", "2", "--requests", "10", "--transactions", "10")
    done = typed("bench", "-b", cluster_of_two.bootstrap_servers, *small)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_has_colours_unless_no_color_is_set(no_color: str, cluster_of_two: package.Broker) -> None:
    where = ("-b", cluster_of_two.bootstrap_servers)
    typed("topic", "create", "p2", "--if-not-exists", *where)
    assert typed("produce", "p2", "gone", "-x", "p2", "--abort", *where).returncode == 0
    ours, its = pty.openpty()
    command = [sys.executable, "-c", START, "consume", "p2/0", "-u", "-n", "1", *where]
    environment = {**os.environ, "NO_COLOR": no_color}
    done = subprocess.run(command, stdout=its, stderr=its, env=environment, timeout=HANG_S, check=False)
    os.close(its)
    said = os.read(ours, 4096)
    os.close(ours)
    assert done.returncode == 0
    assert (b"\x1b[31m[aborted" in said) == (not no_color), said
