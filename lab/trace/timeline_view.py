"""Formats a timeline as JSON, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from broker.injection.happenings import Happening
from broker.logging.printable import printable
from broker.transactions.transaction import TransactionState
from lab.trace.exchange import Exchange, Names, no_names
from lab.trace.json_form import to_json
from lab.trace.lines import text_line, time_of_day
from lab.trace.timeline import Assembled, TransactionTimeline
from lab.trace.timeline_records import BatchWritten, Event, MarkerWritten, StateRecord, TopicPartition
from protocol.records.transaction_log import TIMEOUT_NEVER_MS

Json = dict[str, Any]
_HEAD = ("TIME (UTC)", "TX", "NODE", "WHERE", "WHAT")


class Timeline:
    """The timeline of one transactional id, ready to be shown."""

    def __init__(self, assembled: Assembled, names: Names = no_names) -> None:
        self.assembled = assembled
        self._names = names

    def to_json(self) -> Json:
        """{"transactional_id", "transactions", "events", "hanging", "scanned"}.

        transactions: number, verdict ("open", "committing", "aborting", "committed", "aborted"), producer_ids,
        producer_epoch, started_ms, decided_ms, completed_ms, partitions (["orders-0"]), records.

        events, in order: kind, time_ms, transaction (its number or null), node; then
          state: topic, partition, offset, state ("Ongoing"; null: a tombstone), producer_id, producer_epoch,
            timeout_ms, partitions, joined
          batch: topic, partition, offset, last_offset, records, bytes, producer_id, producer_epoch, base_sequence,
            last_sequence, leader_epoch; committed group offsets as offsets: [{group_id, topic, partition, offset}]
          marker: topic, partition, offset, marker ("COMMIT", "ABORT"), producer_id, producer_epoch,
            coordinator_epoch, leader_epoch
          exchange: the object of ``to_json`` for the exchange, without the bodies

          node, election, rule: text; a change of a node's state, a new leader, a hit of a rule

        hanging: transactions that are open in a partition while the coordinator has no state for them: topic, partition,
        node, offset (the first one), producer_id, producer_epoch

        scanned: the parts of logs that were read; is_whole false: there may be more before from_offset.
        """
        found = self.assembled
        return {
            "transactional_id": found.transactional_id,
            "transactions": [_life(life) for life in found.transactions],
            "events": [_event(event) for event in found.events],
            "hanging": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "node": each.node_id,
                    "offset": each.offset,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                }
                for each in found.hanging
            ],
            "scanned": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "node": each.node_id,
                    "from_offset": each.from_offset,
                    "end_offset": each.end_offset,
                    "is_whole": each.is_whole,
                }
                for each in found.scanned
            ],
        }

    def to_text(self) -> str:
        """A table: time (for a batch the client's), number of the transaction, node, offset in the log, description."""
        rows = [_HEAD, *(self._row(event) for event in self.assembled.events)]
        return table([*self._summary(), *self._hanging(), ""], rows, self._gaps())

    def _summary(self) -> Iterator[str]:
        yield f"transactional id {self.assembled.transactional_id}"
        for life in self.assembled.transactions:
            places = ", ".join(f"{topic}-{index}" for topic, index in sorted(life.partitions))
            yield f"  transaction {life.number}: {life.verdict}, {_records(life.records)}" + (
                f" and more in {places}"
                if not life.ongoing and not life.parts
                else f", {places}"
                if places
                else ""
            )

    def _hanging(self) -> Iterator[str]:
        for each in self.assembled.hanging:
            yield (
                f"  {each.topic}-{each.partition}: HANGING from offset {each.offset}: the transaction of pid "
                f"{each.producer_id}/{each.producer_epoch} is open on node {each.node_id}, and the coordinator has no "
                "state for it"
            )

    def _gaps(self) -> Iterator[str]:
        for each in self.assembled.scanned:
            if not each.is_whole:
                yield (
                    f"{each.topic}-{each.partition} was read from offset {each.from_offset} on: "
                    "there may be more before it"
                )

    def _row(self, event: Event) -> tuple[str, ...]:
        what = event.what
        number = "" if event.transaction is None else str(event.transaction)
        if isinstance(what, Exchange):
            # The exchange's line begins with time and node, which have columns of their own here.
            _, _, _, asked = text_line(what, self._names).split(" ", 3)
            return time_of_day(what.arrived_ms), number, str(what.node_id), "", asked
        if isinstance(what, Happening):
            node = str(what.node_id) if what.node_id >= 0 else ""
            return time_of_day(what.time_ms), number, node, "", what.text
        where = f"{what.topic}-{what.partition} @{what.offset}"
        return time_of_day(what.time_ms), number, str(what.node_id), where, _said(event)


def table(above: Iterable[str], rows: Sequence[Sequence[str]], below: Iterable[str]) -> str:
    """Rows of equal length as aligned columns, with lines above and below. Characters that cannot be printed are escaped."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    return "\n".join(printable(line).rstrip() for line in [*above, *lines, *below]) + "\n"


def state_name(state: TransactionState) -> str:
    """Kafka's name of a state: ``PrepareCommit``."""
    return state.name.title().replace("_", "")


def _said(event: Event) -> str:
    match event.what:
        case StateRecord() as record:
            return _state_said(record, event.joined)
        case MarkerWritten() as marker:
            said = f"{_decision(marker)} marker of pid {marker.producer_id}/{marker.producer_epoch}"
            said += f", coordinator epoch {marker.coordinator_epoch}"
            return said if event.transaction is not None else f"{said}; of no transaction that is known"
        case BatchWritten() as batch:
            return _batch_said(batch, is_stray=event.transaction is None)
    raise TypeError(event.what)


def _state_said(record: StateRecord, joined: Sequence[TopicPartition]) -> str:
    if record.value is None or record.state is None:
        return "forgotten"
    said = f"{state_name(record.state)} pid {record.value.producer_id}/{record.value.producer_epoch}"
    if record.state is TransactionState.EMPTY:
        timeout_ms = record.value.transaction_timeout_ms
        said += (
            ", never times out" if timeout_ms == TIMEOUT_NEVER_MS else f", times out after {timeout_ms} ms"
        )
    return " ".join([said, *(f"+{topic}-{index}" for topic, index in joined)])


def _batch_said(batch: BatchWritten, *, is_stray: bool) -> str:
    if batch.offsets:
        said = "offsets of " + ", ".join(
            f"{each.group_id}: {each.topic}-{each.partition} -> {each.offset}" for each in batch.offsets
        )
    else:
        said = f"{_records(batch.records)}, sequence {_span(batch.base_sequence, batch.last_sequence)}"
    said += f", pid {batch.producer_id}/{batch.producer_epoch}"
    if not batch.is_transactional:
        return said + ", outside of any transaction"
    return f"{said}; of no transaction that is known" if is_stray else said


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _decision(marker: MarkerWritten) -> str:
    return "COMMIT" if marker.committed else "ABORT"


# -- JSON -----------------------------------------------------------------------------------------------------------


def _life(life: TransactionTimeline) -> Json:
    started, decided, completed = life.ongoing, life.decided, life.completed
    return {
        "number": life.number,
        "verdict": life.verdict,
        "producer_ids": sorted(life.producer_ids),
        "producer_epoch": life.producer_epoch,
        "started_ms": started.time_ms if started else None,
        "decided_ms": decided.time_ms if decided else None,
        "completed_ms": completed.time_ms if completed else None,
        "partitions": _places(life.partitions),
        "records": life.records,
    }


def _event(event: Event) -> Json:
    what = event.what
    if isinstance(what, Exchange):
        shown: Json = {
            "kind": "exchange",
            "time_ms": what.arrived_ms,
            "transaction": event.transaction,
            "node": what.node_id,
        }
        return shown | to_json(what, bodies=False)
    if isinstance(what, Happening):
        return {
            "kind": what.kind,
            "time_ms": what.time_ms,
            "transaction": event.transaction,
            "node": what.node_id,
            "text": what.text,
        }
    shown = {
        "kind": _KINDS[type(what)],
        "time_ms": what.time_ms,
        "transaction": event.transaction,
        "node": what.node_id,
        "topic": what.topic,
        "partition": what.partition,
        "offset": what.offset,
    }
    match what:
        case StateRecord():
            return shown | _state_json(what, event.joined)
        case MarkerWritten():
            return shown | {
                "marker": _decision(what),
                "producer_id": what.producer_id,
                "producer_epoch": what.producer_epoch,
                "coordinator_epoch": what.coordinator_epoch,
                "leader_epoch": what.leader_epoch,
            }
    return shown | _batch_json(what)


_KINDS: dict[type, str] = {StateRecord: "state", BatchWritten: "batch", MarkerWritten: "marker"}


def _state_json(record: StateRecord, joined: Sequence[TopicPartition]) -> Json:
    value = record.value
    return {
        "state": None if record.state is None else state_name(record.state),
        "producer_id": None if value is None else value.producer_id,
        "producer_epoch": None if value is None else value.producer_epoch,
        "timeout_ms": None if value is None else value.transaction_timeout_ms,
        "partitions": _places(record.partitions),
        "joined": _places(joined),
    }


def _batch_json(batch: BatchWritten) -> Json:
    return {
        "last_offset": batch.last_offset,
        "records": batch.records,
        "bytes": batch.bytes,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "offsets": [
            {
                "group_id": each.group_id,
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
            }
            for each in batch.offsets
        ],
    }


def _places(places: Sequence[TopicPartition] | frozenset[TopicPartition]) -> list[str]:
    return [f"{topic}-{index}" for topic, index in sorted(places)]
