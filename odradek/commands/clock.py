"""`odradek clock`: the broker's clock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, duration_text, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup, TakesNegative
from odradek.commands.waiting import LOOK_S
from odradek.errors import OdradekError
from odradek.pending import pending_now

PROGRESS_S: Final = 1.0
"""Interval between two queries of an advance in progress, in seconds."""


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def clock() -> None:
    """Show the broker's clock, and advance it."""


@clock.command()
@as_json
@speaking
def show(remote: Remote, as_json: bool) -> None:
    """Show the broker's time, and how far each domain is ahead of real time."""
    _say(remote.clock.show(), remote, as_json)


@clock.command(cls=TakesNegative)
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
    """Advance the clock by a duration such as 7d, 36h or 1h30m; timers that become due fire in order.

    \b
    odradek clock advance 7d
    odradek clock advance 36h --only groups,retention

    Ctrl-C cancels the advance, and so does `odradek clock cancel`. The clock then stays at the time it has reached.
    """
    domains: list[Any] = [name for each in only for name in each.split(",") if name]
    if by.startswith("-"):
        raise click.UsageError(
            f"{by}: the clock can only be advanced; `odradek node skew ID {by}` sets the clock of one node behind the others"
        )
    with _progress(remote):
        remote.clock.advance(by, domains)
    _say(remote.clock.show(), remote, as_json)


@clock.command()
@as_json
@speaking
def cancel(remote: Remote, as_json: bool) -> None:
    """Cancel the advance in progress; the clock stays at the time it has reached."""
    remote.clock.cancel()
    _say(remote.clock.show(), remote, as_json)


@contextmanager
def _progress(remote: Remote) -> Iterator[None]:
    """Show the progress of a long advance.

    The progress is a status line if stderr is a terminal, otherwise a part of the notices that a waiting command
    prints.
    """

    def progress() -> str | None:
        return _progress_text(remote.client.get("/v1/clock", timeout_s=LOOK_S)["advance"])

    pending = pending_now()
    assert pending is not None
    pending.progress = progress
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    pending.is_muted = True
    ended = threading.Event()

    def look() -> None:
        end = ""
        while not ended.wait(PROGRESS_S):
            with suppress(OdradekError):
                text = progress()
                if text is not None:
                    click.echo(f"\r{text} ", err=True, nl=False)
                    end = "\n"
        click.echo(end, err=True, nl=False)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _progress_text(advance: dict[str, Any] | None) -> str | None:
    """The progress as text; None if no advance is in progress."""
    if advance is None:
        return None
    return f"advanced by {duration_text(advance['moved_ms']) or '0s'} of {duration_text(advance['by_ms'])}"


def _say(view: dict[str, Any], remote: Remote, as_json: bool) -> None:
    if as_json:
        say_json(view)
        return
    click.echo(f"now {remote.clock.now:%Y-%m-%d %H:%M:%S} UTC")
    under_way = _progress_text(view["advance"])
    if under_way is not None:
        click.echo(under_way)
    rows = [
        (domain, duration_text(ahead_ms), _next(view["next_timer_ms"].get(domain)))
        for domain, ahead_ms in view["ahead_ms"].items()
    ]
    say_table(("DOMAIN", "AHEAD", "NEXT TIMER"), rows)


def _next(in_ms: int | None) -> str | None:
    return None if in_ms is None else f"in {duration_text(in_ms) or '0s'}"
