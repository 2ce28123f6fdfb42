"""Which ids a coordinator knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.transactions.coordinator import TransactionCoordinator


def has_loaded(coordinator: TransactionCoordinator, index: int) -> bool:
    """Whether a node coordinates the ids of a partition of ``__transaction_state``, and has read all of them."""
    return coordinator._serving.find(index) is not None
