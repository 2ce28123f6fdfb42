"""docs/asyncio.md: its snippets run with its settings, and its table has all calls for coroutines."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.nodes import Node
from odradek.remote import Clock, Rule
from odradek.snapshots import Snapshot
from odradek.transactions import Transactions
from tests.docs.blocks import ROOT, blocks

PAGE = "docs/asyncio.md"


@pytest.mark.more
def test_the_snippets_of_the_page_work(
    run_pytest: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    settings = configparser.ConfigParser()
    for number, block in enumerate(blocks(PAGE)):
        if block.language == "ini":
            settings.read_string(block.text)
        else:
            assert block.language == "python"
            (tmp_path / f"test_{number}.py").write_text(block.text)
    said = [f"--override-ini={name}={value}" for name, value in settings["pytest"].items()]
    done = run_pytest(tmp_path, "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", *said, "-W", "error")
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_every_call_for_coroutines_is_named() -> None:
    kinds = (odradek.Broker, Rule, Transactions, Clock, Node, Snapshot)
    calls = {name for kind in kinds for name in dir(kind) if name.endswith("_async")}
    assert calls == set(re.findall(r"\w+_async\b", (ROOT / PAGE).read_text("utf-8")))


def test_a_start_of_the_command_line_does_without_asyncio() -> None:
    script = "import sys, odradek.remote; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
