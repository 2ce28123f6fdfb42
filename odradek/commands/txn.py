"""`odradek txn`: transactions, across all nodes."""

from __future__ import annotations

from dataclasses import asdict

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say, say_json, say_table, speaking


@click.group(context_settings=HELP_NAMES)
def txn() -> None:
    """Show transactions: what state they are in, and how they got there."""


@txn.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List every transactional id that a coordinator knows."""
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
    """Show a transaction's life across all nodes: each state, partition, batch and marker."""
    found = remote.timeline(transactional_id)
    if as_json:
        say_json(found.timeline)
    else:
        say(found.text.rstrip("\n"))
