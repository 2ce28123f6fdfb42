"""The help of each command fits a terminal of 80 columns, with its examples."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from odradek.cli import _LATE
from tools.__main__ import COMMANDS

COLUMNS = 80


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield (command line without options, command) of every command and subcommand."""
    for name, module in {**{name: each for name, (each, _) in _LATE.items()}, **COMMANDS}.items():
        if name != "kafka-tool":
            yield from below(name, getattr(import_module(module), name))


def below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from below(f"{path} {name}", each)


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL)
def test_help_fits_a_terminal(path: str) -> None:
    shown = CliRunner().invoke(ALL[path], ["--help"], prog_name=f"odradek {path}", terminal_width=COLUMNS)
    assert shown.exit_code == 0, shown.output
    assert [line for line in shown.output.splitlines() if len(line) > COLUMNS] == []


WITHOUT_JSON = {
    "completion install",
    "completion show",  # code for the shell
    "spark demo",  # a job
    "spark jars",  # a value for spark-submit
}


@pytest.mark.parametrize("path", [path for path in ALL if not isinstance(ALL[path], click.Group)])
def test_what_a_command_says_can_be_had_as_json(path: str) -> None:
    options = {option for each in ALL[path].params for option in each.opts}
    assert ("--json" in options) is (path not in WITHOUT_JSON)


@pytest.mark.parametrize("path", ALL)
def test_the_examples_are_of_the_command_itself(path: str) -> None:
    paragraphs = inspect.cleandoc(ALL[path].help or "").split("\n\n")
    for example in (each for each in paragraphs if each.startswith("\b\n") and "odradek " in each):
        assert re.search(rf"odradek {path}( |$)", example, re.MULTILINE)
