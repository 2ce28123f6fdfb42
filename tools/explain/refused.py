"""The requests with errors in the trace of a broker of ours, with what each error means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.errors import OdradekError
from odradek.remote import Remote
from tools.client.errors import ToolError

MEANINGS: Final = {
    "INVALID_PRODUCER_EPOCH": "the batch has an older epoch than the partition has seen: the producer is fenced",
    "PRODUCER_FENCED": "the coordinator has given a newer epoch: the producer is fenced",
    "CONCURRENT_TRANSACTIONS": "the transaction before it is still being ended; the client asks again",
    "DUPLICATE_SEQUENCE_NUMBER": "the batch is older than the last five of its producer",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "a sequence is missing: an earlier batch of the producer did not arrive",
    "UNKNOWN_PRODUCER_ID": "the partition has no state of this producer any more",
    "INVALID_TXN_STATE": "the request does not fit the state of the transaction",
    "INVALID_PRODUCER_ID_MAPPING": "the transactional id belongs to another producer id, or has expired",
    "TRANSACTIONAL_ID_NOT_FOUND": "the coordinator does not know the id",
    "NOT_COORDINATOR": "another node coordinates this id; the client looks for it again",
    "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator still reads its log; the client asks again",
    "NOT_LEADER_OR_FOLLOWER": "another node leads the partition; the client asks for metadata again",
    "NOT_ENOUGH_REPLICAS": "the ISR is smaller than min.insync.replicas: nothing was written",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "the ISR became smaller than min.insync.replicas after the write",
    "MESSAGE_TOO_LARGE": "the batch is larger than max.message.bytes",
    "CORRUPT_MESSAGE": "the CRC of the batch is wrong",
    "INVALID_RECORD": "a record is not what the topic allows: no key in a compacted topic, or a wrong sequence",
    "INVALID_TIMESTAMP": "a timestamp is too far from the broker's time (message.timestamp.before.max.ms, .after.max.ms)",
    "UNSUPPORTED_COMPRESSION_TYPE": "this version of Produce does not allow the codec",
    "REQUEST_TIMED_OUT": "the followers did not have the batch in time; it may be committed all the same",
    "TRANSACTION_ABORTABLE": "the transaction can only be aborted",
    "UNSTABLE_OFFSET_COMMIT": "an open transaction has offsets of the group",
    "KAFKA_STORAGE_ERROR": "the leader cannot use the files of the partition",
}
HOW_TO: Final = "The trace is off. After odradek trace --start this command names the refused requests too."


def refused_of_id(remote: Remote | None, transactional_id: str) -> Iterator[str]:
    """A line for each error in a response to a request about the id."""
    for entry in _entries(remote, transactional_id=transactional_id):
        for name in sorted(set(_errors(entry.get("answer")))):
            yield _line(entry, name)


def refused_batches(remote: Remote | None, topic: str, partition: int) -> Iterator[str]:
    """A line for each batch of the partition that was refused."""
    place = f"{topic}-{partition}:"
    for entry in _entries(remote, api="Produce"):
        # The line of an exchange names partitions by topic, whichever version of Produce it is.
        for word in str(entry["line"]).rpartition(" -> ")[2].replace(",", " ").split():
            if word.startswith(place):
                yield _line(entry, word.removeprefix(place))


def _entries(remote: Remote | None, **filters: object) -> list[dict[str, Any]]:
    if remote is None:
        return []
    try:
        return remote.trace.entries(**filters)
    except OdradekError as error:
        raise ToolError(str(error)) from None


def trace_is_off(remote: Remote | None) -> bool:
    """It is a broker of ours, and its trace records nothing."""
    if remote is None:
        return False
    try:
        return not remote.trace.status["running"]
    except OdradekError as error:
        raise ToolError(str(error)) from None


def _line(entry: Mapping[str, Any], error: str) -> str:
    return f"Refused: {entry['line']}" + (f"  ({MEANINGS[error]})" if error in MEANINGS else "")


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
