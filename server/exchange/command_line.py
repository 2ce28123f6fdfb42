"""Runs the command-line programs of the package `server.exchange`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from server.process import exit_code

NOTICE_S: Final = 2.0


def run(command: click.Command, name: str, arguments: list[str]) -> int:
    """Execute a command line; returns the exit code of the process."""

    def work() -> int:
        with _telling():
            command.main(arguments, prog_name=name, standalone_mode=False)
        return 0

    return exit_code(work)


@contextmanager
def _telling() -> Iterator[None]:
    """Context manager: write to stderr why the command takes so long, if it takes longer than ``NOTICE_S``."""
    text = f"waiting for {NOTICE_S:g} s: files are copied, and each log is read once"
    notice = threading.Timer(NOTICE_S, click.echo, (text,), {"err": True})
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
