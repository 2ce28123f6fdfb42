"""One instance of the job: its operations, and its start as a process.

An instance is its first process with all descendants, as in a container: when the first process ends, the others are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import psutil

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.processes import MARK, Tree, await_ends
from odradek.deadlines import stretched

ENDS_S: Final = stretched(10.0)
"""Seconds from SIGTERM to SIGKILL when an instance is ended."""


class Instance(Protocol):
    """An instance from its start to its end. A restart creates a new one with the same number."""

    number: int
    began: float
    """Time of the instance's start, by the monotonic clock."""
    was_ended: bool
    """Whether the certifier ended the instance."""

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while the instance runs."""

    @property
    def is_alive(self) -> bool: ...

    def kill(self) -> None:
        """Send SIGKILL to all processes of the instance, and wait for their end."""

    def freeze(self) -> None:
        """Stop the processes of the instance with SIGSTOP until `thaw`."""

    def thaw(self) -> None: ...

    def end(self) -> None:
        """Send SIGTERM to the instance, and SIGKILL if it does not end in time."""

    def clear(self) -> int:
        """Kill the processes that an ended instance has left behind. Returns their number."""

    def processes(self) -> list[tuple[int, str]]:
        """Id and name of each process of the instance, its first process first; empty if the instance has ended."""

    def has_connection(self, port: int) -> bool:
        """Whether a process of the instance has a TCP connection from the local port ``port``."""


class Launcher(Protocol):
    """The launcher of a run's instances, which ends all of them at the end of the run."""

    def start(
        self, number: int, values: Mapping[str, str], variables: Mapping[str, str], log: Path
    ) -> Instance:
        """Start an instance. ``variables`` are added to the environment. Raises ``ValueError`` if it cannot be started."""

    def freeze(self) -> None:
        """Stop all processes of all instances with SIGSTOP."""

    def end(self, grace_s: float) -> bool:
        """End all remaining processes: send SIGTERM, and after ``grace_s`` seconds SIGKILL (at once if 0).

        Returns True if all processes ended without SIGKILL. Raises `StillAlive` if a process does not end, because
        the next run must not begin while this process is alive.
        """


class ProcessInstance:
    """An instance as a process in a session of its own, with its descendants."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], mark: str) -> None:
        self.number, self.process = number, process
        self.began = time.monotonic()
        self.was_ended = False
        self._tree = Tree(mark, [process.pid])

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def is_alive(self) -> bool:
        return self.code is None

    def kill(self) -> None:
        self.was_ended = True
        self._tree.kill()
        self.process.wait()

    def freeze(self) -> None:
        self._tree.freeze()

    def thaw(self) -> None:
        self._tree.tell(signal.SIGCONT)

    def end(self) -> None:
        self.was_ended = True
        await_ends([each.pid for each in self._tree.tell(signal.SIGTERM)], ENDS_S)
        self.kill()

    def clear(self) -> int:
        return self._tree.kill()

    def processes(self) -> list[tuple[int, str]]:
        pids = [each.pid for each in self._tree.processes()]
        return named(sorted(pids, key=lambda pid: pid != self.process.pid))

    def has_connection(self, port: int) -> bool:
        return any(is_connected(each.pid, port) for each in self._tree.processes())


class Processes:
    """Launcher of instances as processes of this machine."""

    def __init__(self, command: Command, mark: str) -> None:
        self._command, self._mark = command, mark
        self._serial = count()
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, number: int, values: Mapping[str, str], variables: Mapping[str, str], log: Path
    ) -> ProcessInstance:
        mark = f"{self._mark}.{next(self._serial)}."
        with log.open("ab") as output:
            try:
                process = subprocess.Popen(
                    self._command.filled(values),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self._command.directory,
                    env={**os.environ, **variables, **self._command.environment(values), MARK: mark},
                    start_new_session=True,
                )
            except OSError as error:
                raise ValueError(f"the job cannot be started: {error}") from None
        self._started.append(process)
        return ProcessInstance(number, process, mark)

    def _tree(self) -> Tree:
        """All processes that this launcher has started, including any that outlived the end of their instance."""
        return Tree(f"{self._mark}.", [each.pid for each in self._started if each.poll() is None])

    def freeze(self) -> None:
        if self._started:
            self._tree().freeze()

    def end(self, grace_s: float) -> bool:
        if not self._started:
            return True
        tree, in_time = self._tree(), True
        if grace_s and (
            told := tree.tell(signal.SIGTERM, signal.SIGCONT)
        ):  # frozen processes get SIGTERM after SIGCONT
            in_time = await_ends([each.pid for each in told], grace_s)
            for each in self._started:
                each.poll()  # reap: a process group without processes needs no search
        tree.kill()
        for each in self._started:
            each.wait()
        self._started.clear()
        return in_time


def named(pids: list[int]) -> list[tuple[int, str]]:
    """Id and name of each of these processes that is alive."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append((pid, psutil.Process(pid).name()))
    return found


def is_connected(pid: int, port: int) -> bool:
    """Whether the process ``pid`` has a TCP connection from the local port ``port``."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return any(each.laddr and each.laddr.port == port for each in found)
    return False
