"""Records that consumers do not get although they are decided: how many, and what holds them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.control_client import ControlClient
from odradek.topics import ReadRecords, Record, read_behind
from odradek.transactions import PREPARED, Transaction, Transactions

_View = Mapping[str, Any]
_OF_LINKS_AND_DISKS: Final = ("cut", "slow-link", "slow-disk", "full-disk")


def hidden_records(client: ControlClient, topic: str, read: ReadRecords, waited_s: float | None) -> list[str]:
    """Lines on the decided records behind the last stable offset; none if there are no such records.

    Decided are those of committed transactions, of transactions in PrepareCommit, and those of no transaction. Perhaps
    decided are those whose coordinator may be on a node that does not run.
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
    partitions = {each.partition for each in (*decided, *unknown)}
    holding: dict[tuple[int, int], Record] = {}
    for each in behind:
        if each.outcome == "open" and each.partition in partitions:
            holding.setdefault((each.partition, each.producer_id), each)
    rules = client.get("/v1/faults")["faults"]
    return [
        head,
        *(f"  {_held(each, known.get(each.producer_id), rules, away)}" for each in holding.values()),
    ]


def _is_decided(record: Record, known: Mapping[int, Transaction]) -> bool:
    if record.outcome == "open":
        transaction = known.get(record.producer_id)
        return transaction is not None and transaction.state == "PrepareCommit"
    return record.outcome != "aborted"


def _held(
    record: Record, transaction: Transaction | None, rules: Sequence[_View], away: Sequence[str]
) -> str:
    """What holds the last stable offset at a record: ``orders-0 @3: payments is PrepareCommit: rule 1 (...) holds ...``"""
    if transaction is None:
        why = "; ".join(away) or "a hanging transaction"
        return f"{record.place}: producer id {record.producer_id}, which no running coordinator knows: {why}"
    place = f"{record.topic}-{record.partition}"
    holds = [
        f"rule {rule['id']} ({rule['text']}) holds {each['at']} on node {each['node']}"
        for rule in rules
        for each in rule["held"]
        if _concerns(each, transaction.transactional_id, place)
    ]
    if not holds and transaction.state in PREPARED:
        may = [f"rule {each['id']} ({each['text']}) may be why" for each in rules if _may_hold(each)]
        holds = [*away, *may] or ["its marker has not come"]
    said = f"{record.place}: {transaction.transactional_id} is {transaction.state}"
    return f"{said}: {'; '.join(holds)}" if holds else said


def _concerns(held: _View, transactional_id: str, place: str) -> bool:
    if held["transactional_id"] is None:
        return held["at"] == "WriteTxnMarkers" and place in held["partitions"]
    # A marker of the same transaction for another partition holds nothing here.
    return held["transactional_id"] == transactional_id and (
        not held["at"].startswith("txn.marker") or place in held["partitions"]
    )


def _may_hold(rule: _View) -> bool:
    """A rule that holds no step, and may keep markers away all the same."""
    on = str(rule["rule"].get("on", ""))
    return rule["rule"]["action"]["do"] in _OF_LINKS_AND_DISKS or (
        rule["hits"] > 0 and (on.startswith("txn.") or on == "WriteTxnMarkers")
    )
