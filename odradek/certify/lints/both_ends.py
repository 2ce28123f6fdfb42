"""What a job has read and written at Kafka and at services, and in which order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from odradek.certify.exchanges import Exchange
from odradek.certify.judging.rows import Row
from odradek.certify.lints import contents
from odradek.certify.lints.commits import Commit, commits
from odradek.certify.lints.contents import Content, Subject, subject
from odradek.certify.lints.databases import Block, Statement, blocks, output_tables
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.transactions import transactions, was_taken

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_DONE: Final = ("answered", "answer_lost")


@dataclass(frozen=True, slots=True)
class Event:
    """A record that the job has sent to a topic, or an HTTP request that changes something."""

    number: int
    """Index in the trace."""
    exchange: Exchange
    subject: Subject
    """The record or request, whose output is the topic or a name such as ``http:POST /v1/payments``."""
    visible_number: int
    """Index of the request that made it visible: itself, or the EndTxn of its transaction; -1 if it is not visible."""

    @property
    def output(self) -> str:
        return self.subject.row.topic

    @property
    def content(self) -> Content:
        return self.subject.content

    @property
    def is_visible(self) -> bool:
        return self.visible_number >= 0

    @property
    def is_known(self) -> bool:
        """Whether the client got a response without an error."""
        return self.exchange.outcome == "answered" and not self.exchange.errors


@dataclass(slots=True)
class Input:
    """A record of an input topic."""

    key: tuple[str, int]
    """Topic and partition."""
    offset: int
    content: Content
    numbers: list[int] = field(default_factory=list)
    """Indices of the Fetches that returned it."""


class BothEnds:
    """The transactions of databases, the events, the input and the committed offsets of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.blocks: list[Block] = blocks(evidence)
        self.tables = output_tables(evidence)
        self.commits: list[Commit] = list(commits(evidence))
        self.services = frozenset(each.service for each in evidence.exchanges if each.service)

    @property
    def is_used(self) -> bool:
        """Whether the job uses a service, or is expected to: an output is there."""
        return bool(self.services) or any(":" in each for each in self.evidence.outputs)

    @cached_property
    def events(self) -> list[Event]:
        ends = {}
        numbers = {id(each): number for number, each in enumerate(self.evidence.exchanges)}
        for each in transactions(self.evidence):
            end = numbers[id(each.end)] if each.is_committed and each.end is not None else -1
            ends.update({id(one): end for one in each.outputs})
        return [
            event
            for number, exchange in enumerate(self.evidence.exchanges)
            for event in self._events(number, exchange, ends)
        ]

    def _events(self, number: int, exchange: Exchange, ends: dict[int, int]) -> Iterator[Event]:
        if exchange.api == "Produce":
            is_taken = was_taken(exchange)
            visible = ends.get(id(exchange), -1) if exchange.transactional_id else number if is_taken else -1
            for row in contents.records(exchange):
                if row.topic in self.evidence.outputs:
                    yield Event(number, exchange, self.subject(row), visible)
        elif "method" in exchange.request and exchange.request["method"] not in _READS:
            is_done = exchange.outcome in _DONE and not exchange.errors
            sent = Row(exchange.api, None, str(exchange.request.get("body") or ""))
            yield Event(
                number,
                exchange,
                Subject(sent, None, contents.of_request(exchange)),
                number if is_done else -1,
            )

    @cached_property
    def inputs(self) -> list[Input]:
        found: dict[tuple[tuple[str, int], int], Input] = {}
        names: dict[str, str] = {}
        for number, exchange in enumerate(self.evidence.exchanges):
            if exchange.api != "Fetch":
                continue
            for topic in exchange.request.get("topics") or ():
                names[str(topic.get("topic_id"))] = str(topic.get("topic_name") or topic.get("topic"))
            for topic in (exchange.answer or {}).get("responses") or ():
                name = (
                    topic.get("topic_name") or topic.get("topic") or names.get(str(topic.get("topic_id")), "")
                )
                for partition in topic.get("partitions") or () if name in self.evidence.inputs else ():
                    key = name, int(partition.get("partition_index", 0))
                    for offset, content in contents.fetched(partition):
                        found.setdefault((key, offset), Input(key, offset, content)).numbers.append(number)
        return list(found.values())

    @cached_property
    def _input_values(self) -> Counter[str]:
        """For each value the number of input records that have it."""
        return Counter(value for each in self.inputs for value in each.content.values)

    def subject(self, row: Row) -> Subject:
        """The row as a subject. Its key is the value if the value is in one input record alone, and the key is not."""
        found = subject(row)
        if found.content.fields or found.key is None or not isinstance(row.value, str):
            return found
        counts = self._input_values
        by_value = subject(row._replace(key=row.value))
        return by_value if counts[found.key] != 1 and counts[by_value.key or ""] == 1 else found

    def is_output(self, event: Event) -> bool:
        """Whether the event is a record of an output topic, or a request of an output: ``http:POST /v1/payments``."""
        if not event.exchange.service:
            return event.output in self.evidence.outputs
        path = f"{event.exchange.service}:{event.exchange.request['method']} {event.exchange.request.get('path')}"
        return bool({event.output, path} & self.evidence.outputs)

    # -- what concerns one row -----------------------------------------------------------------------------------

    def blocks_about(self, subject: Subject, tables: frozenset[str] | None = None) -> list[Block]:
        """The transactions with a write that concerns the row, of these tables if they are given.

        If some contain all values of the row, only these: one key may have several rows.
        """
        found = [each for each in self.blocks if each.about(subject, tables)]
        whole = [
            each
            for each in found
            if any(subject.is_whole_in(one.content) for one in each.about(subject, tables))
        ]
        return whole or found

    def events_about(self, subject: Subject, output: str | None = None) -> list[Event]:
        found = [
            each for each in self.events if output in (None, each.output) and subject.is_in(each.content)
        ]
        whole = [each for each in found if subject.is_whole_in(each.content)]
        return whole or found

    def inputs_about(self, subject: Subject, statement: Statement | None = None) -> list[Input]:
        """The input records of a row; of a statement about the row, if it is given."""
        found = [each for each in self.inputs if subject.is_in(each.content)]
        if statement is not None:
            return [each for each in found if statement.given <= each.content.values] or found
        return [each for each in found if subject.is_whole_in(each.content)] or found

    def covering(self, record: Input) -> Commit | None:
        """The first offset commit that marks the record as processed; None if there is none."""
        return next(
            (
                each
                for each in self.commits
                if each.key == record.key and each.offset > record.offset and each.number > record.numbers[0]
            ),
            None,
        )

    def is_over_before(self, one: int, two: int) -> bool:
        """Whether the first request was answered before the second one arrived, so that their order is certain."""
        first = self.evidence.exchanges[one]
        return (
            one < two and (first.answered_us or first.arrived_us) <= self.evidence.exchanges[two].arrived_us
        )

    def is_fetched_between(self, subject: Subject, one: int, two: int) -> bool:
        """Whether the input record of the row was fetched between these two requests."""
        return any(one < number < two for each in self.inputs_about(subject) for number in each.numbers)

    @property
    def is_captured(self) -> bool:
        """Whether events are made from the database's log, as by Debezium: a connection replicates."""
        return any(each.request.get("kind") == "START_REPLICATION" for each in self.evidence.exchanges)

    # -- relays --------------------------------------------------------------------------------------------------

    @cached_property
    def relayed(self) -> frozenset[str]:
        """Outbox tables: rows are read without a condition on one row, and later deleted or marked, each once."""
        statements = [each for block in self.blocks for each in block.statements]
        read = {name for each in statements if each.returns_rows and not each.where for name in each.tables}
        removed = {name for each in statements if each.kind == "DELETE" for name in each.tables}
        marks: defaultdict[str, list[tuple[tuple[str, str], ...]]] = defaultdict(list)
        for each in statements:
            for name in each.tables if each.kind == "UPDATE" and each.rows else ():
                marks[name].append(tuple(each.where.items()))
        # The row of a table with positions is updated again and again.
        removed |= {name for name, found in marks.items() if 1 < len(found) == len(set(found))}
        return frozenset((read & removed) - self.tables)

    # -- words ---------------------------------------------------------------------------------------------------

    @cached_property
    def _ordinals(self) -> list[int]:
        counts: Counter[str] = Counter()
        found = []
        for each in self.evidence.exchanges:
            counts[label(each)] += 1
            found.append(counts[label(each)])
        return found

    def named(self, number: int) -> str:
        """A request with its ordinal and its time: ``postgres COMMIT #2 at 12:00:01.123``."""
        exchange = self.evidence.exchanges[number]
        return f"{label(exchange)} #{self._ordinals[number]} at {clock(exchange.arrived_us)}"

    def pair(self, one: int, two: int | None, otherwise: str = "") -> str:
        """The two requests between which the ends came to differ. ``otherwise`` stands for a second one that is missing."""
        return f"{self.named(one)}, then {otherwise if two is None else self.named(two)}"


def label(exchange: Exchange) -> str:
    """The name of a request: ``postgres COMMIT``, ``Produce out``."""
    if exchange.service:
        return f"{exchange.service} {exchange.api.partition(':')[2]}"
    return " ".join([exchange.api, *exchange.topics[:1]])


def clock(at_us: int) -> str:
    """Time of day (UTC) with milliseconds.

    >>> clock(1_123_000)
    '00:00:01.123'
    """
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime("%H:%M:%S.%f")[:-3]
