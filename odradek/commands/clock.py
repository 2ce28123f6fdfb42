"""`odradek clock`: the broker's clock."""

from __future__ import annotations

from typing import Any

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, duration_text, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def clock() -> None:
    """Show the broker's clock, and advance it."""


@clock.command()
@as_json
@speaking
def show(remote: Remote, as_json: bool) -> None:
    """Show the broker's time, and how far each domain is ahead of real time."""
    _say(remote.clock.show(), remote, as_json)


@clock.command()
@click.argument("by", metavar="DURATION")
@click.option(
    "--only",
    multiple=True,
    metavar="DOMAIN",
    help="The domains to advance: transactions, ids, retention, groups, credentials, producers, connections, "
    "requests, replication, or all. "
    "Separate several with commas, or repeat the option.  [default: transactions and ids]",
)
@as_json
@speaking
def advance(remote: Remote, by: str, only: tuple[str, ...], as_json: bool) -> None:
    """Advance the clock by a duration such as 7d, 36h or 1h30m; timers that fall due fire in their order.

    \b
    odradek clock advance 7d
    odradek clock advance 36h --only groups,retention
    """
    remote.clock.advance(by, [name for each in only for name in each.split(",") if name])
    _say(remote.clock.show(), remote, as_json)


def _say(view: dict[str, Any], remote: Remote, as_json: bool) -> None:
    if as_json:
        say_json(view)
        return
    click.echo(f"now {remote.clock.now:%Y-%m-%d %H:%M:%S} UTC")
    rows = [
        (domain, duration_text(ahead_ms), _next(view["next_timer_ms"].get(domain)))
        for domain, ahead_ms in view["ahead_ms"].items()
    ]
    say_table(("DOMAIN", "AHEAD", "NEXT TIMER"), rows)


def _next(in_ms: int | None) -> str | None:
    return None if in_ms is None else f"in {duration_text(in_ms) or '0s'}"
