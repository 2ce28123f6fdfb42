"""Markers while a rule looks at ``txn.marker``: a coordinator's node writes one after the other.

So what a rule counts is what has happened: with ``after=3 times=1 -> kill`` three markers are in their partitions' logs,
here or on other nodes, when the node dies. Without a rule the markers of a transaction are written together (`markers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.clock import Clock, Domain, Timer
from broker.injection.points import FaultInjection, InjectionPoint
from broker.transactions.remote_markers import PendingCompleteTxn
from broker.transactions.transaction import TopicPartition
from protocol.errors import ErrorCode

POINT: Final = "txn.marker"
STEPS_PER_TURN: Final = 64

Write = Callable[[PendingCompleteTxn, TopicPartition], bool]
"""Have one marker written; True if another node was asked, so that `SequentialMarkers.settled` follows."""
Refused = Callable[[PendingCompleteTxn, TopicPartition, ErrorCode], object]
Step = tuple[PendingCompleteTxn, TopicPartition]


class SequentialMarkers:
    """The next marker comes to the point when the one before it is written, refused, or held by a rule.

    An attempt that fails counts, and so does its repetition. Bounded by the decided transactions of this node: each
    partition of each of them is here once.
    """

    def __init__(
        self, node_id: int, clock: Clock, injection: FaultInjection, write: Write, refused: Refused
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._injection = injection
        self._write = write
        self._refused = refused
        self._steps: deque[Step] = deque()
        self._asked: Step | None = None
        """Another node writes this marker: the rest waits for its answer."""
        self._turn: Timer | None = None
        self._running = False

    @property
    def is_wanted(self) -> bool:
        """Whether a rule looks at the point."""
        return self._injection.points is not None and self._injection.points.watches(POINT)

    def add(self, completion: PendingCompleteTxn, keys: Iterable[TopicPartition]) -> None:
        self._steps.extend((completion, key) for key in keys)
        self._go_on()

    def settled(self, completion: PendingCompleteTxn, keys: Iterable[TopicPartition]) -> None:
        """Another node has answered, or will not."""
        if self._asked is not None and self._asked[0] is completion and self._asked[1] in keys:
            self._asked = None
            self._go_on()

    def clear(self) -> None:
        self._steps.clear()
        self._asked = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _go_on(self) -> None:
        if self._running or self._turn is not None:
            return
        self._running = True
        try:
            for _ in range(STEPS_PER_TURN):
                if not self._steps or self._asked is not None:
                    return
                self._take(*self._steps.popleft())
        finally:
            self._running = False
        self._turn = self._clock.call_later_ms(0, self._next_turn, Domain.TRANSACTIONS)

    def _next_turn(self) -> None:
        self._turn = None
        self._go_on()

    def _take(self, completion: PendingCompleteTxn, key: TopicPartition) -> None:
        if not completion.is_wanted():
            return
        at_once = True

        def go_on() -> None:
            if at_once:
                self._asked = completion, key
            if not self._write(completion, key) and at_once:
                self._asked = None

        transactional_id = completion.entry.txn.transactional_id
        at = InjectionPoint(POINT, self._node_id, *key, transactional_id=transactional_id)
        self._injection.intercept(at, go_on, partial(self._refused, completion, key))
        at_once = False
