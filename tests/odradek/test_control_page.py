"""docs/control.md and docs/testing.md: every snippet is run, and every table is compared.

The Python of docs/faults.md and of the README is run too.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from lab.control.operations import discover
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "control.md").read_text("utf-8")
TESTING = (ROOT / "docs" / "testing.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+(?: \w+)?)\n(.*?)^```", PAGE + TESTING, re.M | re.S)
FAULTS = (ROOT / "docs" / "faults.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
OF_THE_FAULTS = re.findall(r"^```python\n(.*?)^```", FAULTS, re.M | re.S)
OF_THE_README = [
    text for text in re.findall(r"^```python\n(.*?)^```", README, re.M | re.S) if "odradek.Broker" in text
]
CONTROL = "http://127.0.0.1:18092"


def blocks(kind: str) -> list[str]:
    return [text for each, text in BLOCKS if each == kind]


COMMANDS = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(nodes=3, topics=["orders:4"]) as broker:
        yield broker


def test_every_snippet_is_run() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "python pytest", "console", "ini"}
    programs = {shlex.split(line)[0] for line in COMMANDS}
    assert programs == {"odradek", "export", "curl"}
    assert len(OF_THE_FAULTS) == len(OF_THE_README) == 1


@pytest.mark.parametrize("snippet", [*blocks("python"), *OF_THE_FAULTS, *OF_THE_README])
def test_python_of_the_pages_works(snippet: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_tests_of_the_pages_pass_in_one_folder(
    run_pytest: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for number, snippet in enumerate(blocks("python pytest")):
        (tmp_path / f"test_snippet_{number}.py").write_text(snippet)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.more
def test_the_example_passes(
    run_pytest: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "test_lost_answer.py").write_text((ROOT / "examples" / "test_lost_answer.py").read_text())
    done = run_pytest(tmp_path)
    assert "7 passed" in done.stdout, done.stdout


@pytest.mark.more
def test_commands_of_the_page_work(broker: odradek.Broker, tmp_path: Path) -> None:
    environ = {**os.environ, "ODRADEK_CONTROL": broker.control_url, "PYTHONPATH": str(ROOT)}
    start = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
    for line in COMMANDS:
        line, _, otherwise = line.partition(" || ")
        program, *arguments = shlex.split(line)
        if program == "curl":
            curl(broker, arguments)
        elif program == "export":
            assert arguments == [f"ODRADEK_CONTROL={CONTROL}"]
        elif arguments[0] == "serve":
            options_are_known(arguments)
        else:
            done = subprocess.run(
                [sys.executable, "-c", start, *arguments],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                timeout=HANG_S,
                check=False,
            )
            assert done.returncode == 0 or otherwise, (line, done.stderr)
    assert (tmp_path / "trace.pcap").exists()


def curl(broker: odradek.Broker, arguments: list[str]) -> None:
    """Send the request of a ``curl`` command line, as not every machine has curl."""
    method, data, headers, url = "GET", None, {}, ""
    words = iter(arguments)
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-d":
            method, data = "POST", next(words).encode()
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        else:
            url = word.replace(CONTROL, broker.control_url)
    assert url.startswith(broker.control_url)
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers, method=method), timeout=HANG_S
    ) as answer:
        assert answer.status == 200


def options_are_known(arguments: list[str]) -> None:
    from server.options import parse

    settings = parse(arguments[1:], {})
    assert settings.control is not None
    assert (len(settings.nodes), settings.control.port) == (3, 18092)


def test_the_table_has_every_call_with_its_sentence() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.+) \|$", PAGE, re.M)
    assert [(method, path, sentence) for method, path, sentence in rows] == [
        (each.method, each.path, each.sentence) for each in discover().values()
    ]


def test_the_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
