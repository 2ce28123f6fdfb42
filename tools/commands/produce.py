"""`odradek produce`: write records from the command line or from standard input."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, Final

import click

from odradek.pending import from_first
from protocol.batch import Header, RecordLike
from protocol.compression import CODEC_NAMES
from protocol.errors import ErrorCode
from tools.client.cluster import RETRY_PAUSE_S, Cluster
from tools.client.errors import check, no_such
from tools.client.producing import Producer, now_ms, partition_of
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, pairs, say_done

BATCH_RECORDS: Final = 500
CHUNK_BYTES: Final = 256 * 1024
NO_LINE: Final = "no line on standard input yet"
CREATION_POLLS: Final = 20
_BEING_CREATED: Final = (0, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)

Keyed = tuple[bytes | None, bytes | None]


@click.command(context_settings=HELP_NAMES)
@click.argument("topic", metavar="TOPIC[/PARTITION]")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-k", "--key", help="Key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Text between key and value in each line.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of all records.")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Partition.  [default: by the key, else round-robin]",
)
@click.option("-z", "--compression", type=click.Choice(CODEC_NAMES), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "-x", "--transactional-id", metavar="ID", help="Write all records in one transaction, and commit it."
)
@click.option("--abort", is_flag=True, help="Abort the transaction instead.")
@click.option("-Z", "--tombstones", is_flag=True, help="Write null for an empty value.")
@as_json
@on_a_cluster
def produce(
    cluster: Cluster,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    transactional_id: str | None,
    abort: bool,
    tombstones: bool,
    as_json: bool,
) -> None:
    """Write records: one per VALUE; without a VALUE, one per line of standard input.

    \b
    odradek produce orders paid shipped -k 42 -H source=shop
    cat orders.txt | odradek produce orders -K : -z zstd
    odradek produce orders paid -x etl-1 --abort
    """
    topic, partition = _place(topic, partition)
    if abort and transactional_id is None:
        raise click.UsageError("--abort needs --transactional-id")
    if acks != "all" and transactional_id is not None:
        raise click.UsageError("a transaction needs --acks all")
    producer = Producer(
        cluster,
        transactional_id=transactional_id,
        idempotent=acks == "all",
        acks=-1 if acks == "all" else int(acks),
        compression=CODEC_NAMES.index(compression),
    )
    groups: Iterable[Iterable[str]] = (values,) if values else lines_as_they_come(sys.stdin.buffer)
    records = (_keyed(lines, key, key_separator, tombstones) for lines in groups)
    shared = tuple((name, value.encode()) for name, value in pairs(headers))
    if not values and sys.stdin.isatty():
        click.echo("each line is a record; Ctrl-D ends the input", err=True)
    producer.init()
    written = send_groups(producer, topic, records, partition, shared)
    producer.end(commit=not abort)
    outcome = None if transactional_id is None else "aborted" if abort else "committed"
    text = f"{written} record{'s' * (written != 1)} to {topic}{f', {outcome}' if outcome else ''}"
    say_done(as_json, {"topic": topic, "records": written, "outcome": outcome}, text)


def _place(topic: str, partition: int | None) -> tuple[str, int | None]:
    """Parse ``orders/1`` into topic and partition, as `consume` does: topic names contain no slash."""
    name, slash, index = topic.rpartition("/")
    if not slash:
        return topic, partition
    if not name or not index.isdecimal() or partition not in (None, int(index)):
        raise click.UsageError(f"{topic}: expected TOPIC or TOPIC/PARTITION, or --partition")
    return name, int(index)


def lines_as_they_come(stream: IO[bytes]) -> Iterator[list[str]]:
    """Yield the lines that each read of the stream returns: typed lines, or lines of a slow pipe, are sent at once."""
    rest = b""
    read1 = partial(stream.read1, CHUNK_BYTES)  # type: ignore[attr-defined]  # of all buffered streams
    for chunk in from_first(iter(read1, b""), NO_LINE):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [_line(line) for line in lines]
    if rest:
        yield [_line(rest)]


def _line(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _keyed(lines: Iterable[str], key: str | None, separator: str | None, tombstones: bool) -> Iterator[Keyed]:
    shared = None if key is None else key.encode()
    for line in lines:
        found, text = shared, line
        if separator:
            before, mark, after = line.partition(separator)
            if mark:
                found, text = before.encode("utf-8", "surrogateescape"), after
        value = None if tombstones and not text else text.encode("utf-8", "surrogateescape")
        yield found, value


def send_all(producer: Producer, topic: str, records: Iterable[Keyed], partition: int | None) -> int:
    """Write records in batches, with partitions by key. Returns the number of records."""
    return send_groups(producer, topic, [records], partition)


def send_groups(
    producer: Producer,
    topic: str,
    groups: Iterable[Iterable[Keyed]],
    partition: int | None,
    headers: tuple[Header, ...] = (),
) -> int:
    """Write groups of records in batches, with partitions by key, one group after the other.

    Returns the number of records.
    """
    _create_by_asking(producer.cluster, topic)
    count = len(producer.cluster.topic(topic).partitions)
    waiting: dict[int, list[RecordLike]] = {}
    written = 0
    for records in groups:
        for key, value in records:
            index = partition_of(key, count, written) if partition is None else partition
            waiting.setdefault(index, []).append((now_ms(), key, value, headers))
            written += 1
            if len(waiting[index]) == BATCH_RECORDS:
                producer.send(topic, index, waiting.pop(index))
        for index, rest in waiting.items():
            producer.send(topic, index, rest)
        waiting.clear()
    return written


def _create_by_asking(cluster: Cluster, topic: str) -> None:
    """Request the topic's metadata as a producer does: with auto.create.topics.enable the broker creates the topic."""
    for _ in range(CREATION_POLLS):
        (found,) = cluster.refresh([topic], create=True)
        if found.error_code == 0 and all(each.leader_id >= 0 for each in found.partitions):
            return
        if found.error_code not in _BEING_CREATED:
            check(found.error_code, topic)
        time.sleep(RETRY_PAUSE_S)
    raise no_such("topic", topic, f"there is no topic {topic}, and the broker does not create it")
