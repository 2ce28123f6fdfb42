"""`odradek node`: the nodes of the cluster."""

from __future__ import annotations

from dataclasses import asdict

import click

from odradek.commands.common import (
    HELP_NAMES,
    Remote,
    as_json,
    duration_text,
    places,
    say_done,
    say_json,
    say_table,
    speaking,
)
from odradek.commands.groups import CommandGroup, TakesNegative
from odradek.remote import Partition
from odradek.words import Damage


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def node() -> None:
    """List the nodes and their partitions; kill, stop and start nodes, set their clocks, misroute clients, move leaders."""


@node.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the nodes with their states and the partitions that they lead."""
    found = remote.nodes.show()
    if as_json:
        say_json(found)
        return
    rows = [
        (
            each["node_id"],
            each["state"]
            + ("" if each["misrouted_to"] is None else f", misrouted to {each['misrouted_to']}"),
            " ".join(listener["advertised"] for listener in each["listeners"]),
            _skew(each["skew_ms"]),
            each["connections"],
            places({topic: at for topic, at in each["leads"].items() if not topic.startswith("__")}),
        )
        for each in found
    ]
    say_table(("NODE", "STATE", "ADVERTISED", "SKEW", "CONNECTIONS", "LEADS"), rows)


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def kill(remote: Remote, node_id: int, as_json: bool) -> None:
    """Kill a node as kill -9 does: it resets its connections and writes nothing more."""
    remote.nodes[node_id].kill()
    _say_done(
        remote,
        node_id,
        as_json,
        f"node {node_id} is killed (to start it again: odradek node start {node_id})",
    )


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def stop(remote: Remote, node_id: int, as_json: bool) -> None:
    """Stop a node with a controlled shutdown: other nodes take over its leaderships first."""
    remote.nodes[node_id].stop()
    _say_done(
        remote,
        node_id,
        as_json,
        f"node {node_id} is stopped (to start it again: odradek node start {node_id})",
    )


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def start(remote: Remote, node_id: int, as_json: bool) -> None:
    """Start a node that was stopped or killed: it recovers its logs."""
    remote.nodes[node_id].start()
    _say_done(remote, node_id, as_json, f"node {node_id} is running")


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def pause(remote: Remote, node_id: int, as_json: bool) -> None:
    """Pause a node as SIGSTOP does: it reads and sends nothing, connections stay open."""
    remote.nodes[node_id].pause()
    _say_done(
        remote, node_id, as_json, f"node {node_id} is paused (to resume it: odradek node resume {node_id})"
    )


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def resume(remote: Remote, node_id: int, as_json: bool) -> None:
    """Resume a paused node: it handles the requests that clients sent in the meantime."""
    remote.nodes[node_id].resume()
    _say_done(remote, node_id, as_json, f"node {node_id} is running")


@node.command("lose-power")
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def lose_power(remote: Remote, node_id: int, as_json: bool) -> None:
    """Simulate a power failure of a node: it is killed, and its logs are truncated to what was flushed to disk (fsync)."""
    remote.nodes[node_id].lose_power()
    _say_done(
        remote,
        node_id,
        as_json,
        f"node {node_id} has lost its power (to start it again: odradek node start {node_id})",
    )


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.option("--offset", type=click.IntRange(min=0), required=True, help="An offset in the batch.")
@click.option(
    "--flip", "how", flag_value="flip", help="Change one byte of the batch, so that its CRC is wrong."
)
@click.option("--tear", "how", flag_value="tear", help="Truncate the file in the middle of the batch.")
@as_json
@speaking
def damage(
    remote: Remote, node_id: int, partition: str, offset: int, how: Damage | None, as_json: bool
) -> None:
    """Damage a batch in the files of a node that was stopped or killed.

    \b
    odradek node damage 2 orders/0 --offset 5 --flip
    """
    if how is None:
        raise click.UsageError("Missing option: --flip or --tear.")
    topic, index = _partition_of(partition)
    done = remote.nodes[node_id].damage(topic, index, offset=offset, how=how)
    offsets = f"{done['first_offset']}..{done['last_offset']}"
    text = f"{done['file']}: damaged the batch with offsets {offsets} at position {done['position']}"
    say_done(as_json, done, text)


@node.command(cls=TakesNegative)
@click.argument("node_id", type=int, metavar="ID")
@click.argument("by", metavar="DURATION")
@as_json
@speaking
def skew(remote: Remote, node_id: int, by: str, as_json: bool) -> None:
    """Set the clock of a node ahead of the others by a duration such as 5m; -30s sets it behind, 0 removes the skew."""
    remote.nodes[node_id].skew(by)
    view = remote.nodes[node_id].show()
    text = f"the clock of node {node_id} is {_skew(view['skew_ms']) or 'not skewed'}"
    say_done(as_json, view, text)


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@click.option(
    "--to",
    "to_node",
    type=int,
    required=True,
    metavar="ID",
    help="The node that clients reach at the address; ID itself ends the misroute.",
)
@as_json
@speaking
def misroute(remote: Remote, node_id: int, to_node: int, as_json: bool) -> None:
    """Misroute new connections of clients from a node's address to another node, or end that.

    Clients that connect to the address of node 2 reach node 1, as behind a wrong DNS entry, until the second command.

    \b
    odradek node misroute 2 --to 1
    odradek node misroute 2 --to 2
    """
    remote.nodes[node_id].misroute(to_node)
    if to_node == node_id:
        text = f"node {node_id} serves its connections again"
    else:
        text = (
            f"node {to_node} serves new connections to node {node_id} "
            f"(to end that: odradek node misroute {node_id} --to {node_id})"
        )
    _say_done(remote, node_id, as_json, text)


@node.command()
@click.argument("topic", required=False)
@click.option("--internal", is_flag=True, help="Include the internal topics of the coordinators.")
@as_json
@speaking
def partitions(remote: Remote, topic: str | None, internal: bool, as_json: bool) -> None:
    """List the partitions: leader, leader epoch, ISR, and the log end offset of each replica."""
    found = remote.partitions(topic, internal=internal)
    if as_json:
        say_json([asdict(each) for each in found])
        return
    rows = [
        (
            f"{each.topic}-{each.partition}",
            each.leader,
            each.leader_epoch,
            ",".join(map(str, each.isr)),
            each.high_watermark,
            each.last_stable_offset,
            "  ".join(
                f"{replica.node}:{replica.state if replica.log_end is None else replica.log_end}"
                for replica in each.replicas
            ),
        )
        for each in found
    ]
    say_table(("PARTITION", "LEADER", "EPOCH", "ISR", "HIGH WATERMARK", "LAST STABLE", "LOG ENDS"), rows)


@node.command()
@as_json
@speaking
def losses(remote: Remote, as_json: bool) -> None:
    """List committed, perhaps committed or acks=1 records that a replica had and the leader's log no longer contains."""
    found = remote.losses()
    if as_json:
        say_json([asdict(each) for each in found])
        return
    rows = [
        (
            f"{each.topic}-{each.partition}",
            f"{each.first_offset}-{each.last_offset}",
            each.records,
            f"{each.producer_id}/{each.producer_epoch}",
            each.acknowledged,
            ",".join(map(str, each.nodes)),
            f"{each.leader} in epoch {each.leader_epoch}",
        )
        for each in found
    ]
    say_table(("PARTITION", "OFFSETS", "RECORDS", "PRODUCER", "ACKNOWLEDGED", "WERE ON", "LEADER"), rows)


