"""`odradek snapshot`: keep the state of a running broker, and bring it back."""

from __future__ import annotations

from typing import Any

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, say_done, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def snapshot() -> None:
    """Keep the state of a running broker, and bring it back."""


@snapshot.command()
@as_json
@speaking
def take(remote: Remote, as_json: bool) -> None:
    """Take a snapshot of all nodes at one instant; clients notice nothing."""
    found = remote.client.post("/v1/snapshots")
    text = f"snapshot {found['id']} is taken: odradek snapshot restore {found['id']} brings it back"
    say_done(as_json, found, text)


@snapshot.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the snapshots, which are gone when the broker ends."""
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
    """Bring the broker back to a snapshot: what came after it is gone, and all connections are reset."""
    found = remote.client.post(f"/v1/snapshots/{snapshot_id}/restore")
    say_done(as_json, found, f"the broker is as in snapshot {snapshot_id}")


@snapshot.command()
@click.argument("snapshot_id", type=int, metavar="ID")
@as_json
@speaking
def remove(remote: Remote, snapshot_id: int, as_json: bool) -> None:
    """Remove a snapshot and its files."""
    remote.client.delete(f"/v1/snapshots/{snapshot_id}")
    say_done(as_json, {"removed": snapshot_id}, f"snapshot {snapshot_id} is removed")
