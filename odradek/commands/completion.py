"""`odradek completion`: the shell scripts for completion by Tab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from odradek.commands.common import HELP_NAMES
from odradek.commands.groups import CommandGroup

VARIABLE: Final = "_ODRADEK_COMPLETE"
"""Click's environment variable, which the shell script sets when it calls `odradek`."""
# The file below the home directory from which each shell loads completions. For zsh, ~/.zshrc must name the directory.
FILES: Final = {
    "bash": ".local/share/bash-completion/completions/odradek",
    "zsh": ".zfunc/_odradek",
    "fish": ".config/fish/completions/odradek.fish",
}
_ZSH: Final = "add to ~/.zshrc, before compinit: fpath=(~/.zfunc $fpath)"


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def completion() -> None:
    """Install completion of commands and options by Tab, for bash, zsh and fish."""


def _shell(given: str | None) -> str:
    shell = given or Path(os.environ.get("SHELL", "")).name
    if shell not in FILES:
        raise click.UsageError(f"unknown shell: {shell or 'none'} (known: {', '.join(FILES)})")
    return shell


def _script(shell: str) -> str:
    from odradek.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(main, {}, "odradek", VARIABLE).source()


@completion.command()
@click.argument("shell", required=False)
def show(shell: str | None) -> None:
    """Print the script for SHELL: bash, zsh or fish. The default comes from the environment variable SHELL."""
    click.echo(_script(_shell(shell)))


@completion.command()
@click.argument("shell", required=False)
def install(shell: str | None) -> None:
    """Write the script to the directory where SHELL searches for it, below your home directory."""
    shell = _shell(shell)
    path = Path.home() / FILES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_script(shell))
    click.echo(f"written to {path}; new {shell} sessions complete odradek")
    if shell == "zsh":
        click.echo(_ZSH)
