"""The tools `kafka-console-producer.sh` and `kafka-console-consumer.sh`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

import click

from protocol.batch import Header
from protocol.compression import CODEC_NAMES
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader, Seen
from tools.client.groups import commit_offsets, stable_offsets
from tools.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from tools.client.producing import Producer
from tools.commands.common import settings
from tools.commands.consume import start_offset, wanted_partitions
from tools.commands.produce import Keyed, send_all
from tools.kafka_tools.common import HELP, kafka_command

POLL_MS: Final = 500


# -- the producer -----------------------------------------------------------------------------------------------


@click.command(context_settings=HELP)
@click.option("--topic", required=True)
@click.option("--property", "--reader-property", "properties", multiple=True, metavar="NAME=VALUE")
@click.option(
    "--producer-property", "--command-property", "producer_properties", multiple=True, metavar="NAME=VALUE"
)
@click.option("--request-required-acks", "acks", default="-1")
@click.option("--compression-codec", "compression", is_flag=False, flag_value="gzip", default="none")
@click.option("--sync", is_flag=True, help="Send each line in its own request.")
@kafka_command
def producer(
    cluster: Cluster,
    topic: str,
    properties: tuple[str, ...],
    producer_properties: tuple[str, ...],
    acks: str,
    compression: str,
    sync: bool,
) -> None:
    """Write each line of standard input as a record."""
    reader = settings(properties)
    acks = settings(producer_properties).get("acks", acks)
    writer = Producer(
        cluster,
        acks=-1 if acks == "all" else int(acks),
        idempotent=acks in ("-1", "all"),
        compression=CODEC_NAMES.index(compression),
    )
    writer.init()
    if sys.stdin.isatty() or sync:
        for record in _lines(reader):
            send_all(writer, topic, [record], None)
    else:
        send_all(writer, topic, _lines(reader), None)


def _lines(properties: dict[str, str]) -> Iterator[Keyed]:
    separator = properties.get("key.separator", "\t")
    keyed = properties.get("parse.key", "false") == "true"
    null = properties.get("null.marker")
    while True:
        if sys.stdin.isatty():
            click.echo(">", nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        text, key = line.rstrip("\n"), None
        if keyed:
            before, found, after = text.partition(separator)
            if not found:
                raise ToolError(f"No key separator found on line: '{text}'")
            key, text = _data(before, null), after
        yield key, _data(text, null)


def _data(text: str, null: str | None) -> bytes | None:
    return None if text == null else text.encode("utf-8", "surrogateescape")


# -- the consumer -----------------------------------------------------------------------------------------------


@click.command(context_settings=HELP)
@click.option("--topic", required=True)
@click.option("--partition", type=click.IntRange(min=0))
@click.option("--offset", default="latest", help="earliest, latest, or a number; needs --partition.")
@click.option("--from-beginning", is_flag=True)
@click.option("--max-messages", type=int, default=-1)
@click.option("--timeout-ms", type=int, help="End if no record arrives for this long.")
@click.option("--group")
@click.option(
    "--isolation-level", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted"
)
@click.option("--property", "--formatter-property", "properties", multiple=True, metavar="NAME=VALUE")
@click.option(
    "--consumer-property", "--command-property", "consumer_properties", multiple=True, metavar="NAME=VALUE"
)
@click.option("--skip-message-on-error", is_flag=True, hidden=True)
@kafka_command
def consumer(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    offset: str,
    from_beginning: bool,
    max_messages: int,
    timeout_ms: int | None,
    group: str | None,
    isolation_level: str,
    properties: tuple[str, ...],
    consumer_properties: tuple[str, ...],
    skip_message_on_error: bool,
) -> None:
    """Print the values of records.

    With --group the consumer starts at the group's offsets, and commits the offsets of the printed records as an
    administrator does: the group must have no members.
    """
    given = settings(consumer_properties)
    isolation = (
        READ_COMMITTED
        if given.get("isolation.level", isolation_level) == "read_committed"
        else READ_UNCOMMITTED
    )
    group = group or given.get("group.id")
    from_beginning = from_beginning or given.get("auto.offset.reset") == "earliest"
    where = "beginning" if from_beginning else offset
    partitions = [(topic, partition)] if partition is not None else wanted_partitions(cluster, [topic])
    committed = stable_offsets(cluster, group, partitions) if group else {}
    readers = {
        each: Reader(
            cluster, *each, isolation, committed.get(each, start_offset(cluster, *each, where, isolation))
        )
        for each in partitions
    }
    count = 0
    try:
        for seen in _records(list(readers.values()), timeout_ms, max_messages):
            click.echo(_printed(seen, settings(properties)))
            count += 1
    except KeyboardInterrupt:
        pass
    if group:
        commit_offsets(cluster, group, {each: reader.offset for each, reader in readers.items()})
    click.echo(f"Processed a total of {count} messages", err=True)


def _records(readers: list[Reader], timeout_ms: int | None, most: int) -> Iterator[Seen]:
    """Yield records as they arrive, without control records.

    Ends after ``most`` records (-1: no limit), or when no record has arrived for ``timeout_ms`` (None: never).
    """
    left, last = most, time.monotonic()
    while left != 0:
        wait_ms = (
            min(POLL_MS, timeout_ms or POLL_MS) // len(readers) if all(each.at_end for each in readers) else 0
        )
        for reader in readers:
            for seen in reader.read(wait_ms):
                if seen.batch.is_control:
                    continue
                last = time.monotonic()
                yield seen
                left -= 1
                if left == 0:
                    reader.seek(seen.record.offset + 1)
                    return
        if timeout_ms is not None and (time.monotonic() - last) * 1000 >= timeout_ms:
            return


def _printed(seen: Seen, properties: dict[str, str]) -> str:
    """The line that Kafka's DefaultMessageFormatter prints."""
    record, separator = seen.record, properties.get("key.separator", "\t")
    shown = {name: properties.get(f"print.{name}", str(name == "value").lower()) == "true" for name in _PARTS}
    time_type = "LogAppendTime" if seen.batch.is_log_append_time else "CreateTime"
    parts = {
        "timestamp": f"{time_type}:{record.timestamp}",
        "partition": f"Partition:{seen.partition}",
        "offset": f"Offset:{record.offset}",
        "headers": _headers(record.headers),
        "key": _text(record.key),
        "value": _text(record.value),
    }
    return separator.join(parts[name] for name in _PARTS if shown[name])


_PARTS: Final = ("timestamp", "partition", "offset", "headers", "key", "value")


def _headers(headers: tuple[Header, ...]) -> str:
    return ",".join(f"{name}:{_text(value)}" for name, value in headers) if headers else "NO_HEADERS"


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")
