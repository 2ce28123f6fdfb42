"""The life of one transactional id, put together from what the logs hold of it. Pure: records in, a timeline out.

The logs say what happened in each of them, and in which order; between logs there is only the time, in milliseconds, and
of a client's batch not even the broker's. So the order is built from what must be so: a transaction begins with the state
that says Ongoing; its batches lie behind the state that let their partition join, and before the decision; its markers lie
between the decision and the state that says Complete.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from broker.trace.exchange import Exchange
from broker.transactions.state import PREPARED, State
from protocol.records.transaction_log import TransactionLogValue

TopicPartition = tuple[str, int]
BatchKey = tuple[str, int, int, int, int]
"""Topic, partition, producer id and epoch, first sequence: which batch it is, also before it has an offset."""

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
COMMITTING, ABORTING = "committing", "aborting"
_COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
_NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scanned:
    """A part of a log that was read: of which partition, where, and whether it was all that could matter."""

    topic: str
    partition: int
    node_id: int
    from_offset: int
    end_offset: int
    is_whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class StateRecord:
    """A record of ``__transaction_state`` for the id; no value: it was forgotten."""

    node_id: int
    topic: str
    partition: int
    offset: int
    time_ms: int
    value: TransactionLogValue | None

    @property
    def state(self) -> State | None:
        return None if self.value is None else State(self.value.transaction_status)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        if self.value is None:
            return frozenset()
        return frozenset(
            (topic.topic, index)
            for topic in self.value.transaction_partitions or ()
            for index in topic.partition_ids
        )


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset of a group, written in the transaction."""

    group_id: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class BatchWritten:
    """A batch of one of the id's producers; in ``__consumer_offsets`` it holds offsets of a group."""

    node_id: int
    topic: str
    partition: int
    offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    records: int
    bytes: int
    time_ms: int
    leader_epoch: int
    is_transactional: bool = True
    offsets: tuple[CommittedOffset, ...] = ()

    @property
    def key(self) -> BatchKey:
        return self.topic, self.partition, self.producer_id, self.producer_epoch, self.base_sequence


@dataclass(frozen=True, slots=True, eq=False)
class MarkerWritten:
    """The end of a transaction in one partition."""

    node_id: int
    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    time_ms: int
    leader_epoch: int


Written = StateRecord | BatchWritten | MarkerWritten


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One line of a timeline."""

    what: Written | Exchange
    transaction: int | None
    """The number of the transaction that it belongs to, from 1; None: to none that is known."""
    order_ms: int
    """Where it stands in time; of a batch what its client said, moved to where it must have been."""
    joined: tuple[TopicPartition, ...] = ()
    """Of a state: the partitions that the record before it of the same transaction does not have."""


@dataclass(slots=True, eq=False)
class Life:
    """One transaction: from Ongoing to Complete, as far as the log still has it."""

    number: int
    states: list[StateRecord] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)

    def state_in(self, states: tuple[State, ...]) -> StateRecord | None:
        return next((record for record in self.states if record.state in states), None)

    @property
    def ongoing(self) -> StateRecord | None:
        return self.state_in((State.ONGOING,))

    @property
    def decided(self) -> StateRecord | None:
        return self.state_in(PREPARED)

    @property
    def completed(self) -> StateRecord | None:
        return self.state_in(_COMPLETE)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset[TopicPartition]().union(*(record.partitions for record in self.states))

    @property
    def producer_ids(self) -> frozenset[int]:
        """Of its batches and markers. In Complete the id may be the next transaction's already."""
        values = [record.value for record in self.states if record.value is not None]
        found = {value.producer_id for value in values if value.transaction_status not in _COMPLETE}
        if not found:
            found = {value.producer_id for value in values}
            found |= {value.previous_producer_id for value in values if value.previous_producer_id >= 0}
        return frozenset(found)

    @property
    def producer_epoch(self) -> int | None:
        """Of its batches; None where the log has no Ongoing of it any more."""
        return (
            None if self.ongoing is None or self.ongoing.value is None else self.ongoing.value.producer_epoch
        )

    @property
    def is_commit(self) -> bool | None:
        """None: not decided."""
        for record in (self.decided, self.completed):
            if record is not None:
                return record.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        return None

    @property
    def verdict(self) -> str:
        if self.is_commit is None:
            return OPEN
        if self.completed is None:
            return COMMITTING if self.is_commit else ABORTING
        return COMMITTED if self.is_commit else ABORTED

    @property
    def records(self) -> int:
        """Of its batches, without group offsets."""
        return sum(batch.records for part in self.parts for batch in part.batches if not batch.offsets)


