"""How the programs of this room are run: `click` without its own way of ending the process."""

from __future__ import annotations

import click


def run(command: click.Command, name: str, arguments: list[str]) -> int:
    """Do as the command line says; the exit code of the process."""
    try:
        command.main(arguments, prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0
