"""Decided records above the last stable offset, which read_committed consumers do not get: their number, and the cause."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from odradek.control_client import ControlClient
from odradek.explanations import causes
from odradek.topics import ReadRecords, Record, read_behind
from odradek.transactions import Transaction, Transactions

EXPLAINED_MAX: Final = 3
"""Maximum number of partitions of a topic that are explained."""


def hidden_records(client: ControlClient, topic: str, read: ReadRecords, waited_s: float | None) -> list[str]:
    """Return lines about decided or perhaps decided records above the last stable offset; empty if there are none.

    A record is decided if it belongs to no transaction, or to one that is committed or in PrepareCommit. It may be
    decided if its transaction is open and no running coordinator knows the producer, while a node is not running.

    ``waited_s`` is the time for which the caller has waited for markers, None if the caller's wait did not time
    out.
    """
    behind = read_behind(client, topic, read.held_from)
    if not behind:
        return []
    known = {each.producer_id: each for each in Transactions(client)}
    nodes = client.get("/v1/cluster")["nodes"]
    away = [f"node {each['node_id']} is {each['state']}" for each in nodes if each["state"] != "running"]
    decided = [each for each in behind if _is_decided(each, known)]
    unknown = [each for each in behind if away and each.outcome == "open" and each.producer_id not in known]
    count = len(decided) + len(unknown)
    if not count:
        return []
    head = (
        f"{topic}: {count} {'perhaps ' if unknown else ''}decided record{'s are' if count > 1 else ' is'} behind the "
        "last stable offset, where read_committed consumers do not get them"
    )
    if waited_s is not None:
        head += f"; after {waited_s:g} s of waiting"
    if unknown:
        head += f"\n  No running coordinator knows producer {unknown[0].producer_id}: {', '.join(away)}"
    return [head, *why_hidden(client, topic, {each.partition for each in (*decided, *unknown)})]


def why_hidden(client: ControlClient, topic: str, partitions: Collection[int]) -> list[str]:
    """The causes that hold back the last stable offsets of these partitions, one line each."""
    explained = sorted(partitions)[:EXPLAINED_MAX]
    return [line for partition in explained for line in causes(client, topic, partition)]


def _is_decided(record: Record, known: Mapping[int, Transaction]) -> bool:
    if record.outcome == "open":
        transaction = known.get(record.producer_id)
        return transaction is not None and transaction.state == "PrepareCommit"
    return record.outcome != "aborted"
