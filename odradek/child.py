"""A child process: started in a session of its own, heard line by line, killed with all of its process group."""

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
    """Runs from its construction on. A Ctrl-C at the terminal is not for it: it has a session of its own.

    Without ``hears`` all that it writes is appended to the file ``log``. With it only its standard error is: each line of
    its standard output, without the line's end, goes to ``hears`` on a thread of the child's, and `tell` writes to its
    standard input. ``environment`` is the whole one; None passes on that of this process. ``holds_input``: its standard
    input stays open until it has ended, or this process has.
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
        """Also the id of its process group and of its session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def tell(self, line: object) -> None:
        """A line on its standard input; a child that has ended does not read it."""
        assert self._process.stdin is not None, "the child is not heard"
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        """To the child alone, if it runs."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code; ``subprocess.TimeoutExpired`` when it has not ended in time."""
        code = self._process.wait(timeout_s)
        self.close_input()
        return code

    def kill(self) -> None:
        """kill -9 of its process group, which may outlive it, and the end of its standard input."""
        # A group of zombies alone is PermissionError on macOS.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def close_input(self) -> None:
        """What a child that reads its standard input takes for the end of its parent."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def complaint(self) -> str:
        """The last line of its log that says more than where it was."""
        lines = [line.strip() for line in self._log.read_text("utf-8", "replace").splitlines()]
        said = (line for line in reversed(lines) if line and not line.startswith("at "))
        return next(said, "it printed nothing")
