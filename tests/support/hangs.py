"""A pytest plugin: a process that hung is shown with what it had written.

``subprocess.TimeoutExpired`` carries it and does not print it. A failure that comes once in a hundred runs has to say all
that it knows.
"""

from __future__ import annotations

from collections.abc import Generator
from subprocess import TimeoutExpired

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and isinstance(hung := call.excinfo.value, TimeoutExpired):
        for name, written in (("stdout", hung.stdout), ("stderr", hung.stderr)):
            if written:
                report.sections.append((f"{name} of the process that hung", _text(written)))
    return report


def _text(written: bytes | str) -> str:
    """CPython gives bytes here even to those who asked for text."""
    return written.decode(errors="replace") if isinstance(written, bytes) else written
