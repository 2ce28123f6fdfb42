"""What became of the transactions of one transactional id, from the coordinator's log and from the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol.hashing import partition_for
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.schema import MalformedRecord
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError, ToolError
from tools.client.fetching import Reader, Seen
from tools.client.offsets import READ_UNCOMMITTED
from tools.client.transactions import Transaction, describe_transaction, transaction_state, unknown_id
from tools.control import Ages, control_of
from tools.explain.refused import HOW_TO, refused_of_id, trace_is_off
from tools.text import duration_text, time_text

STATE_TOPIC: Final = "__transaction_state"
HISTORY_MAX: Final = 20
"""So many of the newest states are shown."""


def explain_id(cluster: Cluster, transactional_id: str) -> list[str]:
    """Sentences: its state, its history in the coordinator's log, and its refused requests."""
    history = _history(cluster, transactional_id)
    try:
        sentences = [_state(describe_transaction(cluster, transactional_id), Ages(cluster))]
    except KafkaError as error:
        if not unknown_id(error.code) or not history:
            raise
        sentences = [f"The coordinator does not know {transactional_id} any more: it has expired."]
    before: TransactionLogValue | None = None
    for value in history:
        sentences.append(_step(value, before))
        before = value
    remote = control_of(cluster)
    refused = list(refused_of_id(remote, transactional_id))
    return sentences + (refused or ([HOW_TO] if trace_is_off(remote) else []))


def _state(at: Transaction, ages: Ages) -> str:
    head = (
        f"{at.transactional_id} is {at.state} at its coordinator, node {at.coordinator}: "
        f"producer {at.producer_id} epoch {at.producer_epoch}."
    )
    if at.start_ms is None:
        return head
    opened = ages.open_ms(at)
    left = at.timeout_ms - opened
    ends = (
        f"times out in {duration_text(left)}"
        if left > 0
        else f"is past its time-out by {duration_text(-left)}"
    )
    where = " ".join(f"{topic}-{index}" for topic, index in at.partitions) or "no partition yet"
    return f"{head} It has been open for {duration_text(opened)} and {ends}. It has {where}."


def _history(cluster: Cluster, transactional_id: str) -> list[TransactionLogValue]:
    """The newest states of the id in the coordinator's log, the oldest first."""
    partitions = cluster.topic(STATE_TOPIC).partitions
    reader = Reader(cluster, STATE_TOPIC, partition_for(transactional_id, len(partitions)), READ_UNCOMMITTED)
    found: list[TransactionLogValue] = []
    while not reader.at_end:
        found += [value for seen in reader.read() for value in _value(seen, transactional_id)]
        del found[:-HISTORY_MAX]
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


def _step(value: TransactionLogValue, before: TransactionLogValue | None) -> str:
    """One state of the log as a line, with what it means for the client."""
    state = transaction_state(value.transaction_status)
    parts = value.transaction_partitions or ()
    where = " ".join(f"{each.topic}-{index}" for each in parts for index in each.partition_ids)
    line = (
        f"{time_text(value.transaction_last_update_timestamp_ms)}  {state}  "
        f"producer {value.producer_id} epoch {value.producer_epoch}"
    )
    if where:
        line += f"  {where}"
    meaning = _meaning(state, value, before)
    return f"{line}  ({meaning})" if meaning else line


def _meaning(state: str, value: TransactionLogValue, before: TransactionLogValue | None) -> str:
    if before is None:
        return ""
    if state == "PrepareEpochFence" or (
        state == "PrepareAbort" and value.producer_epoch > before.producer_epoch
    ):
        # KIP-890 raises the epoch with each end: there only the trace tells the client's own abort from a fence.
        by_client = before.client_transaction_version >= 2
        opened = value.transaction_last_update_timestamp_ms - before.transaction_start_timestamp_ms
        if 0 <= before.transaction_timeout_ms <= opened:
            return f"it timed out after {duration_text(opened)}: the producer with epoch {before.producer_epoch} is fenced"
        if by_client:
            return ""
        return f"a newer producer, or the administrator, fenced epoch {before.producer_epoch}"
    if state == "Empty" and value.producer_epoch > before.producer_epoch:
        return f"InitProducerId of a producer that starts: epoch {before.producer_epoch} is fenced"
    return ""
