"""How the programs of this room are run."""

from __future__ import annotations

import click

from broker.process import exit_code


def run(command: click.Command, name: str, arguments: list[str]) -> int:
    """Do as the command line says; the exit code of the process."""

    def work() -> int:
        command.main(arguments, prog_name=name, standalone_mode=False)
        return 0

    return exit_code(work)
