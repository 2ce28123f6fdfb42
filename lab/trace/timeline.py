"""Assembles the timeline of one transactional id from its records in the logs. Pure: records in, a timeline out.

Each log has its own order. Between logs there are only timestamps in milliseconds, and those of batches come from the
client's clock. So the order follows from the protocol: a transaction begins with the state Ongoing; its batches are after
the state that added their partition, and before the decision; its markers are between the decision and the state Complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from broker.injection.happenings import Happening
from broker.transactions.transaction import PREPARED, TransactionState
from lab.trace.causal_order import COMPLETE, with_exchanges, with_happenings
from lab.trace.exchange import Exchange
from lab.trace.timeline_records import (
    NEVER_MS,
    BatchKey,
    BatchWritten,
    Event,
    Hanging,
    MarkerWritten,
    Scanned,
    StateRecord,
    TopicPartition,
)
from protocol.slotted import slotted

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
COMMITTING, ABORTING = "committing", "aborting"


@slotted(eq=False)
class TransactionTimeline:
    """One transaction, from Ongoing to Complete, as far as the log still has its records."""

    number: int
    states: list[StateRecord] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)

    def state_in(self, states: tuple[TransactionState, ...]) -> StateRecord | None:
        return next((record for record in self.states if record.state in states), None)

    @property
    def ongoing(self) -> StateRecord | None:
        return self.state_in((TransactionState.ONGOING,))

    @property
    def decided(self) -> StateRecord | None:
        return self.state_in(PREPARED)

    @property
    def completed(self) -> StateRecord | None:
        return self.state_in(COMPLETE)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset[TopicPartition]().union(*(record.partitions for record in self.states))

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids of the batches and markers. The Complete record may have the next id already (KIP-360)."""
        values = [record.value for record in self.states if record.value is not None]
        found = {value.producer_id for value in values if value.transaction_status not in COMPLETE}
        if not found:
            found = {value.producer_id for value in values}
            found |= {value.previous_producer_id for value in values if value.previous_producer_id >= 0}
        return frozenset(found)

    @property
    def producer_epoch(self) -> int | None:
        """Producer epoch of the batches; None if the log no longer has the transaction's Ongoing record."""
        return (
            None if self.ongoing is None or self.ongoing.value is None else self.ongoing.value.producer_epoch
        )

    @property
    def is_commit(self) -> bool | None:
        """Whether the transaction commits; None if it is not decided."""
        for record in (self.decided, self.completed):
            if record is not None:
                return record.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
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
        """Number of records in the transaction's batches, without committed group offsets."""
        return sum(batch.records for part in self.parts for batch in part.batches if not batch.offsets)


@slotted(eq=False)
class _Part:
    """A producer's batches in one partition up to a marker, or up to the end of the log if no marker follows."""

    place: TopicPartition
    producer_id: int
    batches: list[BatchWritten] = field(default_factory=list)
    marker: MarkerWritten | None = None


@slotted(frozen=True)
class Assembled:
    """The timeline of one transactional id, with its transactions and events in order."""

    transactional_id: str
    transactions: tuple[TransactionTimeline, ...]
    events: tuple[Event, ...]
    """The lines of the timeline, in order."""
    scanned: tuple[Scanned, ...] = ()
    hanging: tuple[Hanging, ...] = ()


def assemble(
    transactional_id: str,
    states: Iterable[StateRecord],
    written: Iterable[BatchWritten | MarkerWritten],
    exchanges: Sequence[Exchange] = (),
    sent: Mapping[int, Collection[BatchKey]] | None = None,
    scanned: Sequence[Scanned] = (),
    hanging: Sequence[Hanging] = (),
    happenings: Iterable[Happening] = (),
) -> Assembled:
    """Put records, batches, markers and exchanges of one transactional id in order.

    ``states`` are in the order of the log. ``written`` has the batches and markers of the id's producers, for each
    partition in the order of its log. ``exchanges`` are in the order of arrival. ``sent`` maps the number of a
    Produce's exchange to the batches in it, whose time of arrival is then known.
    """
    states, sent = list(states), sent or {}
    lives = _lives(states)
    late = [part for part in _parts(written) if not _assign(part, lives)]
    stray = [part for part in late if not _assign_out_of_time(part, lives)]
    events = _in_order(states, lives, _arrivals(exchanges, sent))
    for part in stray:
        _insert_stray(events, part)
    events = with_happenings(
        with_exchanges(events, exchanges, sent),
        happenings,
        transactional_id,
        is_over=all(life.completed is not None for life in lives),
    )
    return Assembled(transactional_id, tuple(lives), tuple(events), tuple(scanned), tuple(hanging))


# -- transactions ---------------------------------------------------------------------------------------------------


def _lives(states: Iterable[StateRecord]) -> list[TransactionTimeline]:
    lives: list[TransactionTimeline] = []
    current: TransactionTimeline | None = None
    for record in states:
        state = record.state
        if state is None or state is TransactionState.EMPTY:
            current = None
            continue
        if current is None or (state is TransactionState.ONGOING and current.is_commit is not None):
            current = TransactionTimeline(len(lives) + 1)
            lives.append(current)
        current.states.append(record)
        if state in COMPLETE:
            current = None
    return lives


def _parts(written: Iterable[BatchWritten | MarkerWritten]) -> list[_Part]:
    """The batches and markers of each producer and partition, split after each marker."""
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


