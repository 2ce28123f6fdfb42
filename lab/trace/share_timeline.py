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

from broker.injection.happenings import Happening
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
from protocol.messages.index import APIS
from protocol.record import CorruptBatch
from protocol.records import group_log, share_group_log, share_state_log
from protocol.records.share_state_log import ShareSnapshotValue, ShareUpdateValue
from protocol.schema import MalformedRecord
from protocol.slotted import slotted
from protocol.versions import message_name

SHARE_APIS: Final = (78, 79)
"""Keys of ShareFetch and ShareAcknowledge."""
SLACK_MS: Final = 2
"""How far the timestamp of a record may be from the trace's clock, in milliseconds."""
WAITED_MS: Final = 100
"""Time from a request to its response from which the timeline shows when the request was sent, in milliseconds."""
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
    """Time of the response in microseconds, of the request if there was none; None if only ``time_ms`` is known."""
    arrived_us: int | None = None
    """Time of the request in microseconds."""
    is_written: bool = False
    """Whether an acknowledgement has waited for the write of a state, and succeeded."""
    log_offset: int | None = None
    """Offset of an event that was read from a log."""
    api: str = ""

    @property
    def at_us(self) -> int:
        return self.time_ms * 1000 if self.order_us is None else self.order_us


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
        return _assembled(f"group {group_id}", found, scan, Wanted(group_id, frozenset({home}), home))
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
    wanted = Wanted(group_id, frozenset({place, home}), home, None if offset is None else (*place, offset))
    return _assembled(subject, found, scan, wanted)


@slotted(frozen=True)
class Wanted:
    """The subject of a timeline, to select the happenings that concern it."""

    group_id: str
    places: frozenset[TopicPartition]
    home: TopicPartition
    record: tuple[str, int, int] | None = None
    """Topic, partition and offset."""

    def concerned(self, each: Happening, found: Sequence[ShareEvent]) -> bool:
        """Whether ``each`` concerns the subject. ``found``: the events of logs and requests."""
        if each.kind != "rule":
            return each.concerns("", self.places)
        if each.groups and self.group_id not in each.groups:
            return False
        if self.record is None:
            return bool(each.groups) or not self.places.isdisjoint(each.partitions)
        topic, partition, offset = self.record
        if any((topic, partition) == named[:2] and named[2] <= offset <= named[3] for named in each.offsets):
            return True
        if self.home in each.partitions:
            return any(_begins_ms(event) <= each.time_ms <= event.time_ms + SLACK_MS for event in found)
        # A ShareFetch does not name the records that its response delivers.
        return any(
            event.api == each.at
            and event.node_id == each.node_id
            and _begins_ms(event) <= each.time_ms <= _begins_ms(event) + 2 * SLACK_MS
            for event in found
            if each.at == "ShareFetch" or not each.offsets
        )


