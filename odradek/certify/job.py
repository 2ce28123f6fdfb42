"""The job under test: its processes, started, killed, frozen and started again as a supervisor would.

An instance is a process with all its children, in a session of its own: a shell around a JVM dies with it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from odradek.deadlines import stretched

ENDS_S: Final = stretched(10.0)
"""An instance that was asked to end (SIGTERM) is killed after this time."""
_PAUSE_S: Final = 0.01
ALWAYS: Final = -1


@dataclass(frozen=True, slots=True)
class Command:
    """How an instance is started. ``{bootstrap}``, ``{data}``, ``{run}`` and ``{instance}`` are filled in."""

    words: tuple[str, ...]
    directory: Path | None = None

    @classmethod
    def parse(cls, text: str | Sequence[str], directory: Path | None = None) -> Command:
        words = tuple(shlex.split(text)) if isinstance(text, str) else tuple(text)
        if not words:
            raise ValueError("the job's command is empty")
        return cls(words, directory)

    def filled(self, values: Mapping[str, str]) -> list[str]:
        words = []
        for word in self.words:
            for name, value in values.items():
                word = word.replace("{" + name + "}", value)
            words.append(word)
        return words


@dataclass(slots=True)
class Exit:
    """An instance that has ended by itself."""

    instance: int
    code: int


class Instance:
    """One process of the job."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number, self.process = number, process
        self.was_ended = False
        """By the certifier."""

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """To the whole session of the instance."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.was_ended = True
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        self.was_ended = True
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDS_S)
        self.kill()

    def processes(self) -> list[tuple[int, str]]:
        """Process id and name of each of its processes, the one that was started first; empty if it has ended."""
        found: list[tuple[int, str]] = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    found.append((process.pid, process.name()))
        return found

    def has_connection(self, port: int) -> bool:
        """Whether one of its processes has a connection from this local port."""
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    if any(each.laddr and each.laddr.port == port for each in process.net_connections("tcp")):
                        return True
        return False


class Job:
    """All instances of one run, and a supervisor that starts again what dies.

    ``restarts`` is how often an instance is started again after an exit with an error, or after it was killed: `ALWAYS`, or
    a number. An exit with code 0 is the end of an instance.
    """

    def __init__(
        self, command: Command, values: Mapping[str, str], log: Path, restarts: int = ALWAYS
    ) -> None:
        self._command, self._values, self._restarts = command, values, restarts
        self._log = log
        self._lock = threading.RLock()
        self._instances: list[Instance] = []
        self._left: dict[int, int] = {}
        self._replaced = 0
        self.exits: list[Exit] = []
        self.kills = 0
        """Instances that the certifier killed, or froze, without a word to their group."""
        self.given_up = 0
        """Instances that died, and are not started again."""
        self.completed: set[int] = set()
        """Instances that ended with code 0."""

    def start(self, number: int) -> Instance:
        values = {**self._values, "instance": str(number)}
        environment = {
            **os.environ,
            **{f"ODRADEK_{name.upper()}": value for name, value in values.items()},
            "KAFKA_BOOTSTRAP_SERVERS": values["bootstrap"],
        }
        with self._lock, self._log.open("ab") as log:
            try:
                process = subprocess.Popen(
                    self._command.filled(values),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._command.directory,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise ValueError(f"the job cannot be started: {error}") from None
            instance = Instance(number, process)
            self._instances.append(instance)
            return instance

    def supervise(self) -> None:
        """Start again what has died; to be called all the time."""
        with self._lock:
            for instance in [each for each in self._instances if not each.is_alive]:
                self._instances.remove(instance)
                if instance.was_ended:
                    continue
                code = instance.process.returncode
                self.exits.append(Exit(instance.number, code))
                if code == 0:
                    self.completed.add(instance.number)
                else:
                    self._again(instance.number)

    def _again(self, number: int) -> None:
        left = self._left.get(number, self._restarts)
        if left:
            self._left[number] = left - 1 if left > 0 else left
            self.start(number)
        else:
            self.given_up += 1

    def killed(self, instance: Instance) -> None:
        """Kill an instance as ``kill -9`` does, and start it again."""
        with self._lock:
            self.kills += 1
            instance.kill()
            if instance in self._instances:
                self._instances.remove(instance)
            self._again(instance.number)

    @property
    def alive(self) -> list[Instance]:
        with self._lock:
            return [each for each in self._instances if each.is_alive]

    @property
    def has_ended(self) -> bool:
        """No instance is left, nor will one be started: not by `supervise`, nor in place of one that is `replaced`."""
        with self._lock:
            return not self._instances and not self._replaced

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Within it an instance ends, and another one starts."""
        with self._lock:
            self._replaced += 1
        try:
            yield
        finally:
            with self._lock:
                self._replaced -= 1

    def owner(self, peer: str) -> Instance | None:
        """The instance that has this connection, by its address (host:port)."""
        port = int(peer.rpartition(":")[2])
        return next((each for each in self.alive if each.has_connection(port)), None)

    def end(self) -> None:
        """Kill all that is left."""
        with self._lock:
            for instance in self._instances:
                instance.was_ended = True
                instance.signal(signal.SIGKILL)
            for instance in self._instances:
                instance.process.wait()
            self._instances.clear()


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it came to hold in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True