def _assign(part: _Part, lives: Sequence[TransactionTimeline]) -> bool:
    """Add a part to the first matching transaction without a part in this partition, else to the last matching one.

    Returns False if none matches.
    """
    fitting = [life for life in lives if _fits(part, life)]
    if not fitting:
        return False
    free = (life for life in fitting if all(other.place != part.place for other in life.parts))
    next(free, fitting[-1]).parts.append(part)
    return True


def _assign_out_of_time(part: _Part, lives: Sequence[TransactionTimeline]) -> bool:
    """Add ``part`` to the first transaction with its partition, producer and outcome, without comparing times.

    A transaction that already has a part in this partition is skipped. Times are not compared, because the clocks
    of nodes differ. Returns False if there is no such transaction.
    """
    if part.marker is None or not part.batches:
        return False
    for life in lives:
        is_free = all(other.place != part.place for other in life.parts)
        joined = part.place in life.partitions and life.is_commit is part.marker.committed
        if is_free and joined and _is_of(part, life):
            life.parts.append(part)
            return True
    return False


def _fits(part: _Part, life: TransactionTimeline) -> bool:
    if not _is_of(part, life):
        return False
    if part.marker is None:
        return life.completed is None
    return _marker_fits(part.marker, life)


def _is_of(part: _Part, life: TransactionTimeline) -> bool:
    """Whether the part's producer, partition and epoch match the transaction."""
    if part.producer_id not in life.producer_ids:
        return False
    partitions = life.partitions
    if partitions and part.place not in partitions:
        return False
    epoch = life.producer_epoch
    return epoch is None or all(batch.producer_epoch == epoch for batch in part.batches)


def _marker_fits(marker: MarkerWritten, life: TransactionTimeline) -> bool:
    if life.is_commit not in (None, marker.committed):
        return False
    first_ms = (life.decided or life.states[0]).time_ms if life.decided or life.ongoing else 0
    last_ms = life.completed.time_ms if life.completed is not None else NEVER_MS
    return first_ms <= marker.time_ms <= last_ms


# -- order ----------------------------------------------------------------------------------------------------------


def _arrivals(exchanges: Iterable[Exchange], sent: Mapping[int, Collection[BatchKey]]) -> dict[BatchKey, int]:
    """Time of the first arrival of each batch."""
    found: dict[BatchKey, int] = {}
    for exchange in exchanges:
        for key in sent.get(exchange.number, ()):
            found.setdefault(key, exchange.arrived_ms)
    return found


def _in_order(
    states: Sequence[StateRecord], lives: Sequence[TransactionTimeline], arrivals_ms: Mapping[BatchKey, int]
) -> list[Event]:
    """State records as events, in the order of the log, with the batches and markers of each transaction."""
    begins = {life.states[0]: life for life in lives}
    inside = {record for life in lives for record in life.states}
    events: list[Event] = []
    for record in states:
        if record in begins:
            events += _life_in_order(begins[record], arrivals_ms)
        elif record not in inside:
            events.append(Event(record, None, record.time_ms))
    return events


# Order in one millisecond: a partition is added, batches, the decision, markers, completion.
_RANKS = {TransactionState.ONGOING: 0, TransactionState.PREPARE_COMMIT: 2, TransactionState.PREPARE_ABORT: 2}
_BATCH_RANK, _MARKER_RANK, _COMPLETE_RANK = 1, 3, 4


def _life_in_order(life: TransactionTimeline, arrivals_ms: Mapping[BatchKey, int]) -> list[Event]:
    ranked: list[tuple[int, int, Event]] = []
    joined_ms: dict[TopicPartition, int] = {}
    so_far: frozenset[TopicPartition] = frozenset()
    reached_ms = decided_ms = 0
    end_ms = last_ms = NEVER_MS
    for record in life.states:
        joined = record.partitions - so_far
        so_far |= joined
        # The order is that of the log, even if a new coordinator's clock is behind the previous one's.
        reached_ms = max(reached_ms, record.time_ms)
        joined_ms.update(dict.fromkeys(joined, reached_ms))
        rank = _COMPLETE_RANK if record.state is None else _RANKS.get(record.state, _COMPLETE_RANK)
        ranked.append((reached_ms, rank, Event(record, life.number, reached_ms, tuple(sorted(joined)))))
        if record is life.decided:
            decided_ms = end_ms = reached_ms
        elif record is life.completed:
            end_ms, last_ms = min(end_ms, reached_ms), reached_ms
    for part in life.parts:
        at_ms = joined_ms.get(part.place, 0)
        for batch in part.batches:
            at_ms = max(at_ms, min(arrivals_ms.get(batch.key, batch.time_ms), end_ms))
            ranked.append((at_ms, _BATCH_RANK, Event(batch, life.number, at_ms)))
        if part.marker is not None:
            at_ms = min(max(part.marker.time_ms, decided_ms), last_ms)
            ranked.append((at_ms, _MARKER_RANK, Event(part.marker, life.number, at_ms)))
    ranked.sort(key=lambda each: each[:2])
    return [event for _, _, event in ranked]


def _insert_stray(events: list[Event], part: _Part) -> None:
    """Insert the events of a part that belongs to no known transaction, by their timestamps."""
    at_ms = 0
    written: list[BatchWritten | MarkerWritten] = [*part.batches]
    if part.marker is not None:
        written.append(part.marker)
    for each in written:
        at_ms = max(at_ms, each.time_ms)
        index = next((i for i, event in enumerate(events) if event.order_ms > at_ms), len(events))
        events.insert(index, Event(each, None, at_ms))
