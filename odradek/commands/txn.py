"""`odradek txn`: transactions, across all nodes."""

from __future__ import annotations

from dataclasses import asdict

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def txn() -> None:
    """List transactions with their states, and show the timeline of one."""


@txn.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the transactional ids of all coordinators with their states and partitions."""
    found = remote.transactions.list()
    if as_json:
        say_json([asdict(each) for each in found])
        return
    rows = [
        (
            each.transactional_id,
            each.state,
            f"{each.producer_id}/{each.producer_epoch}",
            each.coordinator,
            " ".join(each.partitions),
        )
        for each in found
    ]
    say_table(("ID", "STATE", "PRODUCER", "COORDINATOR", "PARTITIONS"), rows)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@as_json
@speaking
def timeline(remote: Remote, transactional_id: str, as_json: bool) -> None:
    """Show the timeline of a transactional id across all nodes: each state, partition, batch and marker."""
    found = remote.timeline(transactional_id)
    if as_json:
        say_json(found.timeline)
    else:
        say(found.text.rstrip("\n"))
