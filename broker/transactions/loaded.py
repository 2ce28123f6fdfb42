"""The check whether a transaction coordinator has loaded a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.transactions.coordinator import TransactionCoordinator


def has_loaded(coordinator: TransactionCoordinator, index: int) -> bool:
    """Whether the node coordinates this partition of ``__transaction_state`` and has loaded all of its ids."""
    return coordinator._serving.find(index) is not None
