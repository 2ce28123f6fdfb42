"""Writes markers one after the other while a fault rule is installed at ``txn.marker``.

Each hit of the rule is then one marker: with ``after=3 times=1 -> kill`` three markers are in the logs of their
partitions, on this node or others, when the node dies. Without such a rule the markers of a transaction are written together
(`markers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from broker.clock import Domain
from broker.clock.sleeping import sleep_ms
from broker.coordinator_runtime.shard import verdict_at
from broker.injection.points import InjectionPoint
from broker.loop.coroutines import start_in_background
from protocol.errors import NONE

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.injection.points import FaultInjection
    from broker.loop.coroutines import Waiter
    from broker.loop.life import NodeLife
    from broker.transactions.entry import PendingCompleteTxn
    from broker.transactions.transaction import TopicPartition
    from protocol.errors import ErrorCode

POINT: Final = "txn.marker"
STEPS_PER_TURN: Final = 64


class Markers(Protocol):
    """The operations on one marker that `broker.transactions.markers` provides."""

    def send_to_leader(
        self, completion: PendingCompleteTxn, key: TopicPartition
    ) -> Waiter[ErrorCode] | None: ...

    async def write_here(self, completion: PendingCompleteTxn, key: TopicPartition) -> None: ...

    async def handle_results(
        self, completion: PendingCompleteTxn, results: Iterable[tuple[TopicPartition, ErrorCode]]
    ) -> None: ...


class SequentialMarkers:
    """A queue of markers. A marker reaches ``txn.marker`` after the one before it was written, refused, or held by a rule.

    A failed attempt and its retry are two hits of the rule. The queue is bounded by the transactions in PrepareX on this
    node: it contains each of their partitions once.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        life: NodeLife,
        injection: FaultInjection,
        markers: Markers,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._life = life
        self._injection = injection
        self._markers = markers
        self._steps: deque[tuple[PendingCompleteTxn, TopicPartition]] = deque()
        self._is_running = False

    @property
    def is_wanted(self) -> bool:
        """Whether a rule is installed at ``txn.marker``."""
        return self._injection.points is not None and self._injection.points.watches(POINT)

    def add(self, completion: PendingCompleteTxn, keys: Iterable[TopicPartition]) -> None:
        self._steps.extend((completion, key) for key in keys)
        if not self._is_running:
            start_in_background(self._run(), self._life)

    def clear(self) -> None:
        self._steps.clear()

    async def _run(self) -> None:
        self._is_running = True
        try:
            await self._run_all()
        finally:
            self._is_running = False

    async def _run_all(self) -> None:
        taken = 0
        while self._steps:
            if taken == STEPS_PER_TURN:
                await sleep_ms(self._clock, 0, Domain.TRANSACTIONS)
                taken = 0
                continue
            completion, key = self._steps.popleft()
            taken += 1
            if not completion.is_wanted():
                continue
            transactional_id = completion.entry.txn.transactional_id
            at = InjectionPoint(POINT, self._node_id, *key, transactional_id=transactional_id)
            verdict = verdict_at(self._injection, at)
            asked = None
            if verdict.done() and await verdict is NONE and completion.is_wanted():
                asked = self._markers.send_to_leader(completion, key)
                if asked is not None:
                    await asked
            start_in_background(self._finish(completion, key, verdict, asked), self._life)

    async def _finish(
        self,
        completion: PendingCompleteTxn,
        key: TopicPartition,
        verdict: Waiter[ErrorCode],
        asked: Waiter[ErrorCode] | None,
    ) -> None:
        """Write the marker, on this node or through another one, after the fault rule has released it.

        If the rule refuses the marker, report the error to the completion.
        """
        error = await verdict
        if error is not NONE:
            await self._markers.handle_results(completion, [(key, error)])
            return
        if asked is None:
            asked = self._markers.send_to_leader(completion, key)
        if asked is None:
            await self._markers.write_here(completion, key)
        else:
            await self._markers.handle_results(completion, [(key, await asked)])
