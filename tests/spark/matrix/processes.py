"""The processes of one driver: the program itself, its JVM, Spark's daemons and the workers that these fork.

All of them share the session of the program, which is how they are known: Spark's daemons make process groups of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from odradek.spark.processes import of_session
from tests.spark.archive import java_options
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[3]
PRELOAD = Path(__file__).parent / "preload"


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str


def processes(session: int) -> list[Process]:
    """The living ones of a session."""
    found = []
    for pid in of_session(session):
        with contextlib.suppress(psutil.Error):
            each = psutil.Process(pid)
            if each.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(Process(pid, each.ppid(), " ".join(each.cmdline())))
    return found


def state_of(pid: int) -> str:
    """One of ``psutil.STATUS_...``; empty when it is gone."""
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return ""


def signal_to(pid: int, number: signal.Signals) -> bool:
    """False when it was gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class DriverProcess:
    """One life of a driver. ``events`` is what it says, as it says it; None in it is its end."""

    def __init__(self, log: Path, cores: int, environment: Mapping[str, str]) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.matrix.driver", str(cores), java_options()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": f"{PRELOAD}:{ROOT}",
                **environment,
            },
            start_new_session=True,
        )
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                # Others write to this stream too: Java's own warnings, for one.
                if line.startswith(b"{"):
                    self.events.put(json.loads(line))
        self.events.put(None)

    def until_ready(self) -> DriverProcess:
        said = self.events.get(timeout=HANG_S)
        assert said is not None, "the driver ended before it was ready"
        assert said["event"] == "ready", said
        self.jvm = int(said["jvm"])
        return self

    def order(self, **words: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((json.dumps(words) + "\n").encode())
            self._process.stdin.flush()

    # ---- who there is

    def family(self) -> list[Process]:
        return processes(self._process.pid)

    def daemons(self) -> list[Process]:
        return [
            each for each in self.family() if each.parent == self.jvm and "pyspark.daemon" in each.command
        ]

    def workers(self) -> list[Process]:
        """The Python processes in which planning, tasks and commits happen."""
        daemons = {each.pid for each in self.daemons()}
        return [each for each in self.family() if each.parent in daemons]

    def task_workers(self) -> list[Process]:
        """Those of tasks, busy or not."""
        return [each for each in self.workers() if each.command.rstrip().endswith("pyspark.worker")]

    # ---- how it ends

    def kill(self) -> None:
        """The JVM and the program die at once; workers go on by themselves, as no process stops them."""
        # The JVM is to see nothing of what becomes of its daemons, which would take their workers with them.
        signal_to(self.jvm, signal.SIGSTOP)
        for each in self.daemons():
            signal_to(each.pid, signal.SIGKILL)
        signal_to(self.jvm, signal.SIGKILL)
        signal_to(self._process.pid, signal.SIGKILL)
        self._process.wait(HANG_S)
        eventually(
            lambda: state_of(self.jvm) in ("", psutil.STATUS_ZOMBIE), "the JVM is gone", within_s=HANG_S
        )

    def kill_all(self) -> None:
        """Everything of it, stopped or not."""

        def gone() -> bool:
            for each in self.family():
                signal_to(each.pid, signal.SIGKILL)
            return not self.family()

        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait(HANG_S)
        eventually(gone, "the driver's processes are gone", within_s=HANG_S)
        self._listener.join(HANG_S)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._log.close()


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[Callable[[], None]]:
    """A process that stands still inside, unless it is let go on before."""
    signal_to(pid, signal.SIGSTOP)
    eventually(lambda: state_of(pid) in (psutil.STATUS_STOPPED, ""), f"{pid} stands still")
    try:
        yield lambda: (signal_to(pid, signal.SIGCONT), None)[1]
    finally:
        signal_to(pid, signal.SIGCONT)
