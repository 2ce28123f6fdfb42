"""`odradek seed`: write records in committed and aborted transactions, as the input of a job."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import click

from odradek.pending import from_first
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.producing import Producer
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, say_done
from tools.commands.produce import NO_LINE, Keyed, send_all


@click.command(context_settings=HELP_NAMES)
@click.option(
    "-x",
    "--transactional-id",
    metavar="ID",
    default="odradek-seed",
    show_default=True,
    help="Transactional id of the producer.",
)
@as_json
@on_a_cluster
def seed(cluster: Cluster, transactional_id: str, as_json: bool) -> None:
    """Write records from standard input in transactions that commit and abort.

    Each line is a JSON object with topic and value, and optionally key, partition and aborted. Consecutive records that
    commit form one transaction, and likewise consecutive records that abort.

    \b
    echo '{"topic": "orders", "value": "paid", "aborted": true}' | odradek seed
    """
    producer = Producer(cluster, transactional_id=transactional_id)
    producer.init()
    written: Counter[str] = Counter()
    for aborted, records in groupby(_lines(sys.stdin), key=lambda each: bool(each.get("aborted"))):
        outcome = "aborted" if aborted else "committed"
        written[outcome] += _send(producer, records)
        producer.end(commit=not aborted)
    text = f"{written['committed']} records committed, {written['aborted']} aborted"
    say_done(as_json, {"committed": written["committed"], "aborted": written["aborted"]}, text)


def _lines(text: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(from_first(text, NO_LINE), 1):
        try:
            record = json.loads(line)
            yield {**record, "topic": record["topic"], "value": record["value"]}
        except (ValueError, TypeError, KeyError):
            raise ToolError(f"line {number} is not a JSON object with topic and value") from None


def _send(producer: Producer, records: Iterable[dict[str, Any]]) -> int:
    """Write consecutive records of the same topic and partition together."""
    written = 0
    for (topic, partition), group in groupby(
        records, key=lambda each: (each["topic"], each.get("partition"))
    ):
        written += send_all(producer, topic, map(_keyed, group), partition)
    return written


def _keyed(record: dict[str, Any]) -> Keyed:
    key, value = record.get("key"), record["value"]
    return None if key is None else str(key).encode(), None if value is None else str(value).encode()
