"""`odradek txn`: show and end transactions, of all coordinators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from odradek.commands.common import Remote, speaking
from odradek.errors import TransactionNotReached
from odradek.nearest import did_you_mean
from odradek.pending import waiting_for
from odradek.printable import printable
from odradek.words import TransactionState
from tools.client.cluster import Cluster
from tools.client.hanging import Found, Open, find_hanging, hanging_of
from tools.client.transactions import Transaction, describe_transaction, list_transactions
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    end_without,
    on_a_cluster,
    say,
    say_json,
    say_table,
)
from tools.commands.txn_ends import abort, commit, hang
from tools.control import Ages
from tools.text import duration_text, time_text

HANGING: Final = "Hanging"
"""State, in the list only, of a transaction that is open in a partition although no coordinator will end it."""


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def txn() -> None:
    """List and describe transactions, find hanging ones, commit or abort one, leave one open."""


@txn.command("list")
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Ongoing, PrepareCommit, Empty, ..., Hanging.",
)
@as_json
@on_a_cluster
def list_(cluster: Cluster, states: tuple[str, ...], as_json: bool) -> None:
    """List the transactional ids of all coordinators with their states and partitions, and hanging transactions.

    A transaction that is open in a partition, although no coordinator will end it, has the state Hanging; below the table is
    the command that aborts it. A node that does not respond within 2 s is reported on stderr, and the exit code is 1.
    """
    wanted = [each for each in states if each != HANGING]
    missing: list[str] = []
    listed = list_transactions(cluster, wanted, missing=missing) if wanted or not states else []
    looked = find_hanging(cluster) if HANGING in states or not states else Found()
    if as_json:
        say_json([*map(_json, listed), *map(_hanging_json, looked.hanging)])
    else:
        _say_list(listed, looked, Ages(cluster))
    end_without(missing)


def _say_list(listed: list[Transaction], looked: Found, ages: Ages) -> None:
    rows: list[tuple[object, ...]] = [
        (
            each.transactional_id,
            each.state,
            f"{each.producer_id}/{each.producer_epoch}",
            each.coordinator,
            _age(each, ages),
            " ".join(f"{topic}-{index}" for topic, index in each.partitions),
        )
        for each in listed
    ]
    rows += [
        (_id(each), HANGING, _producer(each), each.known and each.known.coordinator, "", _place(each))
        for each in looked.hanging
    ]
    say_table(("ID", "STATE", "PRODUCER", "COORDINATOR", "OPEN FOR", "PARTITIONS"), rows)
    _say_aborts(looked)


@txn.command("find-hanging")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Search only this topic.")
@click.option(
    "-n", "--node", "node_id", type=int, metavar="ID", help="Search only partitions that this node leads."
)
@as_json
@on_a_cluster
def find_hanging_(cluster: Cluster, topics: tuple[str, ...], node_id: int | None, as_json: bool) -> None:
    """Find transactions that are open in a partition although no coordinator will end them.

    Consumers with read_committed stop at such a transaction permanently. The command that aborts it is printed; `txn commit`
    has the same options, and --dry-run shows the effect of both. Transactions that just begin or end are not reported.

    \b
    odradek txn find-hanging
    odradek txn find-hanging --topic orders --node 1
    """
    found = find_hanging(cluster, topics or None, node_id=node_id)
    if as_json:
        say_json({"hanging": [_hanging_json(each) for each in found.hanging], "unknown": found.unknown})
        return
    if found.hanging:
        rows = [
            (_place(each), _id(each), _producer(each), _written(each), each.why) for each in found.hanging
        ]
        say_table(("PARTITION", "ID", "PRODUCER", "LAST BATCH", "WHY"), rows)
    elif not found.unknown:
        say("no hanging transactions")
    _say_aborts(found)


def _say_aborts(found: Found) -> None:
    for each in found.hanging:
        say(f"to abort the one in {_place(each)}: {each.abort_command}")
    for sentence in found.unknown:
        click.echo(printable(sentence), err=True)


def _place(each: Open) -> str:
    return f"{each.topic}-{each.partition}@{each.start_offset}"


def _id(each: Open) -> str:
    return each.known.transactional_id if each.known else ""


def _producer(each: Open) -> str:
    return f"{each.producer_id}/{each.producer_epoch}"


def _written(each: Open) -> str:
    return time_text(each.last_timestamp_ms)


def _hanging_json(each: Open) -> dict[str, Any]:
    return {
        "transactional_id": each.known and each.known.transactional_id,
        "state": HANGING,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator": each.known and each.known.coordinator,
        "coordinator_state": each.known and each.known.state,
        "partitions": [f"{each.topic}-{each.partition}"],
        "start_offset": each.start_offset,
        "last_timestamp": each.last_timestamp_ms,
        "abort": each.abort_command,
    }


def _json(each: Transaction) -> dict[str, Any]:
    return {**asdict(each), "partitions": [f"{topic}-{index}" for topic, index in each.partitions]}


def _age(each: Transaction, ages: Ages) -> str:
    if each.start_ms is None:
        return ""
    open_ms = ages.open_ms(each)
    return f"begins in {duration_text(-open_ms)}" if open_ms < 0 else duration_text(open_ms)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@as_json
@on_a_cluster
def describe(cluster: Cluster, transactional_id: str, as_json: bool) -> None:
    """Show the state of a transactional id, how long its transaction is open, and hanging transactions of its producer."""
    found = describe_transaction(cluster, transactional_id)
    hanging = [] if found.is_open else hanging_of(cluster, found.producer_id)
    if as_json:
        say_json({**_json(found), "hanging": [_place(each) for each in hanging]})
        return
    say(f"{found.transactional_id}: {found.state}")
    say(
        f"  producer {found.producer_id} epoch {found.producer_epoch}, coordinated by node {found.coordinator}"
    )
    if found.start_ms is not None:
        ages = Ages(cluster)
        ends = found.timeout_ms - ages.open_ms(found)
        when = f"times out in {duration_text(ends)}" if ends > 0 else f"timed out {duration_text(-ends)} ago"
        age = ages.future(found) or f"for {_age(found, ages)}"
        say(f"  open since {time_text(found.start_ms)}, {age}; {when}")
    say(f"  transaction.timeout.ms {found.timeout_ms}")
    for topic, index in found.partitions:
        say(f"  {topic}-{index}")
    for each in hanging:
        say(f"  {each.sentence}")


def _near_id(remote: Remote, transactional_id: str) -> str:
    """Suggestion to append to an error about an unknown transactional id: the most similar existing id."""
    known = [each.transactional_id for each in remote.transactions]
    return "" if transactional_id in known else did_you_mean(transactional_id, known)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@as_json
@speaking
def timeline(remote: Remote, transactional_id: str, as_json: bool) -> None:
    """Show the timeline of a transactional id across all nodes: each state, partition, batch and marker.

    The command uses the control port: only Odradek has timelines.
    """
    found = remote.timeline(transactional_id)
    if as_json:
        say_json(found.timeline)
    else:
        say(found.text.rstrip("\n"))


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.argument("states", metavar="[STATE]...", nargs=-1)
@click.option(
    "--timeout", type=float, default=10.0, show_default=True, metavar="SECONDS", help="Maximum time to wait."
)
@as_json
@speaking
def wait(
    remote: Remote, transactional_id: str, states: tuple[TransactionState, ...], timeout: float, as_json: bool
) -> None:
    """Wait until a transactional id is in one of these states; the default is CompleteCommit.

    The command uses the control port. The exit code is 1 after the timeout.

    \b
    odradek txn wait etl-1
    odradek txn wait etl-1 PrepareCommit PrepareAbort --timeout 30
    """
    wanted = states or ("CompleteCommit",)
    try:
        with waiting_for(f"{transactional_id} is not in {' or '.join(wanted)} yet"):
            found = remote.transactions.wait(transactional_id, wanted, timeout)
    except TransactionNotReached as error:
        # For an id that no coordinator knows, the error already contains the suggestion.
        near = "" if "did you mean" in str(error) else _near_id(remote, transactional_id)
        raise click.ClickException(f"{error}{near}") from None
    if as_json:
        say_json(asdict(found))
    else:
        say(f"{found.transactional_id}: {found.state}")


for _command in (abort, commit, hang):
    txn.add_command(_command)
