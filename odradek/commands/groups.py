"""Click groups that list subcommands in full and suggest similar names; commands that accept a negative last argument."""

from __future__ import annotations

import re
from inspect import cleandoc
from itertools import pairwise
from typing import Final

import click

_NEGATIVE: Final = re.compile(r"-[\d.].*")
_NUMBER: Final = re.compile(r"-?[\d.]+")
_UNITS: Final = ("ms", "s", "m", "h", "d")
_SAME: Final = (
    ("list", "ls all get show"),
    ("describe show", "get info view inspect status cat"),
    ("delete remove clear abort", "rm del drop purge unset"),
    ("create add take", "new make put set save inject"),
    ("config", "configs settings set alter edit"),
    ("release", "continue let-go unhold"),
    ("advance", "forward move skip set"),
    ("restore", "load rollback"),
    ("txn", "transaction transactions tx"),
    ("serve", "start run server up"),
    ("fault", "faults rule rules"),
    ("clock", "time"),
    ("consume", "read tail cat"),
    ("produce", "write send publish"),
    ("group", "consumer-group consumer-groups"),
    ("node", "broker brokers cluster"),
    ("trace", "requests log logs"),
)
"""Words of our commands, each with words that users of other tools may type for it."""


class CommandGroup(click.Group):
    """A click group that lists each command with the whole first paragraph of its help, which click would cut at the
    terminal's width.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; ``help`` and ``help fault add`` work as well, because many users type them."""
        if args[:1] == ["help"] and not ctx.resilient_parsing:
            args = [*args[1:], "--help"]
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
        if not ctx.resilient_parsing and args[0] not in self.commands:
            meant = [
                each
                for ours, theirs in _SAME
                if args[0] in (*ours.split(), *theirs.split())
                for each in ours.split()
                if each in self.commands
            ]
            if meant:
                named = " or ".join(map(repr, dict.fromkeys(meant)))
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {named}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                paragraph = cleandoc(command.help or "").partition("\n\n")[0]
                rows.append((name, " ".join(paragraph.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class TakesNegative(click.Command):
    """A command that accepts ``-30s`` as its last argument, which click would parse as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, unit in pairwise(args):
            if _NUMBER.fullmatch(number) and unit in _UNITS:
                raise click.UsageError(f"{number} {unit}: a duration is one word: {number}{unit}", ctx)
        negative = [each for each in args if _NEGATIVE.fullmatch(each)]
        if negative and "--" not in args:
            args = [*(each for each in args if each not in negative), "--", *negative]
        return super().parse_args(ctx, args)
