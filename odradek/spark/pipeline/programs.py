"""The programs of the pipeline: each a process group of its own, which is killed as a whole and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

Hears = Callable[[list[str]], None]
WORKER = "pyspark.daemon"


class Program:
    """A program of ours, by its module. What it says is heard word by word; its complaints are kept in a file."""

    def __init__(self, module: str, arguments: Sequence[object], directory: Path, hears: Hears) -> None:
        self.name = module.rpartition(".")[2]
        # Isolated: modules in the user's directory that happen to be called like ours cannot hurt it.
        self._command = [sys.executable, "-I", "-m", module, *map(str, arguments)]
        self._log = directory / f"{self.name}.log"
        self._hears = hears
        self._process: subprocess.Popen[str] | None = None

    def start(self, environment: Mapping[str, str] = {}) -> None:
        self._say_no_more()
        with self._log.open("a") as complaints:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._hears(line.split())

    @property
    def pid(self) -> int:
        assert self._process is not None, "the program was never started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def tell(self, line: object) -> None:
        """A line on its standard input; one that is dead does not listen."""
        assert self._process is not None, "the program was never started"
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9, with the JVM that it may have started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._say_no_more()

    def _say_no_more(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def complaint(self) -> str:
        """The last line that says more than where it was, of what it wrote to its error output."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        return next(
            (line for line in reversed(lines) if line and not line.startswith("at ")), "it said nothing"
        )


def kill_process(pid: int) -> None:
    """kill -9 of one that may be gone by now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def spark_workers(driver: int, processes: Mapping[int, tuple[int, str]] | None = None) -> list[int]:
    """The processes that run Python for Spark below the process ``driver``. Not their parent, which makes new ones.

    ``processes``: (parent, command line) by process id; those of this machine when it is not given.
    """
    known = dict(_processes()) if processes is None else processes
    daemons = {pid for pid, (_, command) in known.items() if WORKER in command}
    forked = [pid for pid in daemons if known[pid][0] in daemons]
    return [pid for pid in forked if driver in _ancestors(pid, known)]


def _ancestors(pid: int, processes: Mapping[int, tuple[int, str]]) -> Iterator[int]:
    while pid in processes:
        pid = processes[pid][0]
        yield pid


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """(pid, (parent, command line)) of every process."""
    listed = subprocess.run(["ps", "-Ao", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent, *command = line.split(None, 2)
        yield int(pid), (int(parent), command[0] if command else "")
