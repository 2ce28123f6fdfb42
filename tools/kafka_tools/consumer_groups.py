"""The tool `kafka-consumer-groups.sh`."""

from __future__ import annotations

import click

from protocol.errors import ErrorCode
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError, ToolError
from tools.client.groups import (
    commit_offsets,
    delete_group,
    describe_group,
    fetch_offsets,
    list_groups,
)
from tools.client.offsets import LATEST, READ_UNCOMMITTED, list_offset
from tools.commands.common import say_table
from tools.commands.consume import start_offset, wanted_partitions
from tools.kafka_tools.common import HELP, kafka_command, one_of

_HEADINGS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


@click.command(context_settings=HELP)
@click.option("--list", "list_", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--reset-offsets", is_flag=True)
@click.option("--group", "groups", multiple=True)
@click.option("--all-groups", is_flag=True)
@click.option(
    "--state", is_flag=False, flag_value="", help="With --describe: the state; with --list: the states."
)
@click.option("--members", is_flag=True)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITION,...]")
@click.option("--all-topics", is_flag=True)
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-offset", type=int)
@click.option("--shift-by", type=int)
@click.option("--to-datetime", metavar="TIME")
@click.option("--execute", is_flag=True)
@click.option("--dry-run", is_flag=True)
@click.option("--timeout", type=int, hidden=True)
@kafka_command
def command(
    cluster: Cluster,
    list_: bool,
    describe: bool,
    delete: bool,
    reset_offsets: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    state: str | None,
    members: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    execute: bool,
    dry_run: bool,
    timeout: int | None,
) -> None:
    """List groups, describe and delete them, reset their offsets."""
    action = one_of(list=list_, describe=describe, delete=delete, reset_offsets=reset_offsets)
    names = [each.group_id for each in list_groups(cluster)] if all_groups else list(groups)
    if action == "list":
        _list(cluster, state)
        return
    if not names:
        if all_groups:
            return
        raise click.UsageError(f"--{action.replace('_', '-')} needs --group or --all-groups")
    for name in names:
        if action == "describe":
            _describe(cluster, name, state is not None, members)
        elif action == "delete":
            delete_group(cluster, name)
            click.echo(f"Deletion of requested consumer groups ('{name}') was successful.")
        else:
            where = _where(to_earliest, to_latest, to_offset, to_datetime)
            _reset(cluster, name, topics, all_topics, where, shift_by, execute)


def _list(cluster: Cluster, state: str | None) -> None:
    wanted = {each.strip().lower() for each in state.split(",")} if state else set()
    found = [each for each in list_groups(cluster) if not wanted or each.state.lower() in wanted]
    if state is None:
        for each in found:
            click.echo(each.group_id)
    else:
        say_table(("GROUP", "STATE"), [(each.group_id, each.state) for each in found])


def _describe(cluster: Cluster, name: str, state: bool, members: bool) -> None:
    found = describe_group(cluster, name)
    if found.state == "Dead":
        raise ToolError(f"Consumer group '{name}' does not exist.")
    if state:
        row = (name, cluster.coordinator(0, name), found.assignor, found.state, len(found.members))
        say_table(("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"), [row])
        return
    if not found.members:
        click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
    if members:
        rows = [
            (name, each.member_id, each.client_host, each.client_id, len(each.partitions))
            for each in found.members
        ]
        say_table(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"), rows)
        return
    owners, offsets = found.owners, fetch_offsets(cluster, name)
    table = []
    for topic, index in sorted({*offsets, *owners}):
        owner, current = owners.get((topic, index)), offsets.get((topic, index))
        end = list_offset(cluster, topic, index, LATEST)
        lag = None if current is None else max(0, end - current)
        who = (owner.member_id, owner.client_host, owner.client_id) if owner else (None, None, None)
        table.append((name, topic, index, current, end, lag, *who))
    if table:
        say_table(_HEADINGS, table)


def _where(earliest: bool, latest: bool, offset: int | None, moment: str | None) -> str | None:
    if earliest or latest:
        return "beginning" if earliest else "end"
    if offset is not None:
        return str(offset)
    return None if moment is None else f"@{moment}"


def _reset(
    cluster: Cluster,
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    where: str | None,
    shift_by: int | None,
    execute: bool,
) -> None:
    current = fetch_offsets(cluster, name)
    partitions = sorted(current) if all_topics else _partitions(cluster, topics)
    if not partitions:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if where is None and shift_by is None:
        raise click.UsageError(
            "One of the reset scenarios should be defined: --to-earliest, --to-latest, --to-offset, ..."
        )
    offsets = {}
    for topic, index in partitions:
        begin = start_offset(cluster, topic, index, "beginning", READ_UNCOMMITTED)
        end = start_offset(cluster, topic, index, "end", READ_UNCOMMITTED)
        if where is None:
            assert shift_by is not None
            target = current.get((topic, index), begin) + shift_by
        else:
            target = start_offset(cluster, topic, index, where, READ_UNCOMMITTED)
        offsets[topic, index] = min(max(target, begin), end)
    if execute:
        try:
            commit_offsets(cluster, name, offsets)
        except KafkaError as error:
            if error.code != ErrorCode.unknown_member_id:
                raise
            raise ToolError(
                f"Assignments can only be reset if the group '{name}' is inactive, but it has members."
            ) from None
    rows = [(name, topic, index, offset) for (topic, index), offset in offsets.items()]
    say_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


def _partitions(cluster: Cluster, topics: tuple[str, ...]) -> list[tuple[str, int]]:
    """Parse ``orders`` (all partitions) or ``orders:0,2``."""
    found: list[tuple[str, int]] = []
    for text in topics:
        name, colon, indexes = text.partition(":")
        found += (
            [(name, int(index)) for index in indexes.split(",")]
            if colon
            else wanted_partitions(cluster, [name])
        )
    return found