@dataclass(slots=True, eq=False)
class _Part:
    """What a producer wrote to one partition up to a marker; without one, up to the log's end."""

    place: TopicPartition
    producer_id: int
    batches: list[BatchWritten] = field(default_factory=list)
    marker: MarkerWritten | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """All that is known of an id."""

    transactional_id: str
    lives: tuple[Life, ...]
    events: tuple[Event, ...]
    """In order."""
    scanned: tuple[Scanned, ...] = ()


def assemble(
    transactional_id: str,
    states: Iterable[StateRecord],
    written: Iterable[BatchWritten | MarkerWritten],
    exchanges: Sequence[Exchange] = (),
    sent: Mapping[int, Collection[BatchKey]] | None = None,
    scanned: Sequence[Scanned] = (),
) -> Assembled:
    """Put records, batches, markers and exchanges of one id in order.

    ``states`` are in the order of the log; ``written`` holds what the id's producers wrote anywhere, each partition in
    the order of its log; ``exchanges`` are in the order of arrival, and ``sent`` says by their numbers which batches they
    brought: then it is known when those came.
    """
    states, sent = list(states), sent or {}
    lives = _lives(states)
    stray = [part for part in _parts(written) if not _assign(part, lives)]
    events = _in_order(states, lives, _arrivals(exchanges, sent))
    for part in stray:
        _insert_stray(events, part)
    return Assembled(
        transactional_id, tuple(lives), tuple(_with_exchanges(events, exchanges, sent)), tuple(scanned)
    )


# -- transactions ---------------------------------------------------------------------------------------------------


def _lives(states: Iterable[StateRecord]) -> list[Life]:
    lives: list[Life] = []
    current: Life | None = None
    for record in states:
        state = record.state
        if state is None or state is State.EMPTY:
            current = None
            continue
        if current is None or (state is State.ONGOING and current.is_commit is not None):
            current = Life(len(lives) + 1)
            lives.append(current)
        current.states.append(record)
        if state in _COMPLETE:
            current = None
    return lives


def _parts(written: Iterable[BatchWritten | MarkerWritten]) -> list[_Part]:
    """What was written, cut at the markers."""
    parts: list[_Part] = []
    under_way: dict[tuple[TopicPartition, int], _Part] = {}
    for each in written:
        place = (each.topic, each.partition)
        key = (place, each.producer_id)
        part = under_way.get(key)
        if part is None:
            part = under_way[key] = _Part(place, each.producer_id)
            parts.append(part)
        if isinstance(each, MarkerWritten):
            part.marker = each
            del under_way[key]
        else:
            part.batches.append(each)
    return parts


def _assign(part: _Part, lives: Sequence[Life]) -> bool:
    """Give it to the transaction that it belongs to: the first that fits and has nothing in this partition yet."""
    fitting = [life for life in lives if _fits(part, life)]
    if not fitting:
        return False
    free = (life for life in fitting if all(other.place != part.place for other in life.parts))
    next(free, fitting[-1]).parts.append(part)
    return True


def _fits(part: _Part, life: Life) -> bool:
    if part.producer_id not in life.producer_ids:
        return False
    partitions = life.partitions
    if partitions and part.place not in partitions:
        return False
    epoch = life.producer_epoch
    if epoch is not None and any(batch.producer_epoch != epoch for batch in part.batches):
        return False
    if part.marker is None:
        return life.completed is None
    return _marker_fits(part.marker, life)


def _marker_fits(marker: MarkerWritten, life: Life) -> bool:
    if life.is_commit not in (None, marker.committed):
        return False
    first_ms = (life.decided or life.states[0]).time_ms if life.decided or life.ongoing else 0
    last_ms = life.completed.time_ms if life.completed is not None else _NEVER_MS
    return first_ms <= marker.time_ms <= last_ms


# -- order ----------------------------------------------------------------------------------------------------------


def _arrivals(exchanges: Iterable[Exchange], sent: Mapping[int, Collection[BatchKey]]) -> dict[BatchKey, int]:
    """When each batch came, the first time."""
    found: dict[BatchKey, int] = {}
    for exchange in exchanges:
        for key in sent.get(exchange.number, ()):
            found.setdefault(key, exchange.arrived_ms)
    return found


