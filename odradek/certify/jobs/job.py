"""The job under test: starts, kills, freezes and restarts its instances as a supervisor would."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.certify.jobs.command import Command, variables
from odradek.certify.jobs.container import Containers
from odradek.certify.jobs.instance import Instance, Launcher, Processes
from odradek.certify.jobs.processes import ORPHANS
from odradek.certify.jobs.restarts import ALWAYS, BackOff, Restart
from odradek.deadlines import stretched

GRACE_S: Final = stretched(0.5)
"""Default time from SIGTERM to SIGKILL at the end of a run, in seconds."""
GRACE_SHARE: Final = 0.2
"""Maximum duration of the job's end, as a fraction of the run. A longer end would leave time for too few runs."""
LINES: Final = 12
"""Number of last lines kept of an instance that has ended."""
_PAUSE_S: Final = 0.01
_TAIL_BYTES: Final = 8000


@dataclass(slots=True)
class Exit:
    """An exit of an instance that ended by itself, not because of the certifier."""

    instance: int
    code: int
    life_s: float = 0.0
    lines: tuple[str, ...] = ()
    """The last lines that the instance printed since its start."""
    left: int = 0
    """Number of the instance's processes that were still alive after the first one had ended, and were killed."""

    def __str__(self) -> str:
        said = f"instance {self.instance} ended with exit code {self.code}"
        if not self.left:
            return said
        behind = "1 process was" if self.left == 1 else f"{self.left} processes were"
        return f"{said}; {behind} left behind, and killed: an instance ends with its first process"


class Grace:
    """The time from SIGTERM to SIGKILL at the end of a run, reduced to 0 for jobs that do not end within it.

    If a job has not ended within the time, or its end has taken more than the fraction `GRACE_SHARE` of the run,
    later runs send SIGKILL at once. A time that the user has set (``--grace``) does not change.
    """

    def __init__(self, said_s: float | None = None) -> None:
        self._is_said = said_s is not None
        self.seconds = GRACE_S if said_s is None else said_s

    def learn(self, *, in_time: bool, end_s: float, run_s: float) -> None:
        """Set the time to 0 if the job took too long to end (``end_s`` seconds) after a run of ``run_s`` seconds.

        ``in_time``: whether the job ended without SIGKILL.
        """
        if not self._is_said and (not in_time or end_s > GRACE_SHARE * run_s):
            self.seconds = 0.0


