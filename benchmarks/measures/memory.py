"""Resident memory of an idle broker with both internal topics, 10 s after its start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.client import Client, find_group_coordinator, init_producer_id
from benchmarks.figures import Figure, Run
from benchmarks.process import resident_mib, used_by

IDLE_S: Final = 10.0


def measure(run: Run) -> Iterator[Figure]:
    with run.target.running(run.scratch / "memory") as target:
        client = Client(target.connect())
        find_group_coordinator(client, "idle")
        init_producer_id(client, "idle")
        client.close()
        time.sleep(max(0.0, IDLE_S - (time.perf_counter() - target.spawned_at)))
        resident = resident_mib(target.pid)
        with used_by(target.pid) as usage:
            time.sleep(run.scaled(5, 2))
    yield Figure(
        "resident memory, idle",
        resident,
        "MiB",
        limit=60,
        baseline=f"bare interpreter {bare_interpreter_mib():.0f} MiB",
        note=f"CPU while idle {usage.target_cpu_s / usage.wall_s * 100:.1f} % of a core",
        other_cpu=usage.other_cpu,
    )


def bare_interpreter_mib() -> float:
    program = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        resident = resident_mib(process.pid)
        process.communicate()
    return resident
