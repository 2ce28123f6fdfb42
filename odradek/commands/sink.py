"""`odradek spark sink`: show the state of an exactly-once sink, and end the transactions of a stopped query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.commands.common import (
    HELP_NAMES,
    NOT_FOUND,
    UNREACHABLE,
    as_json,
    places,
    say,
    say_json,
    say_table,
)
from odradek.commands.groups import CommandGroup
from odradek.commands.waiting import telling_waits
from odradek.errors import OdradekError
from odradek.pending import waiting_for
from odradek.printable import printable, printable_lines

if TYPE_CHECKING:
    from odradek.spark.sink import Decision, SinkTransaction

# A decision takes milliseconds, so this command need not wait as long as a query.
_PATIENCE_MS = "10000"

_F = TypeVar("_F", bound=Callable[..., Any])


class _Unreachable(click.ClickException):
    exit_code = UNREACHABLE


class _NotFound(click.ClickException):
    exit_code = NOT_FOUND


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def sink() -> None:
    """Show an exactly-once sink, and end the transactions that a stopped query left open."""


def _of_a_sink(function: _F) -> _F:
    """Decorator for a command about the sink NAME. The function gets the query's options as a dict, and ``as_json``."""

    @click.argument("name")
    @click.option(
        "--bootstrap", metavar="HOST:PORT", required=True, help="The Kafka cluster that the sink writes to."
    )
    @click.option(
        "--option",
        "-o",
        "more",
        metavar="NAME=VALUE",
        multiple=True,
        help="Another option of the query: kafka.security.protocol=SSL, decisionTopic=...",
    )
    @as_json
    @wraps(function)
    def call(name: str, bootstrap: str, more: Sequence[str], as_json: bool) -> Any:
        from odradek.spark.wire import Retriable

        options = {"kafka.delivery.timeout.ms": _PATIENCE_MS, "kafka.max.block.ms": _PATIENCE_MS}
        for each in more:
            key, sign, value = each.partition("=")
            if not sign:
                raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--option")
            options[key] = value
        step = waiting_for(f"no response about the state of the sink from {bootstrap} yet")
        try:
            with telling_waits(), step:
                return function({**options, "kafka.bootstrap.servers": bootstrap, "name": name}, as_json)
        except OdradekError as error:
            raise (_Unreachable if isinstance(error, Retriable) else click.ClickException)(
                printable_lines(str(error))
            ) from None

    return call  # type: ignore[return-value]


@sink.command()
@_of_a_sink
def status(options: dict[str, str], as_json: bool) -> None:
    """Show the last decision of the sink NAME, its partially committed batch if there is one, and its open transactions."""
    from odradek.spark.sink import status as status_of

    found = status_of(options)
    if as_json:
        say_json(_plain(asdict(found)))
    elif found.decision is None and not found.deciding and not found.others:
        raise _unknown(found.name)
    else:
        if found.deciding:
            click.echo("A driver's transaction is open: the decision record can be read when it ends.")
        if found.decision is not None:
            _say_decision(found.decision)
        half = [each for each in found.half_committed if each.state != "expired"]
        expired = [each for each in found.half_committed if each.state == "expired"]
        if half:
            click.echo("Transactions of that batch that are not committed, so consumers see a part of it:")
            _say_transactions(half)
        if expired:
            click.echo("Transactions of that batch whose ids have expired, so their outcome is unknown:")
            _say_transactions(expired)
        if found.others:
            click.echo(
                "Open transactions that belong to no decision; read_committed consumers stop in front of them:"
            )
            _say_transactions(found.others)


@sink.command()
@_of_a_sink
def resolve(options: dict[str, str], as_json: bool) -> None:
    """End the transactions that a stopped query left open: commit those of a decided batch, abort the others.

    If a query still runs under this NAME, resolve fences it; when you start the query again, it writes its batch again.
    """
    from odradek.spark.sink import resolve as resolve_it

    done = resolve_it(options)
    if done is None:
        raise _unknown(options["name"])
    if as_json:
        say_json(_plain(asdict(done)))
        return
    _say_decision(done.decision)
    if done.aborted:
        click.echo("Aborted:")
        _say_transactions(done.aborted)
    if done.lost:
        click.echo("Transactions of the decided batch that were aborted, so consumers see a part of it:")
        _say_transactions(done.lost)
    if done.still_open:
        click.echo("Transactions that could not be aborted; another resolve, or their timeout, ends them:")
        _say_transactions(done.still_open)
    if not done.aborted and not done.lost and not done.still_open:
        click.echo("No transaction is open.")


def _unknown(name: str) -> click.ClickException:
    return _NotFound(f"No sink of the name {printable(name)} has ever planned a batch.")


def _say_decision(decision: Decision) -> None:
    if decision.decided_at is None:
        say(f"{decision.name}: no batch is decided yet")
        return
    say(
        f"{decision.name}: batch {decision.batch} was decided at {_seconds(decision.decided_at)} by plan "
        f"{decision.decision} of query {decision.query_id}, {decision.rows} rows"
    )


def _say_transactions(transactions: Sequence[SinkTransaction]) -> None:
    rows = []
    for each in transactions:
        by_topic: dict[str, list[int]] = {}
        for topic, index in each.partitions:
            by_topic.setdefault(topic, []).append(index)
        rows.append(
            (each.transactional_id, each.state, each.since and _seconds(each.since), places(by_topic))
        )
    say_table(("ID", "STATE", "SINCE", "PARTITIONS"), rows)


def _seconds(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return _seconds(value) if isinstance(value, datetime) else value
