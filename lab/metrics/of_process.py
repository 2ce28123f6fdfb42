"""The process metrics of Prometheus' client libraries, by their common names; from ``/proc``."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from lab.metrics.families import Family, counter, single

_PROC = Path("/proc")


def process_families() -> list[Family]:
    """CPU time, memory, start time and descriptors of this process; empty if there is no ``/proc``."""
    try:
        # The second field is the program's name in parentheses. It may contain anything, so search from the end.
        fields = (_PROC / "self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        lines = (_PROC / "stat").read_text("ascii").splitlines()
        descriptors = len(os.listdir(_PROC / "self/fd"))
    except OSError:
        return []
    booted = next((line for line in lines if line.startswith("btime ")), "btime 0")
    ticks = os.sysconf("SC_CLK_TCK")
    return [
        single("process_virtual_memory_bytes", int(fields[20])),
        single("process_resident_memory_bytes", int(fields[21]) * resource.getpagesize()),
        single("process_start_time_seconds", int(booted.split()[1]) + int(fields[19]) / ticks),
        counter("process_cpu_seconds", (), [((), (int(fields[11]) + int(fields[12])) / ticks)]),
        single("process_open_fds", descriptors),
        single("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
