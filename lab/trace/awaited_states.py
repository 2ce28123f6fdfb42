"""Waits until a transactional id is in a given state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from broker.clock import Clock, Domain
from broker.injection.points import FaultInjection
from broker.node import Node
from broker.transactions.transaction import Transaction
from lab.trace.reading import transaction_view, transactions
from lab.trace.timeline_view import state_name


class AwaitedStates:
    """The callers that wait for states, in one broker.

    A listener is attached to the coordinators only while a caller waits.
    """

    def __init__(
        self, injection: FaultInjection, clock: Clock, running_nodes: Callable[[], Sequence[Node]]
    ) -> None:
        self._injection = injection
        self._clock = clock
        self._running_nodes = running_nodes
        self._waiting: list[tuple[str, frozenset[str], asyncio.Future[Transaction]]] = []

    def __len__(self) -> int:
        """Number of callers that wait for a state now."""
        return len(self._waiting)

    async def reached(
        self, transactional_id: str, states: Collection[str], timeout_ms: int
    ) -> tuple[bool, dict[str, Any] | None]:
        """(True, the transaction in the awaited state), or after the timeout (False, the transaction in its current state).

        A transaction has the form of `lab.trace.reading.transactions`; it is None if no coordinator knows the id. A state
        counts even if the id leaves it at once.
        """
        now = self._now(transactional_id)
        if now is not None and now["state"] in states:
            return True, now
        future: asyncio.Future[Transaction] = asyncio.get_running_loop().create_future()
        waits = (transactional_id, frozenset(states), future)
        self._waiting.append(waits)
        self._injection.transaction_watcher = self._watch
        timer = self._clock.call_later_ms(timeout_ms, future.cancel, Domain.REQUESTS)
        try:
            # Not `await future`: the timer cancels the future, which would cancel this task.
            await asyncio.wait([future])
        finally:
            timer.cancel()
            self._waiting.remove(waits)
            if not self._waiting:
                self._injection.transaction_watcher = None
        if future.cancelled():
            return False, self._now(transactional_id)
        coordinator = self._coordinator(transactional_id)
        return True, transaction_view(future.result(), coordinator, self._clock_of(coordinator))

    def _watch(self, txn: Transaction) -> None:
        for transactional_id, states, future in self._waiting:
            awaited = transactional_id == txn.transactional_id and state_name(txn.state) in states
            if awaited and not future.done():
                future.set_result(txn)

    def _now(self, transactional_id: str) -> dict[str, Any] | None:
        named = (each for each in transactions(self._running_nodes()))
        return next((each for each in named if each["transactional_id"] == transactional_id), None)

    def _clock_of(self, node_id: int) -> Clock:
        return next((node.clock for node in self._running_nodes() if node.node_id == node_id), self._clock)

    def _coordinator(self, transactional_id: str) -> int:
        found = (node.transactions.node_for(transactional_id) for node in self._running_nodes())
        return next((node_id for node_id in found if node_id is not None), -1)
