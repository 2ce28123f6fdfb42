"""`odradek snapshot`: snapshot the state of a running broker, and restore it."""

from __future__ import annotations

from typing import Any

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say_done, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def snapshot() -> None:
    """Snapshot the state of a running broker, and restore it."""


@snapshot.command()
@as_json
@speaking
def take(remote: Remote, as_json: bool) -> None:
    """Take a snapshot of all nodes at one instant; clients are not affected."""
    found = remote.client.post("/v1/snapshots")
    text = f"snapshot {found['id']} is taken (to restore it: odradek snapshot restore {found['id']})"
    say_done(as_json, found, text)


@snapshot.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the snapshots of the broker; they end with the broker."""
    found: list[dict[str, Any]] = remote.client.get("/v1/snapshots")["snapshots"]
    if as_json:
        say_json(found)
    else:
        say_table(
            ("ID", "TOPICS", "DIRECTORY"),
            [(each["id"], " ".join(each["topics"]), each["directory"]) for each in found],
        )


@snapshot.command()
@click.argument("snapshot_id", type=int, metavar="ID")
@as_json
@speaking
def restore(remote: Remote, snapshot_id: int, as_json: bool) -> None:
    """Restore a snapshot: later changes are lost, and all connections are reset."""
    found = remote.client.post(f"/v1/snapshots/{snapshot_id}/restore")
    say_done(as_json, found, f"snapshot {snapshot_id} is restored")


@snapshot.command()
@click.argument("snapshot_id", type=int, metavar="ID")
@as_json
@speaking
def remove(remote: Remote, snapshot_id: int, as_json: bool) -> None:
    """Remove a snapshot and its files."""
    remote.client.delete(f"/v1/snapshots/{snapshot_id}")
    say_done(as_json, {"removed": snapshot_id}, f"snapshot {snapshot_id} is removed")
