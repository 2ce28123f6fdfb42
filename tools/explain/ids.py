"""What became of the transactions of one transactional id, from the coordinator's log and from the trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.errors import OdradekError
from odradek.remote import CONTROL_VARIABLE, connect
from protocol.hashing import partition_for
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.schema import MalformedRecord
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError, ToolError
from tools.client.fetching import Reader, Seen
from tools.client.offsets import READ_UNCOMMITTED
from tools.client.producing import now_ms
from tools.client.transactions import Transaction, describe_transaction, transaction_state, unknown_id
from tools.text import duration_text, time_text

STATE_TOPIC: Final = "__transaction_state"
HISTORY_MAX: Final = 20
"""So many of the newest states are shown."""
MEANINGS: Final = {
    "INVALID_PRODUCER_EPOCH": "the batch has an older epoch than the partition has seen: the producer is fenced",
    "PRODUCER_FENCED": "the coordinator has given a newer epoch: the producer is fenced",
    "CONCURRENT_TRANSACTIONS": "the transaction before it is still being ended; the client asks again",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "a sequence is missing: an earlier batch of the producer did not arrive",
    "UNKNOWN_PRODUCER_ID": "the partition has no state of this producer any more",
    "INVALID_TXN_STATE": "the request does not fit the state of the transaction",
    "INVALID_PRODUCER_ID_MAPPING": "the transactional id belongs to another producer id, or has expired",
    "TRANSACTIONAL_ID_NOT_FOUND": "the coordinator does not know the id",
    "NOT_COORDINATOR": "another node coordinates this id; the client looks for it again",
    "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator still reads its log; the client asks again",
    "NOT_LEADER_OR_FOLLOWER": "another node leads the partition; the client asks for metadata again",
    "NOT_ENOUGH_REPLICAS": "the ISR is smaller than min.insync.replicas: nothing was written",
    "TRANSACTION_ABORTABLE": "the transaction can only be aborted",
    "UNSTABLE_OFFSET_COMMIT": "an open transaction has offsets of the group",
}


def explain_id(cluster: Cluster, transactional_id: str) -> list[str]:
    """Sentences: its state, its history in the coordinator's log, and its refused requests."""
    history = _history(cluster, transactional_id)
    try:
        sentences = [_state(describe_transaction(cluster, transactional_id))]
    except KafkaError as error:
        if not unknown_id(error.code) or not history:
            raise
        sentences = [f"The coordinator does not know {transactional_id} any more: it has expired."]
    before: TransactionLogValue | None = None
    for value in history:
        sentences.append(_step(value, before))
        before = value
    return sentences + list(_refused(transactional_id))


def _state(at: Transaction) -> str:
    head = (
        f"{at.transactional_id} is {at.state} at its coordinator, node {at.coordinator}: "
        f"producer {at.producer_id} epoch {at.producer_epoch}."
    )
    if at.start_ms is None:
        return head
    opened = max(0, now_ms() - at.start_ms)
    left = at.timeout_ms - opened
    ends = (
        f"times out in {duration_text(left)}"
        if left > 0
        else f"is past its time-out by {duration_text(-left)}"
    )
    where = " ".join(f"{topic}-{index}" for topic, index in at.partitions) or "no partition yet"
    return f"{head} It is open for {duration_text(opened)} and {ends}. It has {where}."


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


def _refused(transactional_id: str) -> Iterator[str]:
    """The requests with errors in the trace of the broker that ODRADEK_CONTROL names."""
    if not os.environ.get(CONTROL_VARIABLE):
        return
    try:
        remote = connect()
        entries = remote.trace.entries(transactional_id=transactional_id)
        running = remote.trace.status["running"]
    except OdradekError as error:
        raise ToolError(str(error)) from None
    for entry in entries:
        errors = sorted(set(_errors(entry.get("answer"))))
        for name in errors:
            yield f"Refused: {entry['line']}" + (f"  ({MEANINGS[name]})" if name in MEANINGS else "")
    if not running and not entries:
        yield "The trace is off. After odradek trace --start this command names the refused requests too."


def _errors(answer: object) -> Iterator[str]:
    """The names of all error codes in a response but NONE."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name in ("error", "partition_error") and isinstance(value, str) and value != "NONE":
                yield value
            else:
                yield from _errors(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _errors(each)
