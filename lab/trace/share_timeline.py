"""The timeline of a share partition, of one record in it, or of a share group (KIP-932).

The log of the share coordinator has the states that were written, the trace has who acquired and acknowledged records. Locks
are only in memory, so a lock that runs out is seen by the state that is written then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final
from uuid import UUID

from broker.metadata.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from broker.node import Node
from broker.share.state import SharePartitionKey
from lab.trace.decoding import Decoded, answer_dict, request_dict
from lab.trace.exchange import Exchange, Names
from lab.trace.lines import ACKNOWLEDGE_TYPES, DELIVERY_STATES, range_text, time_of_day, value_name
from lab.trace.reading import NodesScan
from lab.trace.scanning import ScanLimits
from lab.trace.timeline_records import Scanned, TopicPartition
from lab.trace.timeline_view import table
from lab.trace.trace import Trace
from protocol.batch import Record
from protocol.record import CorruptBatch
from protocol.records import group_log, share_group_log, share_state_log
from protocol.records.share_state_log import ShareSnapshotValue, ShareUpdateValue
from protocol.schema import MalformedRecord
from protocol.slotted import slotted

SHARE_APIS: Final = (78, 79)
"""Keys of ShareFetch and ShareAcknowledge."""
SLACK_MS: Final = 2
"""How far the timestamp of a record may be from the trace's clock, in milliseconds."""
FINAL_EPOCH: Final = -1
"""Epoch of the last request of a share session."""
_HEAD: Final = ("TIME (UTC)", "NODE", "WHERE", "WHAT")


Read = tuple[str, str, str | None, tuple[Decoded, ...]]
"""What a record of a log says: kind, text, member id and ranges of a `ShareEvent`."""


@slotted(frozen=True)
class ShareEvent:
    """One line of the timeline."""

    kind: str
    """acquired, acknowledged, session, stored, dead-letter or group; or that of a `Happening`: node, election, rule"""
    time_ms: int
    node_id: int
    text: str
    where: str = ""
    """The record of an event that was read from a log: ``__share_group_state-3 @17``."""
    member_id: str | None = None
    ranges: tuple[Decoded, ...] = ()
    order_us: int | None = None
    """Time of a request or response in microseconds; None if only ``time_ms`` is known."""
    answered_ms: int | None = None
    """For acknowledgements that succeeded: the time of the response."""


@slotted(frozen=True)
class ShareTimeline:
    """The events of a share partition, of one record, or of a group, by time."""

    subject: str
    events: Sequence[ShareEvent]
    scanned: Sequence[Scanned] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "events": [
                {
                    "kind": each.kind,
                    "time_ms": each.time_ms,
                    "node": each.node_id,
                    "where": each.where,
                    "member_id": each.member_id,
                    "ranges": list(each.ranges),
                    "text": each.text,
                }
                for each in self.events
            ],
            "is_whole": all(each.is_whole for each in self.scanned),
        }

    def to_text(self) -> str:
        rows = [
            (time_of_day(each.time_ms), str(each.node_id) if each.node_id >= 0 else "", each.where, each.text)
            for each in self.events
        ]
        gaps = [
            f"{each.topic}-{each.partition} was read from offset {each.from_offset} on: there may be more before it"
            for each in self.scanned
            if not each.is_whole
        ]
        return table([self.subject, ""], [_HEAD, *rows], gaps)


async def share_timeline(
    nodes: Sequence[Node], group_id: str, place: TopicPartition | None, offset: int | None, trace: Trace
) -> ShareTimeline:
    """The timeline of the share partition ``place``, or of its record at ``offset``; without ``place``, that of the group.

    Raises LookupError if the topic does not exist.
    """
    scan = NodesScan(nodes, ScanLimits())
    if not nodes:
        return ShareTimeline(f"group {group_id}", ())
    if place is None:
        home = CONSUMER_OFFSETS, nodes[0].groups.partition_for(group_id)
        found = [
            event
            async for event in _of_log(
                scan, home, lambda record: _of_group(record, group_id, nodes[0].topic_name)
            )
        ]
        return _assembled(f"group {group_id}", found, scan, frozenset({home}))
    topic = nodes[0].metadata.topic(place[0])
    if topic is None:
        raise LookupError(place[0])
    key = SharePartitionKey(group_id, topic.topic_id, place[1])
    home = SHARE_GROUP_STATE, nodes[0].share_coordinator.partition_for(key.coordinator_key)
    found = [event async for event in _of_log(scan, home, lambda record: _stored(record, key, offset))]
    exchanges = [each for each in trace.entries() if each.api_key in SHARE_APIS]
    found += await asyncio.to_thread(lambda: list(_of_trace(exchanges, key, offset)))
    for node in nodes:
        managed = node.share.loaded().get(key)
        for attempt in () if managed is None else managed.attempts:
            if offset is None or attempt.first_offset <= offset <= attempt.last_offset:
                text = (
                    attempt.failure
                    or f"written to {attempt.written_to} from offset {attempt.written_offset} on"
                )
                ranges = ({"first_offset": attempt.first_offset, "last_offset": attempt.last_offset},)
                text = f"dead letter of {range_text(ranges[0])}: {text}"
                found.append(ShareEvent("dead-letter", attempt.at_ms, node.node_id, text, ranges=ranges))
    name = f"{place[0]}-{place[1]} in share group {group_id}"
    subject = name if offset is None else f"record {offset} of {name}"
    return _assembled(subject, found, scan, frozenset({place, home}))


