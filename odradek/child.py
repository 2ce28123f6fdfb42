"""A child process in a session of its own, with callbacks for its output lines, killed with its whole process group."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Hears = Callable[[str], None]


class Child:
    """A child process, started by the constructor. It has a session of its own, so a Ctrl-C at the terminal does not reach
    it.

    Without ``hears``, its standard output and standard error are appended to the file ``log``. With ``hears``, only standard
    error is appended: a thread passes each line of standard output, without the line end, to ``hears``, and `tell` writes to
    the child's standard input. ``environment`` is the complete environment; None inherits that of this process.
    ``holds_input`` keeps its standard input open until the child or this process ends.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        hears: Hears | None = None,
        holds_input: bool = False,
    ) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [os.fspath(each) for each in command],
                env=environment,
                stdin=subprocess.PIPE if hears is not None or holds_input else subprocess.DEVNULL,
                stdout=file if hears is None else subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        if hears is not None:
            threading.Thread(target=self._listen, args=(hears,), daemon=True).start()

    def _listen(self, hears: Hears) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                hears(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group and of its session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the child runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def tell(self, line: object) -> None:
        """Write a line to the child's standard input. Ignored if the child has ended."""
        assert self._process.stdin is not None, "the child was started without hears"
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child only, not to its process group, if it runs."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the child to end, and return its exit code. Raises ``subprocess.TimeoutExpired`` after the timeout."""
        code = self._process.wait(timeout_s)
        self.close_input()
        return code

    def kill(self) -> None:
        """Send SIGKILL to the child's process group, which may outlive the child, and close its standard input."""
        # On macOS, a group that contains only zombies raises PermissionError.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def close_input(self) -> None:
        """Close the child's standard input. The child treats that as the end of its parent process."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def complaint(self) -> str:
        """The last line of the child's log that is not a frame of a Java stack trace.

        "it printed nothing" if the log has no such line.
        """
        lines = [line.strip() for line in self._log.read_text("utf-8", "replace").splitlines()]
        said = (line for line in reversed(lines) if line and not line.startswith("at "))
        return next(said, "it printed nothing")