def _begins_ms(event: ShareEvent) -> int:
    """The earliest time at which the request of an event, or its write, may have been intercepted."""
    return (event.time_ms if event.arrived_us is None else event.arrived_us // 1000) - SLACK_MS


def _assembled(subject: str, found: list[ShareEvent], scan: NodesScan, wanted: Wanted) -> ShareTimeline:
    happenings = [
        ShareEvent(each.kind, each.time_ms, each.node_id, each.text)
        for each in scan.happenings()
        if wanted.concerned(each, found)
    ]
    return ShareTimeline(subject, in_order(found + happenings), scan.scanned)


def in_order(found: Sequence[ShareEvent]) -> list[ShareEvent]:
    """The events by time, those of the log in the order of their offsets. A written state precedes the acknowledgement
    that waited for it.

    Times of records have milliseconds only, and several requests may arrive in one. Where the times of the log go back (a
    restart or a fork without the time that was advanced), a new epoch begins. Other events are in the epoch of the next
    acknowledgement with a written state, of the last one if none follows, or else in the newest one that had begun.
    """
    logged = sorted(
        (each for each in found if each.log_offset is not None), key=lambda each: each.log_offset or 0
    )
    others = sorted((each for each in found if each.log_offset is None), key=lambda each: each.at_us)
    waited = sorted((each for each in others if each.is_written), key=lambda each: each.arrived_us or 0)
    begins_us: list[int] = []
    reached_us = 0
    keys: list[tuple[int, int, int, ShareEvent]] = []
    answered: dict[int, tuple[int, int]] = {}
    """By the id of an acknowledgement with a written state: its epoch, and a time that is not before the state's."""
    for each in logged:
        at_us = each.time_ms * 1000
        ack = next((ack for ack in waited if _waited_for(ack, each)), None) if each.ranges else None
        if not begins_us or at_us < reached_us - SLACK_MS * 1000:
            begins_us.append(at_us)
            reached_us = at_us
        if ack is not None:
            at_us = min(max(at_us, ack.arrived_us or 0), ack.at_us)
        reached_us = max(reached_us, at_us)
        if ack is not None:
            waited.remove(ack)
            # A record's timestamp may be a millisecond ahead of the response.
            answered[id(ack)] = (len(begins_us) - 1, max(ack.at_us, reached_us))
        keys.append((len(begins_us) - 1, reached_us, 1, each))
    epoch = next((answered[id(each)][0] for each in reversed(others) if id(each) in answered), None)
    for each in reversed(others):
        epoch, at_us = answered.get(id(each), (epoch, each.at_us))
        begun = sum(begin <= each.at_us + SLACK_MS * 1000 for begin in begins_us)
        keys.append((max(0, begun - 1) if epoch is None else epoch, at_us, _rank(each), each))
    # The sort is stable: events of one response stay in their order.
    position = {id(each): index for index, each in enumerate(found)}
    return [
        key[3]
        for key in sorted(keys, key=lambda key: (*key[:3], key[3].log_offset or 0, position[id(key[3])]))
    ]


def _rank(event: ShareEvent) -> int:
    """Order of events at the same time: hits of rules, states written, responses."""
    return 0 if event.order_us is None else 2


def _waited_for(acknowledged: ShareEvent, stored: ShareEvent) -> bool:
    """Whether an acknowledgement may have waited for the write of a state: it has its records, and waited meanwhile."""
    last_ms = acknowledged.time_ms + SLACK_MS
    return _begins_ms(acknowledged) <= stored.time_ms <= last_ms and any(
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
                yield ShareEvent(
                    kind,
                    record.timestamp,
                    node_id,
                    text,
                    where,
                    member_id,
                    ranges,
                    log_offset=record.offset,
                )


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
        of_exchange: dict[str, Any] = {
            "time_ms": exchange.answered_ms or exchange.arrived_ms,
            "node_id": exchange.node_id,
            "member_id": member_id,
            "order_us": exchange.answered_us or exchange.arrived_us,
            "arrived_us": exchange.arrived_us,
            "api": message_name(APIS[exchange.api_key][0]),
        }
        waited_ms = of_exchange["time_ms"] - exchange.arrived_ms
        sent = f" (sent {time_of_day(exchange.arrived_ms)})" if waited_ms >= WAITED_MS else ""
        if batches:
            error = told.get("acknowledge_error", told.get("error", answer.get("error", "no response")))
            ranges = tuple(_acknowledged(each, offset) for each in batches)
            text = ", ".join(f"{each['type']} {range_text(each)}" for each in ranges)
            result = "" if error == "NONE" else f" -> {error}"
            text = f"member {member_id}: {text}{result}{sent}"
            is_written = error == "NONE"
            yield ShareEvent("acknowledged", text=text, ranges=ranges, is_written=is_written, **of_exchange)
        if request.get("share_session_epoch") == FINAL_EPOCH and answer.get("error") == "NONE":
            text = f"member {member_id} ends its share session: its records are released{sent}"
            yield ShareEvent("session", text=text, **of_exchange)
        acquired = tuple(each for each in told.get("acquired_records", ()) if _has(each, offset))
        if acquired:
            text = ", ".join(f"{range_text(each)} delivery {each['delivery_count']}" for each in acquired)
            yield ShareEvent(
                "acquired", text=f"member {member_id} acquires {text}", ranges=acquired, **of_exchange
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