def _assembled(
    subject: str, found: list[ShareEvent], scan: NodesScan, places: frozenset[TopicPartition]
) -> ShareTimeline:
    found += [
        ShareEvent(each.kind, each.time_ms, each.node_id, each.text)
        for each in scan.happenings()
        if each.concerns("", places)
    ]
    return ShareTimeline(subject, in_order(found), scan.scanned)


def in_order(found: Sequence[ShareEvent]) -> list[ShareEvent]:
    """The events by time. A state that was written while an acknowledgement of its records waited follows the latter.

    Times of records have milliseconds only, and several requests may arrive in one.
    """
    acknowledged = sorted(
        (each for each in found if each.answered_ms is not None), key=lambda each: each.order_us or 0
    )
    keys: list[tuple[int, ShareEvent]] = []
    for each in found:
        cause = None
        if each.kind == "stored":
            cause = next((ack for ack in acknowledged if _caused(ack, each)), None)
        if cause is not None:
            acknowledged.remove(cause)
        order_us = each.order_us if cause is None else cause.order_us
        keys.append((each.time_ms * 1000 if order_us is None else order_us, each))
    return [each for _, each in sorted(keys, key=lambda key: (key[0], key[1].kind == "stored"))]


def _caused(acknowledged: ShareEvent, stored: ShareEvent) -> bool:
    """Whether an acknowledgement may have caused the write of a state: it has its records, and waited meanwhile."""
    first_ms, last_ms = acknowledged.time_ms - SLACK_MS, (acknowledged.answered_ms or 0) + SLACK_MS
    return first_ms <= stored.time_ms <= last_ms and any(
        one["first_offset"] <= other["last_offset"] and other["first_offset"] <= one["last_offset"]
        for one in acknowledged.ranges
        for other in stored.ranges
    )


# -- the logs ---------------------------------------------------------------------------------------------------


async def _of_log(
    scan: NodesScan, home: TopicPartition, read: Callable[[Record], Read | None]
) -> AsyncIterator[ShareEvent]:
    """Yield an event for each record of a log for which ``read`` returns one."""
    async for node_id, batch in scan.batches(home, None):
        try:
            records = () if batch.is_control else list(batch.records())
        except CorruptBatch:
            continue
        for record in records:
            event = read(record)
            if event is not None:
                kind, text, member_id, ranges = event
                where = f"{home[0]}-{home[1]} @{record.offset}"
                yield ShareEvent(kind, record.timestamp, node_id, text, where, member_id, ranges)


def _stored(record: Record, wanted: SharePartitionKey, offset: int | None) -> Read | None:
    """The state that a record of ``__share_group_state`` has written for the share partition."""
    try:
        found = share_state_log.decode_record(record.key or b"", record.value)
    except MalformedRecord:
        return None
    if found is None:
        return None
    key: Any = found[0]
    value: Any = found[1]
    if (key.group_id, key.topic_id, key.partition) != (wanted.group_id, wanted.topic_id, wanted.partition):
        return None
    if value is None:
        return "stored", "the state is deleted", None, ()
    assert isinstance(value, ShareSnapshotValue | ShareUpdateValue)
    ranges = tuple(
        {
            "first_offset": each.first_offset,
            "last_offset": each.last_offset,
            "state": value_name(DELIVERY_STATES, each.delivery_state),
            "delivery_count": each.delivery_count,
        }
        for each in value.state_batches
        if offset is None or each.first_offset <= offset <= each.last_offset
    )
    is_snapshot = isinstance(value, ShareSnapshotValue)
    if offset is not None and not ranges:
        return None
    states = ", ".join(
        f"{each['state']} {range_text(each)} delivery {each['delivery_count']}" for each in ranges
    )
    kind = "snapshot" if is_snapshot else "stored"
    return "stored", f"{kind}, start offset {value.start_offset}{': ' * bool(states)}{states}", None, ranges


def _of_group(record: Record, group_id: str, names: Names) -> Read | None:
    """What a record of ``__consumer_offsets`` says about the share group."""
    try:
        key: Any = group_log.decode_key(record.key or b"")
        if key.TYPE not in group_log.SHARE_GROUP_TYPES or key.group_id != group_id:
            return None
        value: Any = group_log.decode_value(key, record.value)
    except (MalformedRecord, AttributeError):
        return None  # of an unknown type, which the coordinator skips, too
    member_id = getattr(key, "member_id", None)
    return "group", _group_text(key, value, names), member_id, ()


