"""Places requests and happenings (starts and stops of nodes, elections, hits of rules) in a timeline.

A request is placed before the first event that it caused, a rule's hit between the states before and after it, everything
else at its time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter

from broker.injection.happenings import Happening
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.transactions.transaction import PREPARED, TransactionState
from lab.trace.exchange import Exchange
from lab.trace.timeline_records import (
    NEVER_MS,
    BatchKey,
    BatchWritten,
    Event,
    MarkerWritten,
    StateRecord,
    TopicPartition,
)

_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _ADD_OFFSETS, _END_TXN = 0, 22, 24, 25, 26
_WRITE_MARKERS, _TXN_OFFSET_COMMIT = 27, 28
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
_JOINING = (_PRODUCE, _ADD_PARTITIONS, _ADD_OFFSETS, _TXN_OFFSET_COMMIT)


def with_exchanges(
    events: list[Event], exchanges: Iterable[Exchange], sent: Mapping[int, Collection[BatchKey]]
) -> list[Event]:
    """Insert each exchange before the first event that it caused, or at its time if it caused no event."""
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
    """Order the events of one millisecond by the arrival of the requests that caused them; add these requests.

    ``causes``: event -> the event of the request that caused it.
    """
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
    """The first event that the exchange can have caused. Events in ``taken`` have another cause, and are skipped."""
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
    """For each event, the latest ``order_ms`` of this event and all earlier events."""
    return list(accumulate((event.order_ms for event in events), max))


def _may_cause(exchange: Exchange, event: Event, sent: Collection[BatchKey] | None) -> bool:
    match event.what:
        case StateRecord() as record if record.state is TransactionState.ONGOING:
            return exchange.api_key in _JOINING and _may_join(exchange.api_key, event.joined, sent)
        case StateRecord() as record if record.state in PREPARED:
            # InitProducerId aborts the transaction that an earlier producer has left open.
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
    """Whether the API can have added these partitions to the transaction (Produce: implicitly, KIP-890)."""
    if api_key in (_ADD_OFFSETS, _TXN_OFFSET_COMMIT):
        return any(topic == CONSUMER_OFFSETS for topic, _ in joined)
    if api_key == _PRODUCE and sent is not None:
        return not {key[:2] for key in sent}.isdisjoint(joined)
    return any(topic != CONSUMER_OFFSETS for topic, _ in joined)


# -- happenings -----------------------------------------------------------------------------------------------------

# The state that follows a hit at an API or a point. A hit anywhere else comes first in its millisecond.
_LEADS_TO = {"EndTxn": PREPARED, "txn.prepare.append": PREPARED, "txn.complete.append": COMPLETE}
_AFTER_THE_DECISION = ("txn.marker", "WriteTxnMarkers")


def with_happenings(
    events: list[Event], happenings: Iterable[Happening], transactional_id: str, *, is_over: bool
) -> list[Event]:
    """Insert the happenings at their times, from the timeline's first event on, and, if ``is_over``, up to its last event.

    Within one millisecond a rule's hit comes before the event that it acts on, and after the event that led to it.
    """
    if not events:
        return events
    reached_ms = _running(events)
    found: list[Event] = []
    done = 0
    for each in happenings:
        if each.time_ms < events[0].order_ms or (is_over and each.time_ms > reached_ms[-1]):
            continue
        first = max(done, bisect_left(reached_ms, each.time_ms))
        index = _within_millisecond(each.at, events, first, bisect_right(reached_ms, each.time_ms))
        found += events[done:index]
        named = transactional_id in each.transactional_ids
        found.append(Event(each, _open_at(events, index) if named else None, each.time_ms))
        done = index
    return found + events[done:]


def _within_millisecond(at: str, events: Sequence[Event], first: int, end: int) -> int:
    """Index at which a rule's hit is inserted among ``events[first:end]``, the events of the hit's millisecond.

    ``at`` is the API or injection point of the hit.
    """
    for index in range(first, end):
        what = events[index].what
        state = what.state if isinstance(what, StateRecord) else None
        if state in _LEADS_TO.get(at, ()):
            return index
        if at in _AFTER_THE_DECISION:
            if state in PREPARED:
                return index + 1
            if state in COMPLETE or isinstance(what, MarkerWritten):
                return first
    return first


def _open_at(events: Sequence[Event], index: int) -> int | None:
    """Number of the transaction that is open before ``events[index]``; None if there is none."""
    states = (event for event in reversed(events[:index]) if isinstance(event.what, StateRecord))
    last = next(states, None)
    if last is None or not isinstance(last.what, StateRecord) or last.what.state in COMPLETE:
        return None
    return last.transaction
