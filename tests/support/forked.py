"""A pytest plugin that forks the tests' brokers from a process that has imported the server already.

Imports are more than two thirds of the CPU time of a broker's start, and `make test` starts 700 brokers. The plugin replaces
`odradek.child.Child` in `odradek.process`. A forked broker has its own session, working directory, environment and
descriptors, and runs the same ``main`` as the command line. Start a broker in ``with executed():`` if a test is about the
command line or the interpreter. Programs in tests' own child processes, and `tests.server`, start brokers as users do.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import pytest

import odradek.process
from odradek._server import FOLDER
from odradek._server.__main__ import main
from odradek.child import Child
from tests.support import principals

ROOT: Final = Path(__file__).parents[2]
CONTEXT: Final = multiprocessing.get_context("forkserver")
# A process has one fork server, so this list has the modules of all tests that fork.
PRELOADED: Final = [__name__, "tests.support.preloaded", "tests.storage.crashing"]
ISOLATED: Final = [sys.executable, "-I", "-S", FOLDER]
# The dynamic linker, the interpreter, or modules read these environment variables before `main` runs.
READ_EARLY: Final = ("LD_", "MALLOC_", "PYTHON", "ODRADEK_PURE")
_never_closed: list[Connection] = []
_forks = True


class ForkedChild:
    """A forked broker. Its methods are those of `Child` that `odradek.process` calls."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        reader, self._input = CONTEXT.Pipe(duplex=False)
        self._lock = threading.Lock()
        self._process = CONTEXT.Process(
            target=_serve,
            args=(reader, arguments, dict(environment), log.absolute(), Path.cwd()),
            daemon=True,
        )
        with reader:
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        with self._lock:  # the pipe from the fork server has the exit code only once
            return self._process.exitcode

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def send_signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout_s: float | None = None) -> int:
        wait([self._process.sentinel], timeout_s)
        code = self.exit_code
        if code is None:
            raise subprocess.TimeoutExpired("a forked broker", timeout_s or 0)
        self.close_input()
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()

    def close_input(self) -> None:
        self._input.close()


def _serve(
    reader: Connection, arguments: list[str], environment: dict[str, str], log: Path, folder: Path
) -> None:
    """Run the server in the forked process. Standard input is the pipe ``reader``, the other descriptors are the log."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number, source in enumerate((reader.fileno(), output, output)):
        os.dup2(source, number)
    _never_closed.append(reader)  # another file gets its descriptor
    os.closerange(3, 1024)
    sys.argv = ["odradek", *arguments]
    if given := os.environ.pop(principals.VARIABLE, ""):
        principals.install(given)
    try:
        sys.exit(main())
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not run them; one of them writes the rest of the log


def start(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str], holds_input: bool
) -> Child | ForkedChild:
    """Fork a broker. Execute another program, a broker with variables that are `READ_EARLY`, and all in `executed`."""
    added = (name for name, value in environment.items() if os.environ.get(name) != value)
    is_broker = command[:4] == ISOLATED and "serve" in command
    if _forks and is_broker and not any(name.startswith(READ_EARLY) for name in added):
        return ForkedChild(command[4:], log, environment)
    return Child(command, log, environment=environment, holds_input=holds_input)


@contextlib.contextmanager
def executed() -> Iterator[None]:
    """Context manager: in its block, brokers are started as users do, with a new interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "_forks", False)
        yield


def fork_brokers() -> None:
    """Fork the brokers that this process starts from now on. Call this while there is one thread."""
    setattr(odradek.process, "Child", start)  # noqa: B010
    CONTEXT.set_forkserver_preload(PRELOADED)
    # Started now, while there is one thread, because the fork server imports from its working directory.
    with contextlib.chdir(ROOT):
        forkserver.ensure_running()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):  # the process that starts the workers of xdist
        setattr(odradek.process, "Child", start)  # noqa: B010
    else:
        fork_brokers()
