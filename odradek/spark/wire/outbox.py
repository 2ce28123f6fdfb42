"""The batches of one partition on their way: in order, each until it is acknowledged; pure.

What a broker remembers of a producer is its last five batches of a partition (ProducerStateEntry.java), and it takes a
batch only after the one before. So at most five batches from the first unacknowledged one are on their way, and after a
failure everything that was sent is awaited before anything is sent again, the same bytes with the same sequences.

The first batch of all goes alone: a broker that knows nothing of a producer takes any sequence for its first
(ProducerAppendInfo.java), so the second, behind a first one that was refused, would be taken for it.
"""

from __future__ import annotations

import itertools
from collections import deque
from enum import Enum, auto

WINDOW_BATCHES = 5


class State(Enum):
    """Where a batch is."""

    WAITING = auto()
    SENT = auto()
    ACKNOWLEDGED = auto()


class OutgoingBatch:
    """A record batch; ``deadline`` in seconds of the monotonic clock, after which it is not sent again."""

    __slots__ = ("attempts", "data", "deadline", "last_code", "records", "state")

    def __init__(self, data: bytes | memoryview, records: int, deadline: float) -> None:
        self.data = data
        self.records = records
        self.deadline = deadline
        self.state = State.WAITING
        self.attempts = 0
        self.last_code = 0


class Outbox:
    """Batches in the order of their sequences. ``due``: when the next may be sent, on the monotonic clock."""

    def __init__(self) -> None:
        self._batches: deque[OutgoingBatch] = deque()
        self._recovering = False
        self._known = False
        self.due = 0.0
        self.failures = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, batch: OutgoingBatch) -> None:
        self._batches.append(batch)
        self.bytes += len(batch.data)

    @property
    def oldest(self) -> OutgoingBatch | None:
        """The first that is not acknowledged."""
        return self._batches[0] if self._batches else None

    @property
    def sent(self) -> int:
        """How many are on their way."""
        return sum(batch.state is State.SENT for batch in self._window())

    def _window(self) -> list[OutgoingBatch]:
        return list(itertools.islice(self._batches, WINDOW_BATCHES if self._known else 1))

    def next_batch(self) -> OutgoingBatch | None:
        """What may be sent now, if anything."""
        window = self._window()
        if self._recovering:
            if any(batch.state is State.SENT for batch in window):
                return None
            self._recovering = False
        return next((batch for batch in window if batch.state is State.WAITING), None)

    def sending(self, batch: OutgoingBatch) -> None:
        assert batch.state is State.WAITING
        batch.state = State.SENT
        batch.attempts += 1

    def acknowledged(self, batch: OutgoingBatch) -> None:
        assert batch.state is State.SENT
        batch.state = State.ACKNOWLEDGED
        self._known = True
        while self._batches and self._batches[0].state is State.ACKNOWLEDGED:
            self.bytes -= len(self._batches.popleft().data)
            self.failures = 0

    def failed(self, batch: OutgoingBatch, code: int) -> None:
        """It has to be sent again, after everything else that is on its way was answered."""
        assert batch.state is State.SENT
        batch.state = State.WAITING
        batch.last_code = code
        self._recovering = True

    def follows_a_failure(self, batch: OutgoingBatch) -> bool:
        """Whether one before it is not acknowledged: then it is no wonder that it is out of order."""
        return batch is not self._batches[0]
