"""`odradek txn`: transactions, of all coordinators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from odradek.commands.common import Remote, speaking
from odradek.errors import TransactionNotReached
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.producing import Producer
from tools.client.transactions import (
    Transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
    write_abort_marker,
)
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    on_a_cluster,
    partition_name,
    say,
    say_done,
    say_json,
    say_table,
)
from tools.commands.produce import send_all
from tools.control import Ages
from tools.text import duration_text, time_text


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def txn() -> None:
    """List and describe transactions, show the timeline of one, abort one, leave one open."""


@txn.command("list")
@click.option(
    "-s", "--state", "states", multiple=True, metavar="STATE", help="Ongoing, PrepareCommit, Empty, ..."
)
@as_json
@on_a_cluster
def list_(cluster: Cluster, states: tuple[str, ...], as_json: bool) -> None:
    """List the transactional ids of all coordinators with their states and partitions."""
    found = list_transactions(cluster, states)
    if as_json:
        say_json([_json(each) for each in found])
        return
    ages = Ages(cluster)
    rows = [
        (
            each.transactional_id,
            each.state,
            f"{each.producer_id}/{each.producer_epoch}",
            each.coordinator,
            _age(each, ages),
            " ".join(f"{topic}-{index}" for topic, index in each.partitions),
        )
        for each in found
    ]
    say_table(("ID", "STATE", "PRODUCER", "COORDINATOR", "OPEN FOR", "PARTITIONS"), rows)


def _json(each: Transaction) -> dict[str, Any]:
    return {**asdict(each), "partitions": [f"{topic}-{index}" for topic, index in each.partitions]}


def _age(each: Transaction, ages: Ages) -> str:
    return "" if each.start_ms is None else duration_text(ages.open_ms(each))


@txn.command()
@click.argument("transactional_id", metavar="ID")
@as_json
@on_a_cluster
def describe(cluster: Cluster, transactional_id: str, as_json: bool) -> None:
    """Show the state of a transactional id, and since when its transaction is open."""
    found = describe_transaction(cluster, transactional_id)
    if as_json:
        say_json(_json(found))
        return
    say(f"{found.transactional_id}: {found.state}")
    say(
        f"  producer {found.producer_id} epoch {found.producer_epoch}, coordinated by node {found.coordinator}"
    )
    if found.start_ms is not None:
        ages = Ages(cluster)
        ends = found.timeout_ms - ages.open_ms(found)
        when = f"times out in {duration_text(ends)}" if ends > 0 else f"timed out {duration_text(-ends)} ago"
        say(f"  open since {time_text(found.start_ms)}, for {_age(found, ages)}; {when}")
    say(f"  transaction.timeout.ms {found.timeout_ms}")
    for topic, index in found.partitions:
        say(f"  {topic}-{index}")


@txn.command()
@click.argument("transactional_id", metavar="ID")
@as_json
@speaking
def timeline(remote: Remote, transactional_id: str, as_json: bool) -> None:
    """Show the timeline of a transactional id across all nodes: each state, partition, batch and marker.

    It asks the control port: only Odradek has timelines.
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
    "--timeout", type=float, default=10.0, show_default=True, metavar="SECONDS", help="How long, at most."
)
@as_json
@speaking
def wait(
    remote: Remote, transactional_id: str, states: tuple[str, ...], timeout: float, as_json: bool
) -> None:
    """Wait until a transactional id is in one of these states; without any, in CompleteCommit.

    It asks the control port. Exit code 1 after the timeout.

    \b
    odradek txn wait etl-1
    odradek txn wait etl-1 PrepareCommit PrepareAbort --timeout 30
    """
    try:
        found = remote.transactions.wait(transactional_id, states or ("CompleteCommit",), timeout)
    except TransactionNotReached as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        say_json(asdict(found))
    else:
        say(f"{found.transactional_id}: {found.state}")


@txn.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option(
    "--partition",
    "where",
    metavar="TOPIC/PARTITION",
    help="Abort the open transaction that begins at --start-offset here, without its coordinator: for hanging transactions.",
)
@click.option(
    "--start-offset", type=int, help="The first offset of that transaction; `odradek explain` prints it."
)
@as_json
@on_a_cluster
def abort(
    cluster: Cluster,
    transactional_id: str | None,
    where: str | None,
    start_offset: int | None,
    as_json: bool,
) -> None:
    """Abort the open transaction of ID, and fence its producer (as Kafka's Admin.fenceProducers).

    With --partition and --start-offset: write an ABORT marker there (as kafka-transactions.sh abort).

    \b
    odradek txn abort etl-1
    odradek txn abort --partition orders/0 --start-offset 6
    """
    if where is not None and start_offset is not None:
        view, text = _abort_hanging(cluster, *partition_name(where), start_offset)
    elif transactional_id is not None and where is None and start_offset is None:
        # InitProducerId would create an id that does not exist.
        found = describe_transaction(cluster, transactional_id)
        producer = Producer(cluster, transactional_id)
        producer.init()
        done = "aborted" if found.is_open else "no transaction was open"
        view = {"transactional_id": transactional_id, "was_open": found.is_open, **_producer(producer)}
        text = f"{transactional_id}: {done}; producer {producer.producer_id} has epoch {producer.producer_epoch} now"
    else:
        raise click.UsageError("give an ID, or --partition with --start-offset")
    say_done(as_json, view, text)


def _producer(producer: Producer) -> dict[str, Any]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def _abort_hanging(
    cluster: Cluster, topic: str, partition: int, start_offset: int
) -> tuple[dict[str, Any], str]:
    """What was done, for programs and for people."""
    for each in describe_producers(cluster, topic, partition):
        if each.current_txn_start_offset == start_offset:
            write_abort_marker(
                cluster, [(topic, partition)], each.producer_id, each.producer_epoch, each.coordinator_epoch
            )
            view = {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
            }
            at = f"the transaction of producer {each.producer_id} at offset {start_offset}"
            return view, f"{topic}-{partition}: {at} is aborted"
    raise ToolError(f"{topic}-{partition}: no open transaction begins at offset {start_offset}")


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.argument("topic", metavar="TOPIC")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-p", "--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--timeout-ms", default=60_000, show_default=True, help="transaction.timeout.ms of the transaction."
)
@as_json
@on_a_cluster
def hang(
    cluster: Cluster,
    transactional_id: str,
    topic: str,
    values: tuple[str, ...],
    partition: int,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Begin a transaction, write to TOPIC and leave: readers with read_committed stop there.

    The coordinator aborts it after its time-out; `odradek txn abort ID` does so now.

    \b
    odradek txn hang etl-1 orders --timeout-ms 600000
    """
    producer = Producer(cluster, transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init()
    records = [(None, value.encode()) for value in values or ("left open",)]
    send_all(producer, topic, records, partition)
    view = {
        "transactional_id": transactional_id,
        "topic": topic,
        "partition": partition,
        **_producer(producer),
    }
    who = f"producer {producer.producer_id} epoch {producer.producer_epoch}"
    say_done(as_json, view, f"{transactional_id} is open in {topic}-{partition}: {who}")
