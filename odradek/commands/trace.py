"""`odradek trace`: every request and its response."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.commands.common import HELP_NAMES, Remote, json_option, say, say_json, speaking
from odradek.pending import from_first
from odradek.remote import ENTRIES_MAX

_F = TypeVar("_F", bound=Callable[..., Any])

_FILTERS = (
    ("--api", "Only requests of this API: EndTxn, Produce, …"),
    ("--node", "Only requests to this node."),
    ("--connection", "Only requests on the connection with this number."),
    ("--client-id", "Only requests with this client id."),
    ("--transactional-id", "Only requests about this transactional id."),
    ("--producer-id", "Only requests about this producer id."),
    (
        "--outcome",
        "Only requests with this outcome: answered, unanswered, answer_lost, connection_gone, held or in_progress.",
    ),
)


def _filters(function: _F) -> _F:
    for name, text in reversed(_FILTERS):
        function = click.option(name, help=text)(function)
    return function


class _HasOrders(click.Command):
    """A command whose actions are options, such as --start; it suggests the option if the user types the plain word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for each in args[:1]:
            if each in ("start", "stop", "follow", "pcap"):
                raise click.UsageError(f"{each} is not an argument. Did you mean --{each}?", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_HasOrders, context_settings=HELP_NAMES)
@click.option("--start", "order", flag_value="start", help="Start recording requests.")
@click.option("--stop", "order", flag_value="stop", help="Stop recording requests.")
@click.option(
    "--follow", "-f", is_flag=True, help="Print each request with its response as it ends, until Ctrl-C."
)
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the trace as a capture file for Wireshark.",
)
@click.option(
    "--limit", type=click.IntRange(1, ENTRIES_MAX), help="Show at most the latest N.  [default: 1000]"
)
@json_option("Print JSON lines with the complete requests and responses.")
@_filters
@speaking
def trace(
    remote: Remote,
    order: str | None,
    follow: bool,
    pcap: Path | None,
    limit: int | None,
    as_json: bool,
    **filters: str | None,
) -> None:
    """Show the requests that clients made, and the responses.

    --follow starts the trace if it is off, and then stops it again at the end.

    \b
    odradek trace --start
    odradek trace --api EndTxn --transactional-id payments
    odradek trace --follow
    """
    if order is not None:
        getattr(remote.trace, order)()
    if follow:
        _follow(remote, as_json, filters)
    elif pcap is not None:
        remote.trace.pcap(pcap, **filters)
        click.echo(f"{pcap} is written")
    elif order is None:
        _show(remote, as_json, {**filters, "limit": limit})
    if order is not None and not follow and pcap is None:
        click.echo(f"the trace is {'on' if remote.trace.status['running'] else 'off'}")


def _show(remote: Remote, as_json: bool, query: dict[str, Any]) -> None:
    found = remote.trace.entries(bodies=as_json, **query)
    for each in found:
        _say(each, as_json)
    if not found and not as_json and not remote.trace.status["running"]:
        click.echo("the trace is off (to start it: odradek trace --start)", err=True)


def _follow(remote: Remote, as_json: bool, filters: dict[str, str | None]) -> None:
    try:
        with remote.trace, remote.trace.follow(bodies=as_json, **filters) as lines:
            for each in from_first(lines, "no request has ended yet"):
                _say(each, as_json)
    except KeyboardInterrupt:
        return


def _say(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(told)
    elif "missed" in told:
        click.echo(
            f"({told['missed']} exchanges are missing: they came faster than they could be shown)", err=True
        )
    else:
        say(told["line"])
