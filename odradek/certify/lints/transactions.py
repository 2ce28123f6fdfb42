"""The transactions in a trace: their outputs, their offsets and how they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.certify.exchanges import ENDS, Exchange
from odradek.certify.lints.evidence import Evidence

IN_TRANSACTION: Final = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce"})
"""APIs that a client sends within a transaction."""
HANDLED: Final = frozenset({"answered", "answer_lost"})
"""Outcomes of requests that the broker has handled. A rejected request has errors in its response."""


@dataclass(slots=True)
class Transaction:
    """The requests of one producer from the end of one transaction to the end of the next."""

    transactional_id: str
    producer: tuple[int, int] | None = None
    """Producer id and epoch, from the first request that contains them."""
    outputs: list[Exchange] = field(default_factory=list)
    """Accepted Produce requests to an output topic."""
    positions: list[Exchange] = field(default_factory=list)
    """Accepted TxnOffsetCommit requests with offsets of an input topic."""
    refused: list[Exchange] = field(default_factory=list)
    """Produce and TxnOffsetCommit requests with an error in the response."""
    end: Exchange | None = None
    """The EndTxn, or the InitProducerId that aborted the transaction; None if it is open at the end of the trace."""

    @property
    def is_committed(self) -> bool:
        """Whether the broker has handled the commit of the transaction, even if the response was lost."""
        end = self.end
        return end is not None and bool(end.request.get("committed")) and was_taken(end)


def was_taken(exchange: Exchange) -> bool:
    """Whether the broker has handled the request without any error."""
    is_handled = exchange.outcome in HANDLED
    if exchange.api == "Produce" and exchange.request.get("acks") == 0:
        is_handled = is_handled or exchange.outcome == "unanswered"
    return is_handled and not exchange.errors


def transactions(evidence: Evidence) -> Iterator[Transaction]:
    """The transactions in the order of their ends; open ones come last."""
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
