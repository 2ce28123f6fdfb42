"""One instance of the job: what can be done to it, and how it is started as a process.

An instance is its first process with all that this has started, as a container is: when that one ends the others are killed.
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
"""An instance that was asked to end (SIGTERM) is killed after this time."""


class Instance(Protocol):
    """One life of an instance, from its start to its end."""

    number: int
    began: float
    """By the monotonic clock."""
    was_ended: bool
    """By the certifier."""

    @property
    def code(self) -> int | None:
        """The exit code, of a signal below 0; None while it is alive."""

    @property
    def is_alive(self) -> bool: ...

    def kill(self) -> None:
        """As ``kill -9`` does, with all its processes. It is gone then."""

    def freeze(self) -> None:
        """Its processes get no CPU until `thaw`."""

    def thaw(self) -> None: ...

    def end(self) -> None:
        """Ask it to end (SIGTERM), and see that it does."""

    def clear(self) -> int:
        """It has ended: end what it has left; gives how many processes that were."""

    def processes(self) -> list[tuple[int, str]]:
        """Process id and name of each of its processes, the one that was started first; empty if it has ended."""

    def has_connection(self, port: int) -> bool:
        """Whether one of its processes has a connection from this local port."""


class Launcher(Protocol):
    """Starts instances, and ends all of them."""

    def start(
        self, number: int, values: Mapping[str, str], variables: Mapping[str, str], log: Path
    ) -> Instance:
        """``variables`` are added to the environment. ``ValueError`` if it cannot be started."""

    def freeze(self) -> None:
        """All that was started stands still."""

    def end(self, grace_s: float) -> bool:
        """SIGTERM to all that is left, and so long after it SIGKILL; False if it came to that. 0: SIGKILL at once.

        `StillAlive` if something does not end: a run may not begin beside it.
        """


class ProcessInstance:
    """A process, in a session of its own, with all that comes from it."""

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
    """Instances as processes of this machine."""

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
        """By the mark of all instances: also what the end of one of them has missed."""
        return Tree(f"{self._mark}.", [each.pid for each in self._started if each.poll() is None])

    def freeze(self) -> None:
        if self._started:
            self._tree().freeze()

    def end(self, grace_s: float) -> bool:
        if not self._started:
            return True
        tree, in_time = self._tree(), True
        if grace_s and (told := tree.tell(signal.SIGTERM, signal.SIGCONT)):  # what is frozen hears it then
            in_time = await_ends([each.pid for each in told], grace_s)
            for each in self._started:
                each.poll()  # of what has no group any more nothing is left to look for
        tree.kill()
        for each in self._started:
            each.wait()
        self._started.clear()
        return in_time


def named(pids: list[int]) -> list[tuple[int, str]]:
    """These processes with their names, as far as they are alive."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append((pid, psutil.Process(pid).name()))
    return found


def is_connected(pid: int, port: int) -> bool:
    """Whether this process has a TCP connection from this local port."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return any(each.laddr and each.laddr.port == port for each in found)
    return False
