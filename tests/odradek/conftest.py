"""pytest as a user of Odradek runs it: a process of its own, with the plugin."""

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
    """Run pytest in a folder. Other plugins are left out, and so is what pip knows of this one."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Where it hangs it says in time what it waits for.
        (folder / "pytest.ini").write_text(f"[pytest]\nfaulthandler_timeout = {HANG_S / 2}\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "odradek.pytest_plugin",
            "-p",
            "no:cacheprovider",
            # Where it keeps its directories by itself it takes time to clear away those of others.
            f"--basetemp={folder / 'temporary'}",
            *arguments,
        ]
        environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False
        )

    return run