def _in_order(
    states: Sequence[StateRecord], lives: Sequence[Life], arrivals_ms: Mapping[BatchKey, int]
) -> list[Event]:
    """The states as the log has them, and within each transaction what was written in it."""
    begins = {life.states[0]: life for life in lives}
    inside = {record for life in lives for record in life.states}
    events: list[Event] = []
    for record in states:
        if record in begins:
            events += _life_in_order(begins[record], arrivals_ms)
        elif record not in inside:
            events.append(Event(record, None, record.time_ms))
    return events


# Of one millisecond: a partition joins, is written to, the decision falls, markers are written, all is done.
_RANKS = {State.ONGOING: 0, State.PREPARE_COMMIT: 2, State.PREPARE_ABORT: 2}
_BATCH_RANK, _MARKER_RANK, _COMPLETE_RANK = 1, 3, 4


def _life_in_order(life: Life, arrivals_ms: Mapping[BatchKey, int]) -> list[Event]:
    ranked: list[tuple[int, int, Event]] = []
    joined_ms: dict[TopicPartition, int] = {}
    so_far: frozenset[TopicPartition] = frozenset()
    for record in life.states:
        joined = record.partitions - so_far
        so_far |= joined
        joined_ms.update(dict.fromkeys(joined, record.time_ms))
        rank = _COMPLETE_RANK if record.state is None else _RANKS.get(record.state, _COMPLETE_RANK)
        event = Event(record, life.number, record.time_ms, tuple(sorted(joined)))
        ranked.append((record.time_ms, rank, event))
    end = life.decided or life.completed
    end_ms = end.time_ms if end is not None else _NEVER_MS
    for part in life.parts:
        at_ms = joined_ms.get(part.place, 0)
        for batch in part.batches:
            at_ms = max(at_ms, min(arrivals_ms.get(batch.key, batch.time_ms), end_ms))
            ranked.append((at_ms, _BATCH_RANK, Event(batch, life.number, at_ms)))
        if part.marker is not None:
            marker = part.marker
            ranked.append((marker.time_ms, _MARKER_RANK, Event(marker, life.number, marker.time_ms)))
    ranked.sort(key=lambda each: each[:2])
    return [event for _, _, event in ranked]


def _insert_stray(events: list[Event], part: _Part) -> None:
    """What belongs to no transaction that the log of states knows: where its time is."""
    at_ms = 0
    written: list[BatchWritten | MarkerWritten] = [*part.batches]
    if part.marker is not None:
        written.append(part.marker)
    for each in written:
        at_ms = max(at_ms, each.time_ms)
        index = next((i for i, event in enumerate(events) if event.order_ms > at_ms), len(events))
        events.insert(index, Event(each, None, at_ms))


# -- exchanges ------------------------------------------------------------------------------------------------------

_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _ADD_OFFSETS, _END_TXN = 0, 22, 24, 25, 26
_WRITE_MARKERS, _TXN_OFFSET_COMMIT = 27, 28
_BEGINS = (State.ONGOING,)
_CAUSED_STATES: dict[int, tuple[State, ...]] = {
    _PRODUCE: _BEGINS,
    _INIT_PRODUCER_ID: (State.EMPTY, State.PREPARE_ABORT),
    _ADD_PARTITIONS: _BEGINS,
    _ADD_OFFSETS: _BEGINS,
    _END_TXN: PREPARED,
    _TXN_OFFSET_COMMIT: _BEGINS,
}


def _with_exchanges(
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
    for event in events:
        if event in causes:
            ordered.append(causes[event])
        ordered.append(event)
    return _with_others(ordered, others)


def _effect(
    exchange: Exchange,
    events: Sequence[Event],
    reached_ms: Sequence[int],
    taken: Container[Event],
    sent: Collection[BatchKey] | None,
) -> Event | None:
    """The first thing that can have come of it and of no other: one thing has one cause."""
    end_ms = exchange.answered_ms if exchange.answered_ms is not None else _NEVER_MS
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
        case StateRecord():
            return event.what.state in _CAUSED_STATES.get(exchange.api_key, ())
        case BatchWritten() as batch if batch.offsets:
            return exchange.api_key == _TXN_OFFSET_COMMIT
        case BatchWritten() as batch:
            return exchange.api_key == _PRODUCE and (sent is None or batch.key in sent)
        case MarkerWritten():
            return exchange.api_key == _WRITE_MARKERS
    return False
