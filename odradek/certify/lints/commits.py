"""The positions of the inputs, as the broker has them after each exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.certify.exchanges import ENDS, Exchange
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.reading import TopicPartition
from odradek.certify.lints.transactions import was_taken


@dataclass(frozen=True, slots=True)
class Commit:
    """A position that counts from this exchange on."""

    number: int
    """The place in the trace of what made it count: OffsetCommit, or the EndTxn of its transaction."""
    exchange: Exchange
    """The OffsetCommit or TxnOffsetCommit."""
    key: TopicPartition
    offset: int
    before: int
    """What was committed until then."""
    was_known: bool
    """Whether any position was committed until then."""

    @property
    def is_outside(self) -> bool:
        """Of a transaction."""
        return self.exchange.api == "OffsetCommit"


def offsets_in(exchange: Exchange) -> Iterator[tuple[TopicPartition, int]]:
    """The positions that an OffsetCommit or TxnOffsetCommit sends."""
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (
                (topic.get("name") or topic.get("topic_name"), each["partition_index"]),
                each["committed_offset"],
            )


def commits(evidence: Evidence) -> Iterator[Commit]:
    """Those of the inputs that the broker has taken, in the order in which they came to count."""
    committed: dict[tuple[str | None, TopicPartition], int] = {}
    offered: dict[str, list[Exchange]] = {}
    for number, exchange in enumerate(evidence.exchanges):
        if not was_taken(exchange):
            continue
        name = exchange.transactional_id or ""
        if exchange.api == "OffsetCommit":
            yield from _taken(number, [exchange], evidence, committed)
        elif exchange.api == "TxnOffsetCommit":
            offered.setdefault(name, []).append(exchange)
        elif exchange.api in ENDS:
            sent = offered.pop(name, [])
            yield from _taken(number, sent if exchange.request.get("committed") else [], evidence, committed)


def _taken(
    number: int,
    sent: Iterable[Exchange],
    evidence: Evidence,
    committed: dict[tuple[str | None, TopicPartition], int],
) -> Iterator[Commit]:
    for exchange in sent:
        for key, offset in offsets_in(exchange):
            if key[0] in evidence.inputs:
                place = exchange.group, key
                before = committed.get(place)
                committed[place] = offset
                yield Commit(number, exchange, key, offset, before or 0, before is not None)
