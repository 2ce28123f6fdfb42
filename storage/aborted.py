"""What a log remembers of an aborted transaction, for readers that must leave its records out (``.txnindex``)."""

from __future__ import annotations

from protocol.named_tuple import NamedTuple


class AbortedTransaction(NamedTuple):
    """One aborted transaction with data in this partition.

    ``last_offset`` is its marker's; ``last_stable_offset`` what became stable with that marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
