"""The entry of a transaction index (``.txnindex``), by which read_committed consumers skip aborted records."""

from __future__ import annotations

from protocol.named_tuple import NamedTuple


class AbortedTransaction(NamedTuple):
    """One aborted transaction with data in this partition.

    ``last_offset`` is the offset of its ABORT marker, ``last_stable_offset`` the last stable offset after that marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
