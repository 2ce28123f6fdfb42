"""A pytest plugin that adds stacks and process output to the report of a test that hung.

A test has hung if a deadline expired: `Deadline`, a `TimeoutError`, ``subprocess.TimeoutExpired``, or pytest-timeout's for
the whole test. The report has the stacks of threads and tasks, and what the test's processes have written. Processes of the
test that write their stacks on SIGQUIT, such as a broker of ours or a JVM, are sent that signal first.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

import pytest

from server.stacks import stack_lines, stacks_writer
from tests.support.deadlines import NotInTime

WRITTEN_BYTES: Final = 20_000
"""Maximum bytes of each process's output in the report, from its end."""
STACKS_S: Final = 1.0
"""Seconds to wait for stacks of processes. Stacks that a process writes later are not in the report."""
SIGQUIT_BIT: Final = 1 << (signal.SIGQUIT - 1)


def pytest_configure() -> None:
    """Make this process write its stacks on SIGQUIT to the real standard error, which pytest does not capture."""
    signal.signal(signal.SIGQUIT, stacks_writer(os.dup(2)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and has_hung(call.excinfo.value):
        if isinstance(call.excinfo.value, TimeoutExpired):
            report.sections += _written_to_pipes(call.excinfo.value)
        report.sections.append(("stacks of threads and tasks", "\n".join(stack_lines())))
        report.sections += _written_by_children()
    return report


def has_hung(error: BaseException) -> bool:
    """Whether this is an exception of an expired deadline."""
    return isinstance(error, (NotInTime, TimeoutError, TimeoutExpired)) or (
        isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout (>")
    )


def _written_to_pipes(hung: TimeoutExpired) -> Iterator[tuple[str, str]]:
    for name, written in (("stdout", hung.stdout), ("stderr", hung.stderr)):
        if written:
            yield f"{name} of the process that hung", _text(written)


def _text(written: bytes | str) -> str:
    """Decode output. CPython's TimeoutExpired has bytes even where the caller asked for text."""
    return written.decode(errors="replace") if isinstance(written, bytes) else written


def _written_by_children() -> Iterator[tuple[str, str]]:
    """Yield (title, last lines) of each file that is standard output or error of one of this test's processes."""
    children = list(_descendants(os.getpid()))
    asked = [pid for pid in children if _catches_sigquit(pid)]
    for pid in asked:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
    if asked:
        time.sleep(STACKS_S)
    for pid in children:
        with suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            for file in sorted({os.path.realpath(f"/proc/{pid}/fd/{number}") for number in (1, 2)}):
                if Path(file).is_file() and (text := _end_of(Path(file))):
                    yield f"written by process {pid}, {name[:80].strip()}", text


def _end_of(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - WRITTEN_BYTES))
        return opened.read().decode(errors="replace")


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from _descendants(child)


def _catches_sigquit(pid: int) -> bool:
    """Whether the process has a handler for SIGQUIT. Without a handler the signal would end it."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & SIGQUIT_BIT)
    return False