class Job:
    """All instances of one run, and a supervisor that restarts those that have ended."""

    def __init__(
        self,
        command: Command,
        values: Mapping[str, str],
        directory: Path,
        restart: Restart = ALWAYS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """The output of instance N is written to ``job-N.log`` in the directory."""
        self._values, self._restart, self._directory, self._now_s = values, restart, directory, now_s
        launcher = Containers if command.container else Processes
        self._launcher: Launcher = launcher(command, secrets.token_hex(8))
        self._lock = threading.RLock()
        self._instances: list[Instance] = []
        self._due: list[tuple[float, int]] = []
        """The scheduled restarts: (monotonic time at which the restart is due, instance number)."""
        self._again: dict[int, int] = {}
        """Number of restarts of each instance number."""
        self._back_off: dict[int, BackOff] = {}
        self._log_begins: dict[Instance, int] = {}
        self._began_s = now_s()
        self._replaced = 0
        self._has_left = False
        self.exits: list[Exit] = []
        self.kills = 0
        """Number of kills and freezes by the certifier, after which an instance is still a member of its group."""
        self.given_up = 0
        """Number of times that an instance ended with an error, or was killed, and was not restarted."""
        self.completed: set[int] = set()
        """Numbers of the instances that ended with code 0 and were not restarted."""
        ORPHANS.adopt()

    def start(self, number: int) -> Instance:
        values = {**self._values, "instance": str(number)}
        log = self._log(number)
        with self._lock:
            begins = log.stat().st_size if log.exists() else 0
            instance = self._launcher.start(number, values, variables(values), log)
            self._log_begins[instance] = begins
            self._instances.append(instance)
            return instance

    def supervise(self) -> None:
        """Record the exits of instances, and start the instances whose restart is due. The caller polls this."""
        with self._lock:
            for instance in [each for each in self._instances if not each.is_alive]:
                self._instances.remove(instance)
                if not instance.was_ended:
                    self._ended(instance)
            now = self._now_s()
            for due in [each for each in self._due if each[0] <= now]:
                self._due.remove(due)
                self.start(due[1])

    def _ended(self, instance: Instance) -> None:
        code, life_s = instance.code or 0, self._now_s() - instance.began
        lines = self._lines(instance.number, LINES, self._log_begins.pop(instance))
        self.exits.append(Exit(instance.number, code, life_s, lines, instance.clear()))
        if self._may_start_again(instance.number, code):
            delay_s = self._back_off.setdefault(instance.number, BackOff()).delay_s(life_s)
            self._due.append((self._now_s() + delay_s, instance.number))
        elif code == 0:
            self.completed.add(instance.number)
        else:
            self.given_up += 1

    def _may_start_again(self, number: int, code: int) -> bool:
        so_far = self._again.get(number, 0)
        if not self._restart.starts_again(code, so_far):
            return False
        self._again[number] = so_far + 1
        return True

    def killed(self, instance: Instance) -> None:
        """Kill an instance as ``kill -9`` does, and start it again at once if the restart policy permits."""
        with self._lock:
            self.kills += 1
            instance.kill()
            if instance in self._instances:
                self._instances.remove(instance)
            if self._may_start_again(instance.number, -9):
                self.start(instance.number)
            else:
                self.given_up += 1

    @property
    def alive(self) -> list[Instance]:
        with self._lock:
            return [each for each in self._instances if each.is_alive]

    @property
    def has_ended(self) -> bool:
        """Whether no instance runs, and neither `supervise` nor a `replaced` block will start an instance."""
        with self._lock:
            return not self._instances and not self._due and not self._replaced

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Context manager for the replacement of an instance: inside, `has_ended` is False."""
        with self._lock:
            self._replaced += 1
        try:
            yield
        finally:
            with self._lock:
                self._replaced -= 1

    def owner(self, peer: str) -> Instance | None:
        """The running instance that opened the connection from ``peer`` (host:port); None if no instance has it."""
        port = int(peer.rpartition(":")[2])
        return next((each for each in self.alive if each.has_connection(port)), None)

    # -- output --------------------------------------------------------------------------------------------------

    @property
    def died_alike(self) -> int:
        """Number of exits at the end of `exits` with the same nonzero exit code; 0 if the last exit code is 0.

        `exits` also contains the last lines of the instances' output.
        """
        newest = self.exits[-1].code if self.exits else 0
        count = 0
        for each in reversed(self.exits):
            if each.code != newest or not newest:
                break
            count += 1
        return count

    def last_lines(self, count: int = LINES) -> list[str]:
        """The last lines that each instance printed. If there are several instances, each line begins with ``job-N: ``."""
        paths = sorted(self._directory.glob("job-*.log"))
        if len(paths) == 1:
            return list(_lines(paths[0], count))
        return [f"{path.stem}: {line}" for path in paths for line in _lines(path, count)]

    def _lines(self, number: int, count: int, begin: int) -> tuple[str, ...]:
        return _lines(self._log(number), count, begin)

    def _log(self, number: int) -> Path:
        return self._directory / f"job-{number}.log"

    # -- the end of the run --------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop all instances with SIGSTOP until `end`, so that the outputs do not change."""
        with self._lock:
            self._due.clear()
            self._launcher.freeze()

    def end(self, grace: Grace | None = None) -> None:
        """Send SIGTERM to all instances, and SIGKILL after the grace time (at once for None).

        Raises `StillAlive` if a process does not end.
        """
        with self._lock:
            self._due.clear()
            for each in self._instances:
                each.was_ended = True
            began_s = self._now_s()
            try:
                in_time = self._launcher.end(grace.seconds if grace else 0.0)
                if grace:
                    run_s = began_s - self._began_s
                    grace.learn(in_time=in_time, end_s=self._now_s() - began_s, run_s=run_s)
            finally:
                self._instances.clear()
                self._leave_orphans()

    def _leave_orphans(self) -> None:
        """Stop adopting orphaned processes. A second call does nothing, as `end` may be called twice."""
        if not self._has_left:
            self._has_left = True
            ORPHANS.leave()


def _lines(path: Path, count: int, begin: int = 0) -> tuple[str, ...]:
    if not path.exists():
        return ()
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(begin, end - _TAIL_BYTES))
        return tuple(log.read().decode("utf-8", "replace").splitlines()[-count:])


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Poll the condition until it is true. Returns False if it is not true before the timeout."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True
