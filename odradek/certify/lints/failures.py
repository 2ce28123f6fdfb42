"""A failure prepared for its diagnosis: the bad records, the requests that wrote them, and the requests hit by faults.

The diagnosis uses only the trace and the partitions and offsets of the records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from odradek.certify.exchanges import Exchange, batches
from odradek.certify.judging.findings import Kind
from odradek.certify.judging.rows import Row
from odradek.certify.lints.commits import commits
from odradek.certify.lints.evidence import Evidence, Lint
from odradek.certify.lints.transactions import Transaction, transactions, was_taken
from odradek.certify.plans.plan import Injection, Plan


@dataclass(frozen=True, slots=True)
class Place:
    """Partition and offset of a record, with its producer."""

    topic: str
    partition: int
    offset: int
    producer: tuple[int, int] | None = None
    """Producer id and epoch; None for a producer without idempotence."""


@dataclass(frozen=True, slots=True)
class Bad:
    """The findings of a run, in the form that the diagnosis needs."""

    kinds: frozenset[Kind]
    repeated: tuple[tuple[Place, ...], ...] = ()
    """For each duplicated row, the places of its records."""
    missing: tuple[tuple[Place, ...], ...] = ()
    """For each lost row, its places in aborted or open transactions; empty if the row was never written."""
    missing_in: frozenset[str] = frozenset()
    """Topics of the lost rows."""
    wrong: tuple[tuple[Kind, Row], ...] = ()
    """The wrong rows of all outputs, also of those that are not topics: lost, duplicated, changed, unexpected."""
    strange: tuple[Place, ...] = ()
    """Places of rows that are changed, unexpected or reordered."""
    expected: int = 0
    """Number of records in the output topics of a run without faults; 0 if unknown."""
    plan: Plan = field(default_factory=Plan)
    exits: tuple[tuple[int, int], ...] = ()
    """(instance, exit code) of the instances that ended by themselves."""
    is_held_up: bool = False
    """Whether a transaction is still open at the end and holds back consumers."""
    warned: tuple[Lint, ...] = ()
    """Lints of the job's two runs without faults."""

    def is_any(self, *kinds: Kind) -> bool:
        return bool(self.kinds & set(kinds))

    @property
    def faults(self) -> frozenset[str]:
        return frozenset(each.fault.name for each in self.plan.injections)


@dataclass(frozen=True, slots=True)
class Write:
    """The request that wrote a record."""

    number: int
    """Index of the request in the trace."""
    exchange: Exchange
    transaction: Transaction | None


class Case:
    """A failed run: its findings and its trace, in which the causes are looked for."""

    def __init__(self, evidence: Evidence, bad: Bad) -> None:
        self.evidence, self.bad = evidence, bad
        self.numbers = {id(each): number for number, each in enumerate(evidence.exchanges)}
        self.transactions = list(transactions(evidence))
        self._of = {id(one): each for each in self.transactions for one in (*each.outputs, *each.positions)}
        self._writes: defaultdict[tuple[str, int], list[tuple[int, int, Write]]] = defaultdict(list)
        for number, exchange in enumerate(evidence.exchanges):
            if exchange.api == "Produce" and was_taken(exchange):
                self._note(number, exchange)
        self.pairs = list(self._pairs())
        """For each duplicated row, the first request that wrote the row, paired with each later request that did."""
        self.repeated = [
            write for each in bad.repeated for place in each if (write := self.write_of(place)) is not None
        ]
        """All requests that wrote duplicated rows. One request may contain a row twice."""
        self.commits = list(commits(evidence))
        self.hits = hits(evidence.exchanges, bad.plan)

    def number(self, exchange: Exchange) -> int:
        return self.numbers[id(exchange)]

    def transaction_of(self, exchange: Exchange | None) -> Transaction | None:
        return self._of.get(id(exchange))

    def producers_of(self, transactional_id: str | None) -> set[int]:
        """All producer ids of this transactional id in the trace."""
        found = self.evidence.exchanges
        return {
            each.producer[0] for each in found if each.transactional_id == transactional_id and each.producer
        }

    def is_injected(self, exchange: Exchange) -> bool:
        return self.number(exchange) in self.hits

    def _note(self, number: int, exchange: Exchange) -> None:
        write = Write(number, exchange, self._of.get(id(exchange)))
        bases = dict(_base_offsets(exchange))
        for topic, partition, batch in batches(exchange):
            base = bases.get((topic, partition), -1)
            self._writes[topic, partition].append((base, base + batch.get("count", 1), write))

    def write_of(self, place: Place) -> Write | None:
        for base, end, write in self._writes[place.topic, place.partition]:
            if base <= place.offset < end:
                return write
        return None

    def _pairs(self) -> Iterator[tuple[Write, Write]]:
        for places in self.bad.repeated:
            found = {write.number: write for each in places if (write := self.write_of(each)) is not None}
            writes = [found[number] for number in sorted(found)]
            yield from ((writes[0], each) for each in writes[1:])


def _base_offsets(exchange: Exchange) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield ((topic, partition), base offset) from the response to Produce. Newer versions contain only the topic id."""
    names = {str(each.get("topic_id")): _name(each) for each in exchange.request.get("topic_data") or ()}
    for topic in (exchange.answer or {}).get("responses") or ():
        name = _name(topic) or names.get(str(topic.get("topic_id")), "")
        for each in topic.get("partition_responses") or ():
            yield (name, each["index"]), each["base_offset"]


def _name(topic: Mapping[str, Any]) -> str:
    return topic.get("name") or topic.get("topic_name") or ""


def hits(exchanges: Sequence[Exchange], plan: Plan) -> dict[int, Injection]:
    """Return {index in the trace: injection} for each request that a fault of the plan has hit."""
    found: dict[int, Injection] = {}
    for injection in plan.injections:
        moment = injection.moment
        counts: Counter[str] = Counter()
        for number, exchange in enumerate(exchanges):
            if exchange.api == moment.on and _matches(exchange, dict(moment.matchers)):
                counts[moment.on] += 1
                if counts[moment.on] == moment.ordinal:
                    found[number] = injection
    return found


def _matches(exchange: Exchange, matchers: dict[str, str]) -> bool:
    said = {
        "transactional_id": [exchange.transactional_id or ""],
        "group": [exchange.group or ""],
        "topic": list(exchange.topics),
        "client_id": [exchange.client_id],
    }
    return all(
        any(fnmatchcase(each, pattern) for each in said.get(name, [])) for name, pattern in matchers.items()
    )