def _group_text(key: Any, value: Any, names: Names) -> str:
    member = f"member {getattr(key, 'member_id', '')}"
    match value:
        case None:
            removed = type(key).__name__.removesuffix("Key")
            return f"{member}: {removed} removed" if hasattr(key, "member_id") else f"{removed} removed"
        case share_group_log.ShareGroupMemberMetadataValue():
            return (
                f"{member} (client {value.client_id}) subscribes to {', '.join(value.subscribed_topic_names)}"
            )
        case share_group_log.ShareGroupMetadataValue():
            return f"group epoch {value.epoch}"
        case share_group_log.ShareGroupTargetAssignmentMetadataValue():
            return f"target assignment of epoch {value.assignment_epoch}"
        case share_group_log.ShareGroupTargetAssignmentMemberValue():
            return f"{member} is to have {_partitions(value.topic_partitions, names)}"
        case share_group_log.ShareGroupCurrentMemberAssignmentValue():
            return (
                f"{member} has {_partitions(value.assigned_partitions, names)} in epoch {value.member_epoch}"
            )
    parts = [
        f"{verb} {', '.join(f'{topic.topic_name} {list(topic.partitions)}' for topic in topics)}"
        for verb, topics in (
            ("initializing", value.initializing_topics),
            ("initialized", value.initialized_topics),
        )
        if topics
    ]
    parts += [f"deleting {topic.topic_name}" for topic in value.deleting_topics]
    return f"share partitions: {', '.join(parts) or 'none'}"


def _partitions(topics: Iterable[Any], names: Names) -> str:
    named = ((names(topic.topic_id) or topic.topic_id, list(topic.partitions)) for topic in topics)
    return ", ".join(f"{name} {indexes}" for name, indexes in named) or "no partitions"


# -- the trace --------------------------------------------------------------------------------------------------


def _of_trace(
    exchanges: Iterable[Exchange], key: SharePartitionKey, offset: int | None
) -> Iterator[ShareEvent]:
    for exchange in exchanges:
        request = request_dict(exchange)
        if request.get("group_id") != key.group_id:
            continue
        answer, member_id = answer_dict(exchange) or {}, request.get("member_id")
        asked = _partition(request.get("topics"), key)
        told = _partition(answer.get("responses"), key)
        batches = [each for each in asked.get("acknowledgement_batches", ()) if _has(each, offset)]
        if batches:
            error = told.get("acknowledge_error", told.get("error", answer.get("error", "no response")))
            ranges = tuple(_acknowledged(each, offset) for each in batches)
            text = ", ".join(f"{each['type']} {range_text(each)}" for each in ranges)
            result = "" if error == "NONE" else f" -> {error}"
            yield ShareEvent(
                "acknowledged",
                exchange.arrived_ms,
                exchange.node_id,
                f"member {member_id}: {text}{result}",
                member_id=member_id,
                ranges=ranges,
                order_us=exchange.arrived_us,
                answered_ms=exchange.answered_ms if error == "NONE" else None,
            )
        if request.get("share_session_epoch") == FINAL_EPOCH and answer.get("error") == "NONE":
            text = f"member {member_id} ends its share session: its records are released"
            yield ShareEvent(
                "session",
                exchange.arrived_ms,
                exchange.node_id,
                text,
                member_id=member_id,
                order_us=exchange.arrived_us,
            )
        acquired = tuple(each for each in told.get("acquired_records", ()) if _has(each, offset))
        if acquired:
            text = ", ".join(f"{range_text(each)} delivery {each['delivery_count']}" for each in acquired)
            yield ShareEvent(
                "acquired",
                exchange.answered_ms or exchange.arrived_ms,
                exchange.node_id,
                f"member {member_id} acquires {text}",
                member_id=member_id,
                ranges=acquired,
                order_us=exchange.answered_us or exchange.arrived_us,
            )


def _partition(topics: Any, key: SharePartitionKey) -> Decoded:
    """The part of a request or response about the share partition; empty if there is none."""
    for topic in topics or ():
        if topic["topic_id"] is not None and UUID(topic["topic_id"]) == key.topic_id:
            for partition in topic["partitions"]:
                if partition["partition_index"] == key.partition:
                    return partition  # type: ignore[no-any-return]
    return {}


def _has(part: Decoded, offset: int | None) -> bool:
    return offset is None or part["first_offset"] <= offset <= part["last_offset"]


def _acknowledged(batch: Decoded, offset: int | None) -> Decoded:
    """An acknowledgement batch as a range with its types, or the part of it for one offset."""
    types, first = batch["acknowledge_types"], batch["first_offset"]
    if offset is not None and len(types) > 1:
        types = types[offset - first : offset - first + 1]
    names = ",".join(dict.fromkeys(value_name(ACKNOWLEDGE_TYPES, each) for each in types))
    span = (first, batch["last_offset"]) if offset is None else (offset, offset)
    return {"first_offset": span[0], "last_offset": span[1], "type": names}
