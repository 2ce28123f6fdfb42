"""The compiled client, `benchmarks/load`: built once, each measure a process that says on its last line what it took."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

SOURCES: Final = Path(__file__).resolve().parents[1] / "load"
TIMEOUT_S: Final = 300


class LoadFailed(Exception):
    """The client could not do its work, in its own words."""


@cache
def load_program() -> str:
    # The tests' builder of Go programs: it keeps what it has built in .cache.
    from tests.support.foreign import go_program

    return go_program("load", SOURCES)[0]


def load(measure: str, bootstrap: str, pid: int, /, **told: Any) -> dict[str, Any]:
    """Runs a measure and returns its outcome, whose fields `benchmarks/load/measure.go` names."""
    flags = [f"-{name}={value}" for name, value in told.items()]
    command = [load_program(), measure, f"-address={bootstrap}", f"-pid={pid}", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if ran.returncode:
        raise LoadFailed(f"{measure} {' '.join(flags)}: {ran.stderr.strip()}")
    outcome: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return outcome
