"""The committed offsets of the inputs after each exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.certify.exchanges import ENDS, Exchange
from odradek.certify.lints.evidence import Evidence
from odradek.certify.lints.reading import TopicPartition
from odradek.certify.lints.transactions import was_taken


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset, with the exchange from which it is effective."""

    number: int
    """Index in the trace of the exchange that made the offset effective: OffsetCommit, or EndTxn of its transaction."""
    exchange: Exchange
    """The OffsetCommit or TxnOffsetCommit that contains the offset."""
    key: TopicPartition
    offset: int
    before: int
    """The offset that the group had committed for the partition before; 0 if it had committed none."""
    was_known: bool
    """Whether the group had committed an offset for the partition before."""

    @property
    def is_outside(self) -> bool:
        """Whether the offset was committed outside a transaction."""
        return self.exchange.api == "OffsetCommit"


def offsets_in(exchange: Exchange) -> Iterator[tuple[TopicPartition, int]]:
    """The offsets in an OffsetCommit or TxnOffsetCommit."""
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (
                (topic.get("name") or topic.get("topic_name"), each["partition_index"]),
                each["committed_offset"],
            )


def commits(evidence: Evidence) -> Iterator[Commit]:
    """The offsets of the inputs that the broker has committed, in the order in which they became effective."""
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
