"""`odradek txn abort`, `commit` and `hang`: end transactions as an operator, or leave one open."""

from __future__ import annotations

from typing import Any

import click

from protocol.messages.describe_producers import ProducerState
from tools.client.cluster import Cluster
from tools.client.ending import SAMPLE, Ending, ending_of, open_transaction
from tools.client.errors import ToolError
from tools.client.fetching import Seen
from tools.client.hanging import hanging_of
from tools.client.producing import Producer, now_ms
from tools.client.transactions import describe_transaction, list_transactions, write_marker
from tools.client.unverified import send_unverified
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, partition_name, say_done
from tools.commands.produce import send_all
from tools.text import data_json, text_of

_where = click.option(
    "--partition",
    "where",
    metavar="TOPIC/PARTITION",
    help="End the open transaction that begins at --start-offset here, bypassing its coordinator: for hanging transactions.",
)
_start_offset = click.option(
    "--start-offset",
    type=int,
    help="First offset of that transaction; `odradek txn find-hanging` prints it.",
)
_dry_run = click.option(
    "--dry-run",
    is_flag=True,
    help="Write nothing; show what consumers get after a commit and after an abort.",
)


@click.command(context_settings=HELP_NAMES)
@click.argument("transactional_id", metavar="[ID]", required=False)
@_where
@_start_offset
@_dry_run
@as_json
@on_a_cluster
def abort(
    cluster: Cluster,
    transactional_id: str | None,
    where: str | None,
    start_offset: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Abort the open transaction of ID, and fence its producer (as Kafka's Admin.fenceProducers does).

    With --partition and --start-offset: write an ABORT marker there (as kafka-transactions.sh abort does).

    \b
    odradek txn abort etl-1
    odradek txn abort --partition orders/0 --start-offset 6 --dry-run
    odradek txn abort --partition orders/0 --start-offset 6
    """
    if where is not None and start_offset is not None and transactional_id is None:
        view, text = _end(cluster, *partition_name(where), start_offset, committed=False, dry_run=dry_run)
    elif transactional_id is not None and where is None and start_offset is None and not dry_run:
        view, text = _fence(cluster, transactional_id)
    else:
        raise click.UsageError("give an ID, or --partition with --start-offset; --dry-run needs --partition")
    say_done(as_json, view, text)


@click.command(context_settings=HELP_NAMES)
@_where
@_start_offset
@_dry_run
@as_json
@on_a_cluster
def commit(
    cluster: Cluster, where: str | None, start_offset: int | None, dry_run: bool, as_json: bool
) -> None:
    """Write a COMMIT marker for the open transaction that begins at an offset of a partition.

    For a hanging transaction whose records are correct: read_committed consumers then get them. The transaction ends in this
    partition only, and its coordinator does not learn of it.

    \b
    odradek txn commit --partition orders/0 --start-offset 6 --dry-run
    odradek txn commit --partition orders/0 --start-offset 6
    """
    if where is None or start_offset is None:
        raise click.UsageError("give --partition and --start-offset")
    say_done(as_json, *_end(cluster, *partition_name(where), start_offset, committed=True, dry_run=dry_run))


def _fence(cluster: Cluster, transactional_id: str) -> tuple[dict[str, Any], str]:
    """Abort the id's open transaction and fence its producer. Returns the result as JSON and as text."""
    # InitProducerId would create an id that does not exist, so look it up first.
    found = describe_transaction(cluster, transactional_id)
    producer = Producer(cluster, transactional_id)
    producer.init()
    done = "aborted" if found.is_open else "no transaction was open"
    # Hanging transactions of its producer are not in the coordinator's state.
    hanging = [] if found.is_open else hanging_of(cluster, found.producer_id)
    view = {
        "transactional_id": transactional_id,
        "was_open": found.is_open,
        **_producer(producer),
        "hanging": [f"{each.topic}-{each.partition}@{each.start_offset}" for each in hanging],
    }
    text = (
        f"{transactional_id}: {done}; producer {producer.producer_id} has epoch {producer.producer_epoch} now"
    )
    return view, "\n".join([text, *(each.sentence for each in hanging)])


def _producer(producer: Producer) -> dict[str, Any]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def _end(
    cluster: Cluster, topic: str, partition: int, start_offset: int, *, committed: bool, dry_run: bool
) -> tuple[dict[str, Any], str]:
    """Write the marker, or only preview it. Returns the result as JSON and as text."""
    if dry_run:
        ending = ending_of(cluster, topic, partition, start_offset)
        kept = _warnings(cluster, topic, partition, ending.producer)
        view = _ending_json(topic, partition, ending)
        return {**view, "warnings": kept}, "\n".join([*_preview(topic, partition, ending), *kept])
    producer = open_transaction(cluster, topic, partition, start_offset)
    kept = _warnings(cluster, topic, partition, producer)
    write_marker(cluster, topic, partition, producer, committed=committed)
    view = {
        "topic": topic,
        "partition": partition,
        "start_offset": start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "outcome": "committed" if committed else "aborted",
        "warnings": kept,
    }
    at = f"the transaction of producer {producer.producer_id} at offset {start_offset}"
    return view, "\n".join([f"{topic}-{partition}: {at} is {view['outcome']}", *kept])


def _preview(topic: str, partition: int, at: Ending) -> list[str]:
    """Lines about the transaction: its first records, and what consumers get after each marker."""
    name = f"{topic}-{partition}"
    producer, start, after = at.producer, at.producer.current_txn_start_offset, at.stable_offset_after
    its = _count(at.records, "record")
    lines = [
        f"{name}: the transaction of producer {producer.producer_id} epoch {producer.producer_epoch} "
        f"has {its}, at offsets {start} to {at.last_offset}"
    ]
    lines += [f"  {name}@{seen.record.offset}  {_record(seen)}" for seen in at.sample]
    if at.records > SAMPLE:
        lines.append(f"  and {at.records - SAMPLE} more")
    if after <= start:
        assert at.holder is not None
        return [
            *lines,
            f"either marker: read_committed consumers still stop at {after}, where the transaction of producer "
            f"{at.holder.producer_id} is open",
            f"commit: after that one ends they get {its} of it; abort: they never get them",
        ]
    others = f"{_count(at.others, 'record')} of others"
    till = f"up to offset {after}"
    lines.append(
        f"commit: read_committed consumers get {_count(at.readable, 'record')} of it and {others}, {till}"
    )
    lines.append(f"abort: they get {others}, {till}, and never its {_count(at.records, 'record')}")
    if at.holder is not None:
        lines.append(f"there they stop at the open transaction of producer {at.holder.producer_id}")
    return lines


def _warnings(cluster: Cluster, topic: str, partition: int, producer: ProducerState) -> list[str]:
    """A warning if a coordinator still has the transaction, which may then end differently in other partitions."""
    try:
        known = list_transactions(cluster, (), [producer.producer_id])
    except ToolError as error:
        return [f"could not determine whether it hangs: {error}"]
    return [
        f"it does not hang: {each.transactional_id} is {each.state} at its coordinator, node {each.coordinator}, "
        "which ends it in all its partitions"
        for each in known
        if each.is_open and (topic, partition) in each.partitions
    ]


def _record(seen: Seen) -> str:
    key = "-" if seen.record.key is None else text_of(seen.record.key)
    return f"{key}  {text_of(seen.record.value)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _ending_json(topic: str, partition: int, at: Ending) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": at.producer.current_txn_start_offset,
        "producer_id": at.producer.producer_id,
        "producer_epoch": at.producer.producer_epoch,
        "last_offset": at.last_offset,
        "records": at.records,
        "sample": [
            {
                "offset": seen.record.offset,
                **data_json("key", seen.record.key),
                **data_json("value", seen.record.value),
            }
            for seen in at.sample
        ],
        "last_stable_offset": at.stable_offset,
        "last_stable_offset_after": at.stable_offset_after,
        "readable_if_committed": at.readable,
        "readable_of_others": at.others,
        "next_open_producer_id": at.holder and at.holder.producer_id,
    }


@click.command(context_settings=HELP_NAMES)
@click.argument("transactional_id", metavar="ID")
@click.argument("topic", metavar="TOPIC")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-p", "--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--timeout-ms", default=60_000, show_default=True, help="transaction.timeout.ms of the transaction."
)
@click.option(
    "--for-good",
    is_flag=True,
    help="Create a hanging transaction: no coordinator knows it, and no timeout ends it. Alters a setting of the cluster.",
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
    for_good: bool,
    as_json: bool,
) -> None:
    """Begin a transaction, write to TOPIC and exit: read_committed consumers stop there.

    The coordinator aborts it after its timeout; `odradek txn abort ID` aborts it at once. With --for-good the coordinator
    does not learn of the partition: `odradek txn find-hanging` prints the command that ends it.

    \b
    odradek txn hang etl-1 orders --timeout-ms 600000
    odradek txn hang etl-1 orders --for-good
    """
    producer = Producer(cluster, transactional_id, transaction_timeout_ms=timeout_ms)
    producer.init()
    records = [(None, value.encode()) for value in values or ("left open",)]
    # An empty list of records only creates the topic.
    send_all(producer, topic, [] if for_good else records, partition)
    view = {
        "transactional_id": transactional_id,
        "topic": topic,
        "partition": partition,
        **_producer(producer),
    }
    who = f"producer {producer.producer_id} epoch {producer.producer_epoch}"
    text = f"{transactional_id} is open in {topic}-{partition}: {who}"
    if for_good:
        now = now_ms()
        start = send_unverified(producer, topic, partition, [(now, *each) for each in records])
        view["start_offset"] = start
        text = f"{transactional_id} hangs in {topic}-{partition} from offset {start}: {who}"
    say_done(as_json, view, text)
