"""The transactions of a run, as its trace shows them: what each of them wrote, which positions it sent, how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.certify.exchanges import ENDS, Exchange
from odradek.certify.lints.evidence import Evidence

IN_TRANSACTION: Final = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce"})
"""What a client sends between two ends."""
HANDLED: Final = frozenset({"answered", "answer_lost"})
"""The outcomes of requests that the broker has handled. What was refused says so in its errors."""


@dataclass(slots=True)
class Transaction:
    """What one producer sent between two ends."""

    transactional_id: str
    producer: tuple[int, int] | None = None
    """Id and epoch, of the first request that names them."""
    outputs: list[Exchange] = field(default_factory=list)
    """Produce requests with a topic of the outputs that the broker has taken."""
    positions: list[Exchange] = field(default_factory=list)
    """TxnOffsetCommit requests with a topic of the inputs that the broker has taken."""
    refused: list[Exchange] = field(default_factory=list)
    """Produce and TxnOffsetCommit requests with an error in the answer."""
    end: Exchange | None = None
    """The EndTxn, or the InitProducerId that aborted it; None: it is open at the end of the trace."""

    @property
    def is_committed(self) -> bool:
        """The broker has handled its commit, also where the answer was lost."""
        end = self.end
        return end is not None and bool(end.request.get("committed")) and was_taken(end)


def was_taken(exchange: Exchange) -> bool:
    """The broker has handled it, and has refused nothing of it."""
    is_handled = exchange.outcome in HANDLED
    if exchange.api == "Produce" and exchange.request.get("acks") == 0:
        is_handled = is_handled or exchange.outcome == "unanswered"
    return is_handled and not exchange.errors


def transactions(evidence: Evidence) -> Iterator[Transaction]:
    """In the order of their ends; those that are open come last."""
    under_way: dict[str, Transaction] = {}
    for exchange in evidence.exchanges:
        name = exchange.transactional_id
        if not name:
            continue
        if exchange.api in ENDS:
            if was_taken(exchange) and name in under_way:
                ended = under_way.pop(name)
                ended.end = exchange
                yield ended
            continue
        if exchange.api not in IN_TRANSACTION:
            continue
        current = under_way.setdefault(name, Transaction(name))
        current.producer = current.producer or exchange.producer
        _add(current, exchange, evidence)
    yield from under_way.values()


def _add(transaction: Transaction, exchange: Exchange, evidence: Evidence) -> None:
    names = set(exchange.topics)
    if exchange.api == "Produce" and evidence.outputs & names:
        (transaction.outputs if was_taken(exchange) else transaction.refused).append(exchange)
    elif exchange.api == "TxnOffsetCommit" and evidence.inputs & names:
        (transaction.positions if was_taken(exchange) else transaction.refused).append(exchange)
