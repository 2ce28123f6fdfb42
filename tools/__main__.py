"""``odradek topic ...`` and the other commands that speak Kafka's protocol. The first argument is the command."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

import click

# Each command with its module, which has the command under the same name (with _ for -).
COMMANDS: Final = {
    "acl": "tools.commands.acl",
    "bench": "tools.commands.bench",
    "consume": "tools.commands.consume",
    "craft": "tools.commands.craft",
    "dump": "tools.commands.dump",
    "explain": "tools.commands.explain",
    "group": "tools.commands.group",
    "kafka-tool": "tools.kafka_tools.group",
    "produce": "tools.commands.produce",
    "seed": "tools.commands.seed",
    "topic": "tools.commands.topic",
    "txn": "tools.commands.txn",
    "user": "tools.commands.user",
}
COMPLETION: Final = "_ODRADEK_COMPLETE"


def main(arguments: list[str]) -> None:
    """Run one command, and exit with its code."""
    # kio imports hypothesis if it is installed, and structlog imports rich. Both are slow, and no command needs them.
    for name in ("hypothesis", "structlog"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    name = arguments[0]
    command: click.Command = getattr(import_module(COMMANDS[name]), name.replace("-", "_"))
    if COMPLETION in os.environ:
        # The shell asks for completions; its words are in environment variables, and begin with `odradek`.
        from odradek.commands.completing import attach
        from tools.commands.completing import from_cluster

        attach(command, name, from_cluster)
        click.Group("odradek", commands={name: command}).main(
            [], prog_name="odradek", complete_var=COMPLETION
        )
    color = False if os.environ.get("NO_COLOR") else None  # https://no-color.org
    command.main(arguments[1:], prog_name=f"odradek {name}", color=color)


if __name__ == "__main__":
    main(sys.argv[1:])
