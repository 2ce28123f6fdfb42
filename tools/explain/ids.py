"""Facts about a transactional id, queried over the protocol: coordinator, states in the transaction log, partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from lab.explain.facts import IdFacts, StateStep
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.schema import MalformedRecord
from tools.client.cluster import TRANSACTION, Cluster
from tools.client.errors import ToolError, error_name
from tools.client.fetching import Reader, Seen
from tools.client.offsets import READ_UNCOMMITTED
from tools.client.producing import now_ms
from tools.client.transactions import Transaction, described_transaction, transaction_state
from tools.control import Ages
from tools.explain.asking import Asking
from tools.explain.coordinating import find_coordinator
from tools.explain.looking import STATE_TOPIC, Where, look, open_places, transaction_facts

HISTORY_MAX: Final = 20
"""Maximum number of states that are listed, the latest ones."""


def id_facts(asking: Asking, transactional_id: str, ages: Ages) -> IdFacts:
    """Query the facts about a transactional id."""
    at = find_coordinator(asking, TRANSACTION, transactional_id)
    error, found = at.error, None
    if error is None and at.node is not None:
        described = asking.one(
            "DescribeTransactions", at.node, partial(_describe, asking.cluster, transactional_id)
        )
        error = described if isinstance(described, str) and described else None
        found = described if isinstance(described, Transaction) else None
    history = None
    if at.at is not None and at.at.leader is not None and at.index is not None:
        history = asking.one(
            "Fetch", at.at.leader, partial(_history, asking.cluster, transactional_id, at.index)
        )
    transaction = None if found is None else transaction_facts(found, ages)
    steps = tuple(map(_step, history)) if history is not None else None
    if transaction is not None and steps and steps[-1].state == transaction.state != "Ongoing":
        # No response contains the time of the decision, but the decision's record in the transaction log does.
        decided_ms = max(0, now_ms() - steps[-1].time_ms)
        transaction = replace(transaction, decided_ms=decided_ms if transaction.partitions else None)
    names = {name for step in steps or () for name in step.partitions}
    names |= set(transaction.partitions if transaction is not None else ())
    producers = {step.producer_id for step in steps or ()}
    producers |= {transaction.producer_id} if transaction is not None else set()
    wanted = {_where(name) for name in names} | (open_places(asking, producers) if producers else set())
    places = look(asking, wanted, ages, tails=False) if wanted else {}
    facts = IdFacts(
        transactional_id=transactional_id,
        state_partition=at.home,
        coordinator=at.node,
        coordinator_error=error,
        transaction=transaction,
        history=steps,
        places=tuple(places[where] for where in sorted(places)),
        home=at.at,
    )
    if facts.is_unknown:
        facts = replace(facts, near=asking.near("transactional id", transactional_id))
    return facts


def _where(name: str) -> Where:
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def _describe(cluster: Cluster, transactional_id: str, node: int) -> Transaction | str:
    """The transaction, the name of an error, or an empty text for an id that its coordinator does not know."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = cluster.ask_node(node, "describe_transactions", request).transaction_states
    if found.error_code == ErrorCode.transactional_id_not_found:
        return ""
    return error_name(found.error_code) if found.error_code else described_transaction(node, found)


def _history(cluster: Cluster, transactional_id: str, index: int, node: int) -> list[TransactionLogValue]:
    """The latest states of the id in the transaction log, the oldest first."""
    reader = Reader(cluster, STATE_TOPIC, index, READ_UNCOMMITTED)
    found: list[TransactionLogValue] = []
    while not reader.at_end:
        before = reader.offset
        found += [value for seen in reader.read() for value in _value(seen, transactional_id)]
        del found[:-HISTORY_MAX]
        if reader.offset == before:
            break
    return found


def _value(seen: Seen, transactional_id: str) -> Iterator[TransactionLogValue]:
    record = seen.record
    if seen.batch.is_control or record.key is None or record.value is None:
        return
    try:
        if TransactionLogKey.decode(record.key).transactional_id == transactional_id:
            yield TransactionLogValue.decode(record.value)
    except MalformedRecord as error:
        raise ToolError(f"{STATE_TOPIC}-{seen.partition}@{record.offset}: {error}") from None


def _step(value: TransactionLogValue) -> StateStep:
    parts = value.transaction_partitions or ()
    return StateStep(
        time_ms=value.transaction_last_update_timestamp_ms,
        state=transaction_state(value.transaction_status),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=tuple(f"{each.topic}-{index}" for each in parts for index in each.partition_ids),
        version_2=value.client_transaction_version >= 2,
    )
