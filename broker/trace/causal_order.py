"""Where requests belong in a timeline: each before the first thing that it has brought about, else where its time is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter

from broker.metadata.topics import CONSUMER_OFFSETS
from broker.trace.exchange import Exchange
from broker.trace.timeline_records import (
    NEVER_MS,
    BatchKey,
    BatchWritten,
    Event,
    MarkerWritten,
    StateRecord,
    TopicPartition,
)
from broker.transactions.transaction import PREPARED, TransactionState

_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _ADD_OFFSETS, _END_TXN = 0, 22, 24, 25, 26
_WRITE_MARKERS, _TXN_OFFSET_COMMIT = 27, 28
_JOINING = (_PRODUCE, _ADD_PARTITIONS, _ADD_OFFSETS, _TXN_OFFSET_COMMIT)


def with_exchanges(
    events: list[Event], exchanges: Iterable[Exchange], sent: Mapping[int, Collection[BatchKey]]
) -> list[Event]:
    """Each exchange before the first thing that it has brought about; else where its time is."""
    causes: dict[Event, Event] = {}
    others: list[Exchange] = []
    reached_ms = _running(events)
    for exchange in exchanges:
        effect = _effect(exchange, events, reached_ms, causes, sent.get(exchange.number))
        if effect is None:
            others.append(exchange)
        else:
            causes[effect] = Event(exchange, effect.transaction, effect.order_ms)
    ordered: list[Event] = []
    for _, same_time in groupby(events, key=lambda event: event.order_ms):
        ordered += _by_cause(list(same_time), causes)
    return _with_others(ordered, others)


def _by_cause(events: Sequence[Event], causes: Mapping[Event, Event]) -> list[Event]:
    """Of one millisecond: in the order of the requests that brought them about, which is known."""
    groups: list[tuple[int, list[Event]]] = [(0, [])]
    for event in events:
        cause = causes.get(event)
        if cause is not None and isinstance(cause.what, Exchange):
            groups.append((cause.what.number, [cause]))
        groups[-1][1].append(event)
    return [event for _, group in sorted(groups, key=itemgetter(0)) for event in group]


def _effect(
    exchange: Exchange,
    events: Sequence[Event],
    reached_ms: Sequence[int],
    taken: Container[Event],
    sent: Collection[BatchKey] | None,
) -> Event | None:
    """The first thing that can have come of it and of no other: one thing has one cause."""
    end_ms = exchange.answered_ms if exchange.answered_ms is not None else NEVER_MS
    for index in range(bisect_left(reached_ms, exchange.arrived_ms), len(events)):
        if reached_ms[index] > end_ms:
            return None
        event = events[index]
        if event in taken or event.order_ms < exchange.arrived_ms:
            continue
        if _may_cause(exchange, event, sent):
            return event
    return None


def _with_others(ordered: list[Event], others: Sequence[Exchange]) -> list[Event]:
    reached_ms = _running(ordered)
    placed: defaultdict[int, list[Event]] = defaultdict(list)
    for exchange in others:
        index = bisect_right(reached_ms, exchange.arrived_ms)
        while index and _came_later(ordered[index - 1], exchange):
            index -= 1
        before = ordered[index - 1].transaction if index else None
        after = ordered[index].transaction if index < len(ordered) else None
        inside = before if before == after else None
        placed[index].append(Event(exchange, inside, exchange.arrived_ms))
    found: list[Event] = []
    for index, event in enumerate(ordered):
        found += placed[index]
        found.append(event)
    return found + placed[len(ordered)]


def _came_later(event: Event, exchange: Exchange) -> bool:
    return isinstance(event.what, Exchange) and event.what.number > exchange.number


def _running(events: Iterable[Event]) -> list[int]:
    """Of each event the latest time so far."""
    return list(accumulate((event.order_ms for event in events), max))


def _may_cause(exchange: Exchange, event: Event, sent: Collection[BatchKey] | None) -> bool:
    match event.what:
        case StateRecord() as record if record.state is TransactionState.ONGOING:
            return exchange.api_key in _JOINING and _may_join(exchange.api_key, event.joined, sent)
        case StateRecord() as record if record.state in PREPARED:
            # InitProducerId ends what an earlier producer has left open.
            return exchange.api_key in (_END_TXN, _INIT_PRODUCER_ID)
        case StateRecord() as record:
            return exchange.api_key == _INIT_PRODUCER_ID and record.state is TransactionState.EMPTY
        case BatchWritten() as batch if batch.offsets:
            return exchange.api_key == _TXN_OFFSET_COMMIT
        case BatchWritten() as batch:
            return exchange.api_key == _PRODUCE and (sent is None or batch.key in sent)
        case MarkerWritten():
            return exchange.api_key == _WRITE_MARKERS
    return False


def _may_join(api_key: int, joined: Iterable[TopicPartition], sent: Collection[BatchKey] | None) -> bool:
    """Produce and TxnOffsetCommit let their own partitions join (KIP-890), where the client has not asked before."""
    if api_key in (_ADD_OFFSETS, _TXN_OFFSET_COMMIT):
        return any(topic == CONSUMER_OFFSETS for topic, _ in joined)
    if api_key == _PRODUCE and sent is not None:
        return not {key[:2] for key in sent}.isdisjoint(joined)
    return any(topic != CONSUMER_OFFSETS for topic, _ in joined)
