"""`odradek consume`: print records of topics with the outcome of their transactions."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import click

from odradek.printable import printable
from protocol.batch import parse_end_txn_marker
from protocol.compression import CODEC_NAMES
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import FETCH_WAIT_MS, Reader, Seen
from tools.client.groups import commit_offsets, is_share_group, stable_offsets
from tools.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offset
from tools.commands.common import HELP_NAMES, on_a_cluster, say_json
from tools.explain.hidden import Hidden, Stops, hidden_from, sentences, with_owners
from tools.text import data_json, text_of, time_text

COLOURS: Final = {
    "aborted": "red",
    "open": "yellow",
    "committed": "green",
    "COMMIT": "cyan",
    "ABORT": "magenta",
}

_Show = Callable[[Seen], None]


@click.command(context_settings=HELP_NAMES)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[/PARTITION]...")
@click.option(
    "-u",
    "--uncommitted",
    is_flag=True,
    help="read_uncommitted: also print aborted and open records and control records, each marked.",
)
@click.option(
    "-o",
    "--offset",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="Where to start: beginning, end, an offset, -5 for the last five offsets, @TIME (ISO 8601, or ms since 1970).",
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after this number of records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records at the end, until Ctrl-C.")
@click.option(
    "-g",
    "--group",
    help="Start at the committed offsets of this group, and commit the printed records. The group must have no members.",
)
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help=r"Format of each record: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time in ms, "
    r"%S outcome of its transaction, %P producer id and epoch; \n and \t.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@on_a_cluster
def consume(
    cluster: Cluster,
    topics: tuple[str, ...],
    uncommitted: bool,
    offset: str,
    count: int | None,
    follow: bool,
    group: str | None,
    template: str | None,
    as_json: bool,
) -> None:
    """Print the records of topics or partitions, with read_committed by default.

    A line contains partition and offset, the time, the key, the value, the headers; with --uncommitted also the outcome of
    the record's transaction. The command ends at the end of the partitions, unless --follow is given.

    \b
    odradek consume orders -u
    odradek consume orders/0 -o -5 --format '%o %k %v\\n'
    odradek consume orders -g readers -n 10
    """
    for each in topics:
        if "%" in each:
            raise click.UsageError(
                f"{each} is not a topic; to print records in this format use --format {shlex.quote(each)} (-f follows)"
            )
    isolation = READ_UNCOMMITTED if uncommitted else READ_COMMITTED
    where = wanted_partitions(cluster, topics)
    committed = _committed(cluster, group, where) if group else {}
    readers = {
        each: Reader(
            cluster, *each, isolation, committed.get(each, checked_offset(cluster, *each, offset, isolation))
        )
        for each in where
    }
    show = _shower(as_json or template == "json", template, uncommitted)
    stops = Stops()

    def look() -> None:
        now = time.monotonic()
        if stops.is_idle(now):
            click.echo(printable(f"no new record in {', '.join(topics)} yet"), err=True)
        if not uncommitted:
            _say_hidden(cluster, stops.new(hidden_from(readers.values()), now))

    try:
        for seen in read(readers, follow=follow, count=count, at_end=look):
            stops.shown = True
            show(seen)
    except KeyboardInterrupt:
        click.echo(err=True)
    if not uncommitted:
        _say_hidden(cluster, hidden_from(readers.values()))
    if group:
        commit_offsets(cluster, group, {each: reader.offset for each, reader in readers.items()})


def _committed(cluster: Cluster, group: str, where: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    if is_share_group(cluster, group):
        raise ToolError(
            f"group {group} is of the type share; only groups with committed offsets can be given"
        )
    return stable_offsets(cluster, group, where)


def _say_hidden(cluster: Cluster, hidden: Iterable[Hidden]) -> None:
    for sentence in sentences(with_owners(cluster, hidden)):
        click.echo(printable(sentence), err=True)


def wanted_partitions(cluster: Cluster, names: Iterable[str]) -> list[tuple[str, int]]:
    """Expand ``orders`` to all its partitions, ``orders/2`` to one."""
    found: list[tuple[str, int]] = []
    for name in names:
        topic, slash, index = name.rpartition("/")
        if slash and index.isdecimal():
            found.append((topic, int(index)))
        else:
            found += sorted((name, each.partition_index) for each in cluster.topic(name).partitions)
    return found


def start_offset(
    cluster: Cluster, topic: str, partition: int, where: str, isolation: int, option: str = "--offset"
) -> int:
    """The offset for ``beginning``, ``end``, a number, a negative number (from the end), or ``@TIME``."""
    begin = list_offset(cluster, topic, partition, EARLIEST)
    end = list_offset(cluster, topic, partition, LATEST, isolation)
    if where in ("beginning", "earliest", "end", "latest"):
        return begin if where in ("beginning", "earliest") else end
    if where.startswith("@"):
        found = list_offset(cluster, topic, partition, _time_ms(where[1:], option))
        return end if found < 0 else found
    try:
        number = int(where)
    except ValueError:
        raise click.UsageError(f"{option} {where}: expected beginning, end, a number or @TIME") from None
    return max(begin, end + number) if number < 0 else number


def checked_offset(
    cluster: Cluster, topic: str, partition: int, where: str, isolation: int, option: str = "--offset"
) -> int:
    """Return the offset of ``start_offset``. Raises ``ToolError`` if this offset is outside the log."""
    found = start_offset(cluster, topic, partition, where, isolation, option)
    begin, end = (list_offset(cluster, topic, partition, each) for each in (EARLIEST, LATEST))
    if not begin <= found <= end:
        raise ToolError(
            f"{topic}-{partition}: offset {found} is out of range: the log begins at {begin} and ends at {end}"
        )
    return found


def _time_ms(text: str, option: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{option} @{text}: expected an ISO 8601 time, or ms since 1970") from None
    return int(moment.timestamp() * 1000)


def read(
    readers: dict[tuple[str, int], Reader],
    *,
    follow: bool = False,
    count: int | None = None,
    at_end: Callable[[], None] = lambda: None,
) -> Iterator[Seen]:
    """Yield the records of all readers, one partition after the other; then, with ``follow``, as they arrive.

    With ``follow``, ``at_end`` is called repeatedly while there are no new records.

    If reading ends after ``count`` records, the offset of each reader is the one after the last record that it yielded.
    """
    left = count
    pending = list(readers.values())
    while pending:
        # When there is nothing left to read, the readers' long polls share one wait.
        wait_ms = FETCH_WAIT_MS // len(pending) if follow and all(each.at_end for each in pending) else 0
        for reader in pending:
            while True:
                for seen in reader.read(wait_ms):
                    yield seen
                    if left is not None:
                        left -= 1
                        if left == 0:
                            reader.seek(seen.record.offset + 1)
                            return
                if reader.at_end:
                    break
        if not follow:
            return
        at_end()


# -- printing ---------------------------------------------------------------------------------------------------


def _shower(as_json: bool, template: str | None, uncommitted: bool) -> _Show:
    if as_json:
        return lambda seen: say_json(record_json(seen))
    if template is not None:
        # One write without a newline: the template contains its own line ends.
        return lambda seen: click.echo(formatted(template, seen), nl=False)
    return lambda seen: click.echo(_line(seen, uncommitted))


def record_json(seen: Seen) -> dict[str, Any]:
    """A record as a JSON object. Bytes that are not UTF-8 have the keys ``key_hex`` and ``value_hex``."""
    record, batch = seen.record, seen.batch
    return {
        "topic": seen.topic,
        "partition": seen.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        **data_json("key", record.key),
        **data_json("value", record.value),
        "headers": [[name, None if value is None else text_of(value)] for name, value in record.headers],
        "outcome": seen.outcome or None,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": record.sequence,
        "leader_epoch": batch.partition_leader_epoch,
        "compression": CODEC_NAMES[batch.compression],
    }


def formatted(template: str, seen: Seen) -> str:
    """The template with its placeholders replaced, as in kcat."""
    record, batch = seen.record, seen.batch
    values: dict[str, Callable[[], object]] = {
        "t": lambda: seen.topic,
        "p": lambda: seen.partition,
        "o": lambda: record.offset,
        "k": lambda: "" if record.key is None else record.key.decode("utf-8", "replace"),
        "v": lambda: "" if record.value is None else record.value.decode("utf-8", "replace"),
        "h": lambda: ",".join(f"{name}={text_of(value)}" for name, value in record.headers),
        "T": lambda: record.timestamp,
        "S": lambda: seen.outcome,
        "P": lambda: f"{batch.producer_id}/{batch.producer_epoch}",
        "%": lambda: "%",
    }

    def replaced(match: re.Match[str]) -> str:
        mark = match[1]
        if match[0][0] == "\\":
            return {"n": "\n", "t": "\t", "\\": "\\"}.get(match[2], match[0])
        if mark not in values:
            raise click.UsageError(f"--format: unknown placeholder %{mark}")
        return str(values[mark]())

    return re.sub(r"%(.)|\\(.)", replaced, template)


def _line(seen: Seen, uncommitted: bool) -> str:
    record = seen.record
    parts = [f"{seen.topic}-{seen.partition}@{record.offset}", time_text(record.timestamp)]
    if seen.batch.is_control:
        parts.append(click.style(control_text(seen), fg=COLOURS.get(seen.outcome, "cyan")))
        return "  ".join(parts)
    parts.append(click.style(text_of(record.key), bold=True) if record.key is not None else "-")
    parts.append(text_of(record.value))
    if record.headers:
        parts.append(
            "{"
            + ", ".join(f"{text_of(name.encode())}={text_of(value)}" for name, value in record.headers)
            + "}"
        )
    if uncommitted and seen.outcome:
        who = f"producer {seen.batch.producer_id} epoch {seen.batch.producer_epoch}"
        parts.append(click.style(f"[{seen.outcome}, {who}]", fg=COLOURS[seen.outcome]))
    return "  ".join(parts)


def control_text(seen: Seen) -> str:
    """A control record as text: ``ABORT marker of producer 7 epoch 3, coordinator epoch 0``"""
    marker = parse_end_txn_marker(seen.batch)
    if marker is None:
        return "control record"
    who = f"producer {seen.batch.producer_id} epoch {seen.batch.producer_epoch}"
    return f"{seen.outcome} marker of {who}, coordinator epoch {marker.coordinator_epoch}"
