"""The processes of one driver: the program itself, its JVM, Spark's daemons and the workers that these fork.

All of them belong to the program's POSIX session, by which they are found: Spark's daemons make their own process groups.
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
    """The living processes of a session."""
    found = []
    for pid in of_session(session):
        with contextlib.suppress(psutil.Error):
            each = psutil.Process(pid)
            if each.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(Process(pid, each.ppid(), " ".join(each.cmdline())))
    return found


def state_of(pid: int) -> str:
    """The state of a process, one of ``psutil.STATUS_...``; empty if it does not exist."""
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return ""


def signal_to(pid: int, number: signal.Signals) -> bool:
    """Send a signal. Returns False if the process does not exist."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class DriverProcess:
    """One driver process. ``events`` is a queue of its events; None means that the driver has ended."""

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
                # The stream also has other lines, such as warnings of the JVM.
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

    # ---- its processes

    def family(self) -> list[Process]:
        return processes(self._process.pid)

    def daemons(self) -> list[Process]:
        return [
            each for each in self.family() if each.parent == self.jvm and "pyspark.daemon" in each.command
        ]

    def workers(self) -> list[Process]:
        """The Python processes that plan, run tasks and commit."""
        daemons = {each.pid for each in self.daemons()}
        return [each for each in self.family() if each.parent in daemons]

    def task_workers(self) -> list[Process]:
        """The Python processes for tasks, busy or idle."""
        return [each for each in self.workers() if each.command.rstrip().endswith("pyspark.worker")]

    # ---- its end

    def kill(self) -> None:
        """Kill the JVM and the program at once. Workers continue, because no process stops them."""
        # Stop the JVM first: it would notice that its daemons die, and kill their workers.
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
        """Kill every process of the driver, including stopped ones."""

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
    """Context manager: stop a process with SIGSTOP. It continues at the end, or when the yielded function is called."""
    signal_to(pid, signal.SIGSTOP)
    eventually(lambda: state_of(pid) in (psutil.STATUS_STOPPED, ""), f"{pid} stands still")
    try:
        yield lambda: (signal_to(pid, signal.SIGCONT), None)[1]
    finally:
        signal_to(pid, signal.SIGCONT)
