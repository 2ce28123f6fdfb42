"""Run pytest as a user of Odradek does: in a process, with the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_pytest() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs pytest in a folder, without other plugins and without the entry point of an installed Odradek."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        # A test that hangs shows its stacks before our own timeout.
        (folder / "pytest.ini").write_text(f"[pytest]\nfaulthandler_timeout = {HANG_S / 2}\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "odradek.pytest_plugin",
            "-p",
            "no:cacheprovider",
            # With a basetemp of its own pytest does not remove the directories of earlier runs, which takes time.
            f"--basetemp={folder / 'temporary'}",
            *arguments,
        ]
        environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False
        )

    return run
