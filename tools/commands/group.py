"""`odradek group`: manage consumer groups and share groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from odradek.commands.common import Remote, speaking
from odradek.printable import clipped
from tools.client.cluster import Cluster
from tools.client.configs import GROUP
from tools.client.errors import ToolError, no_such
from tools.client.groups import (
    commit_offsets,
    delete_group,
    describe_group,
    fetch_offsets,
    is_share_group,
    list_groups,
    remove_members,
)
from tools.client.lag import lag_of
from tools.client.offsets import READ_UNCOMMITTED
from tools.client.rebalancing import rebalance_group
from tools.client.shares import alter_share_offsets
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    end_without,
    on_a_cluster,
    partition_name,
    say,
    say_done,
    say_json,
    say_table,
)
from tools.commands.configs import config_command
from tools.commands.consume import checked_offset, wanted_partitions
from tools.commands.shares import say_shares, share_partitions


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def group() -> None:
    """List, describe and delete consumer and share groups; show their lag, reset their offsets, rebalance them."""


group.add_command(config_command("group", GROUP))


@group.command("list")
@as_json
@on_a_cluster
def list_(cluster: Cluster, as_json: bool) -> None:
    """List the groups of all coordinators with their states.

    A node that does not respond within 2 s is reported on stderr, and the exit code is 1.
    """
    missing: list[str] = []
    found = list_groups(cluster, missing)
    if as_json:
        say_json([asdict(each) for each in found])
    else:
        rows = [
            (each.group_id, each.state, each.group_type, each.protocol_type, each.coordinator)
            for each in found
        ]
        say_table(("GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"), rows)
    end_without(missing)


@group.command()
@click.argument("name", metavar="GROUP")
@as_json
@on_a_cluster
def describe(cluster: Cluster, name: str, as_json: bool) -> None:
    """Show the members of a group, and the partitions assigned to each.

    Of a share group also the start offset and the lag of its partitions. If ODRADEK_CONTROL is set to the control port of
    the broker: also the records in flight, with the members that hold them.
    """
    found = describe_group(cluster, name)
    if found.state == "Dead":
        raise no_such("group", name)
    members: list[dict[str, Any]] = [
        {**asdict(each), "partitions": [f"{topic}-{index}" for topic, index in each.partitions]}
        for each in found.members
    ]
    shares = None if found.shares is None else share_partitions(cluster, name, found.shares)
    if as_json:
        of_share = {} if shares is None else {"epoch": found.epoch, "partitions": shares}
        described = {"group": name, "state": found.state, "assignor": found.assignor, **of_share}
        say_json({**described, "members": members})
        return
    say(f"{name}: {found.state}" + (f", assignor {found.assignor}" if found.assignor else ""))
    rows = [
        (
            each["member_id"],
            each["group_instance_id"],
            each["client_id"],
            each["client_host"],
            " ".join(each["partitions"]),
        )
        for each in members
    ]
    if rows:
        say_table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows)
    if shares:
        say_shares(shares)


@group.command()
@click.argument("name", metavar="GROUP")
@as_json
@on_a_cluster
def lag(cluster: Cluster, name: str, as_json: bool) -> None:
    """Show the lag of a group: committed, last stable and end offset of each partition.

    LAG counts up to the last stable offset, where read_committed consumers stop; OPEN are the offsets above it. COMMITTED is
    (pending) if an open transaction has a pending offset: consumers that start there wait for its end. Of a share group: the
    start offset of each partition, and the number of records that are neither acknowledged nor archived.
    """
    described = describe_group(cluster, name)
    if described.shares is not None:
        shares = share_partitions(cluster, name, described.shares)
        say_json(shares) if as_json else say_shares(shares)
        return
    found = lag_of(cluster, described)
    if not found:
        raise no_such("group", name, f"group {name} has no committed offsets")
    if as_json:
        say_json(found)
        return
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            _committed(each),
            each["last_stable_offset"],
            each["end_offset"],
            each["lag"],
            each["open"],
            each["client_id"] and clipped(each["client_id"]),
        )
        for each in found
    ]
    say_table(("PARTITION", "COMMITTED", "STABLE", "END", "LAG", "OPEN", "CLIENT"), rows)


def _committed(at: dict[str, Any]) -> str | None:
    """Text of the column COMMITTED: ``7``, ``7 (pending)``, ``(pending)``; None if nothing is committed or pending."""
    words = [f"{at['committed_offset']}"] * (at["committed_offset"] is not None) + ["(pending)"] * at[
        "pending"
    ]
    return " ".join(words) or None


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("where", metavar="[TOPIC/PARTITION]", required=False)
@click.option("-o", "--offset", type=click.IntRange(0), help="Show only this record of the partition.")
@as_json
@speaking
def timeline(remote: Remote, name: str, where: str | None, offset: int | None, as_json: bool) -> None:
    """Show the timeline of a share group, or of a partition in it: who acquired and acknowledged records, and their states.

    The command uses the control port: only Odradek has timelines. Members and requests are known as far as the trace was on.

    \b
    odradek trace --start
    odradek group timeline workers orders/0
    odradek group timeline workers orders/0 --offset 17
    """
    if offset is not None and where is None:
        raise click.UsageError("--offset needs a TOPIC/PARTITION")
    topic, partition = (None, None) if where is None else partition_name(where)
    found = remote.share_timeline(name, topic, partition, offset)
    if as_json:
        say_json(found.timeline)
    else:
        say(found.text.rstrip("\n"))


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topics", nargs=-1, metavar="[TOPIC[/PARTITION]]...")
@click.option("--to", "where", required=True, metavar="WHERE", help="beginning, end, an offset, -5, @TIME")
@click.option("--dry-run", is_flag=True, help="Show the offsets without committing them.")
@as_json
@on_a_cluster
def reset(
    cluster: Cluster, name: str, topics: tuple[str, ...], where: str, dry_run: bool, as_json: bool
) -> None:
    """Commit new offsets for a group without members; without topics, for all partitions with committed offsets.

    Of a share group: set the start offsets; without topics, of all partitions that the group knows.

    \b
    odradek group reset readers --to beginning --dry-run
    odradek group reset readers orders/0 --to @2026-11-23T12:00:00Z
    """
    shares = _shares_without_members(cluster, name)
    known = () if topics else fetch_offsets(cluster, name) if shares is None else shares
    partitions = wanted_partitions(cluster, topics) if topics else sorted(known)
    offsets = {each: checked_offset(cluster, *each, where, READ_UNCOMMITTED, "--to") for each in partitions}
    if not offsets:
        what = "committed offsets" if shares is None else "partitions"
        raise no_such("group", name, f"group {name} has no {what}: give topics")
    if not dry_run:
        commit = commit_offsets if shares is None else alter_share_offsets
        commit(cluster, name, offsets)
    if as_json:
        say_json(
            [{"topic": topic, "partition": index, "offset": at} for (topic, index), at in offsets.items()]
        )
    else:
        say_table(
            ("PARTITION", "OFFSET"), [(f"{topic}-{index}", at) for (topic, index), at in offsets.items()]
        )


def _shares_without_members(cluster: Cluster, name: str) -> Collection[tuple[str, int]] | None:
    """The partitions of a share group; None for groups of other types. Raises ``ToolError`` if it has members."""
    if not is_share_group(cluster, name):
        return None
    found = describe_group(cluster, name)
    if found.members:
        raise ToolError(f"group {name} has members: stop them first")
    return found.shares or ()


@group.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--timeout", type=float, default=30.0, show_default=True, metavar="SECONDS", help="Maximum time to wait."
)
@as_json
@on_a_cluster
def rebalance(cluster: Cluster, name: str, timeout: float, as_json: bool) -> None:
    """Make the members of a group rebalance: a temporary member joins, and leaves at once.

    A classic group begins to rebalance, and continues when its members join again. In a group of the consumer protocol the
    command returns when members have released partitions, which they get back. On Odradek, `odradek node move-coordinator
    --group` moves the group's coordinator instead.

    \b
    odradek group rebalance readers
    """
    members = rebalance_group(cluster, name, timeout)
    text = f"group {name} rebalances: {members} member{'s' * (members != 1)}"
    say_done(as_json, {"group": name, "members": members}, text)


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@click.option(
    "--with-members",
    is_flag=True,
    help="Remove the members first: clients that died remain members for a while.",
)
@as_json
@on_a_cluster
def delete(cluster: Cluster, names: tuple[str, ...], with_members: bool, as_json: bool) -> None:
    """Delete groups without members, with their offsets."""
    for name in names:
        if with_members:
            remove_members(cluster, name)
        delete_group(cluster, name)
    text = "\n".join(f"group {name} is deleted" for name in names)
    say_done(as_json, {"deleted": list(names)}, text)
