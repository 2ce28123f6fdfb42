"""How a command lists its subcommands."""

from __future__ import annotations

from inspect import cleandoc

import click


class CommandGroup(click.Group):
    """Lists each command with the whole first paragraph of its help; click cuts it at the width of the terminal."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                paragraph = cleandoc(command.help or "").partition("\n\n")[0]
                rows.append((name, " ".join(paragraph.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
