"""The processes of a Spark driver: the program, its JVM, and the Python workers below the JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import psutil

JVM: Final = "java"
WORKER: Final = "pyspark.daemon"


def kill(pid: int) -> None:
    """Send SIGKILL to a process, which may have ended already."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def of_session(leader: int) -> list[int]:
    """Ids of the processes in the POSIX session of ``leader``.

    Spark's Python workers have a process group of their own, but stay in the session."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def python_workers(driver: int) -> list[int]:
    """Ids of Spark's Python workers below the process ``driver``, without the daemon that forks them."""
    parents: dict[int, int] = {}
    for each in _below(driver):
        with suppress(psutil.Error):
            if WORKER in " ".join(each.cmdline()):
                parents[each.pid] = each.ppid()
    return [pid for pid, parent in parents.items() if parent in parents]


def _below(pid: int) -> Sequence[psutil.Process]:
    below: Sequence[psutil.Process] = ()
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(pid).children(recursive=True)
    return below


def jvm_above() -> int | None:
    """Process id of the nearest ancestor of this process that is a JVM; None if there is none."""
    with suppress(psutil.Error):
        return next((each.pid for each in psutil.Process().parents() if each.name() == JVM), None)
    return None
