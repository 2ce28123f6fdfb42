"""Builds and runs the compiled client, `benchmarks/load`: a process for each measure prints the result."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

SOURCES: Final = Path(__file__).resolve().parents[1] / "load"
TIMEOUT_S: Final = 300


class LoadFailed(Exception):
    """A load has failed. The message contains the client's error, or says what was wrong with the result."""


@cache
def load_program() -> str:
    # The tests' builder of Go programs caches its builds in .cache.
    from tests.support.foreign import go_program

    return go_program("load", SOURCES)[0]


def load(measure: str, bootstrap: str, pid: int, /, **told: Any) -> dict[str, Any]:
    """Run a measure and return its outcome, whose fields are defined in `benchmarks/load/measure.go`."""
    flags = [f"-{name}={value}" for name, value in told.items()]
    command = [load_program(), measure, f"-address={bootstrap}", f"-pid={pid}", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if ran.returncode:
        raise LoadFailed(f"{measure} {' '.join(flags)}: {ran.stderr.strip()}")
    outcome: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return outcome