@node.command("move-leader")
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def move_leader(remote: Remote, partition: str, node_id: int, as_json: bool) -> None:
    """Move the leadership of a partition to another replica in the ISR.

    \b
    odradek node move-leader orders/0 2
    """
    topic, index = _partition_of(partition)
    _say_moved(remote.move_leader(topic, index, to=node_id), as_json)


@node.command("move-coordinator")
@click.option("--transactional-id", metavar="ID", help="Move the coordinator of this transactional id.")
@click.option("--group", help="Move the coordinator of this group.")
@click.argument("node_id", type=int, metavar="ID")
@as_json
@speaking
def move_coordinator(
    remote: Remote, node_id: int, transactional_id: str | None, group: str | None, as_json: bool
) -> None:
    """Move a transactional id or a group to another coordinator, with all ids or groups of the same partition.

    \b
    odradek node move-coordinator --transactional-id payments 2
    odradek node move-coordinator --group readers 3
    """
    moved = remote.move_coordinator(transactional_id=transactional_id, group=group, to=node_id)
    _say_moved(moved, as_json)


def _partition_of(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("/")
    if not topic or not index.isdecimal():
        raise click.UsageError(f"{text!r} is not TOPIC/PARTITION, such as orders/0.")
    return topic, int(index)


def _say_done(remote: Remote, node_id: int, as_json: bool, text: str) -> None:
    if as_json:
        say_json(remote.nodes[node_id].show())
    else:
        click.echo(text)


def _say_moved(moved: Partition, as_json: bool) -> None:
    text = f"node {moved.leader} leads {moved.topic}-{moved.partition} in leader epoch {moved.leader_epoch}"
    say_done(as_json, asdict(moved), text)


def _skew(skew_ms: int) -> str:
    """A clock's skew as text, such as ``5m ahead``; empty without skew."""
    if not skew_ms:
        return ""
    return f"{duration_text(abs(skew_ms))} {'ahead' if skew_ms > 0 else 'behind'}"
