"""Helpers shared by the commands: options of the control port, exit codes, and tables."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NoReturn, TypeVar

import click

from odradek.commands.waiting import telling_waits
from odradek.errors import ControlRefused, NotFound, OdradekError
from odradek.extras import install_command
from odradek.printable import clipped, printable, printable_json, printable_lines
from odradek.remote import CONTROL_VARIABLE, TOKEN_VARIABLE, Remote, connect

HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}
UNREACHABLE: Final = 3
"""Exit code if the control port does not respond. 1: the broker rejected the call; 2: the command line is invalid."""
NOT_FOUND: Final = 4

_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def needing(
    extra: str, what: str, failure: type[click.ClickException] = click.ClickException
) -> Iterator[None]:
    """Context manager: replace the error about a missing package by one with the command that installs ``extra``.

    ``what`` is the part of Odradek that needs the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("odradek"):
            raise
        message = f"The {what} needs {error.name}, which is not installed: {install_command(extra)}"
        raise failure(message) from None


def end_at_sigterm() -> None:
    """Exit on SIGTERM (``kill``, ``docker stop``) as on Ctrl-C, so that child processes are ended too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class _Refused(click.ClickException):
    """The broker rejected the call: exit code 1."""


class _NotFound(click.ClickException):
    exit_code = NOT_FOUND


class _Unreachable(click.ClickException):
    exit_code = UNREACHABLE


def _failure(error: OdradekError) -> click.ClickException:
    if isinstance(error, NotFound):
        return _NotFound(str(error))
    return (_Refused if isinstance(error, ControlRefused) else _Unreachable)(str(error))


def control_options(function: _F) -> _F:
    """Decorator: add --control and --token, as ``control`` and ``token``."""
    token = click.option(
        "--token",
        metavar="TOKEN",
        help=f"The token of the control port.  [default: the environment variable {TOKEN_VARIABLE}]",
    )
    control = click.option(
        "--control",
        metavar="URL",
        help=f"The URL of the broker's control port.  [default: the environment variable {CONTROL_VARIABLE}]",
    )
    return control(token(function))


def speaking(function: _F) -> _F:
    """Decorator for a command that uses the control port: adds --control and --token, and passes a ``Remote`` first."""

    @control_options
    @wraps(function)
    def call(control: str | None, token: str | None, **options: Any) -> Any:
        try:
            remote = connect(control, token)
            with telling_waits(remote):
                return function(remote, **options)
        except OdradekError as error:
            raise _failure(error) from None
        except BrokenPipeError:
            leave_quietly()

    return call  # type: ignore[return-value]


def leave_quietly() -> NoReturn:
    """Exit without an error: the reader of our output has closed it (``| head``)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(0)


_JSON: Final = "odradek.json"


def json_option(text: str) -> Callable[[_F], _F]:
    """Decorator: add --json with this help text, passed as ``as_json``, and its synonym --format json."""

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.meta[_JSON] = value == "json"

    def either(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
        return value or ctx.meta.get(_JSON, False)

    def add(function: _F) -> _F:
        function = click.option(
            "--format",
            "as_format",
            type=click.Choice(["json", "text"]),
            is_eager=True,
            expose_value=False,
            hidden=True,
            callback=remember,
        )(function)
        return click.option("--json", "as_json", is_flag=True, callback=either, help=text)(function)

    return add


as_json = json_option("Print JSON.")


def say_json(value: object) -> None:
    click.echo(printable_json(value))


def say_done(as_json: bool, value: object, text: str) -> None:
    """Print the result of a command: ``value`` as JSON, or ``text`` if it is not empty."""
    if as_json:
        say_json(value)
    elif text:
        say(text)


def say(text: str) -> None:
    """Print text of several lines that may contain clients' names."""
    click.echo(printable_lines(text))


def say_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with columns as wide as their content. Long names are cut, as are lists in the last column."""
    texts = [[*headings], *([*map(clipped, map(_text, row[:-1])), _text(row[-1])] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
    for row in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _text(cell: object) -> str:
    return "-" if cell is None or cell == "" else printable(str(cell))


def duration_text(ms: int) -> str:
    """A duration in its two largest units, such as ``7d`` or ``1h30m``."""
    words = []
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, ms = divmod(ms, unit_ms)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words[:2])


def places(by_topic: dict[str, list[int]]) -> str:
    """Topics with ranges of partitions, such as ``orders 0,2  payments 1``."""
    return "  ".join(f"{topic} {_ranges(indexes)}" for topic, indexes in sorted(by_topic.items()))


def _ranges(indexes: list[int]) -> str:
    """Numbers as ranges, such as ``0-3,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)


__all__ = [
    "HELP_NAMES",
    "UNREACHABLE",
    "Remote",
    "as_json",
    "control_options",
    "duration_text",
    "json_option",
    "leave_quietly",
    "places",
    "say",
    "say_done",
    "say_json",
    "say_table",
    "speaking",
]
