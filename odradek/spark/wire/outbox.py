"""The batches of one partition on their way: in order, each until it is acknowledged. Knows no socket.

What a broker remembers of a producer is its last five batches of a partition (ProducerStateEntry.java), and it takes a
batch only after the one before. So at most five batches from the first unacknowledged one are on their way, and after a
failure everything that was sent is awaited before anything is sent again, the same bytes with the same sequences.

An acknowledgement is one of all batches before, too: a broker takes a batch only behind its predecessor, so they are in its
log, whatever was answered about them. That matters where a batch was written, its answer was lost, and the next leader has
just been started: it remembers only the last batch of a producer, and calls the ones before it out of order.

The first batch of all goes alone: a broker that knows nothing of a producer takes any sequence for its first
(ProducerAppendInfo.java), so the second, behind a first one that was refused, would be taken for it.
"""

from __future__ import annotations

import itertools
from collections import deque

from odradek.spark.records.encode import Batch
from odradek.spark.wire.errors import MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER

WINDOW_BATCHES = 5


class OutgoingBatch:
    """A record batch; ``deadline`` in seconds of the monotonic clock, after which it is not sent again.

    ``attempts``: how often it was sent; ``code``: Kafka's error of the last attempt, 0 while there is none; ``why``: what
    happened to its connection, where that was the reason."""

    __slots__ = ("attempts", "code", "data", "deadline", "halves", "records", "sent", "why")

    def __init__(self, batch: Batch, deadline: float) -> None:
        self.data, self.records, self.halves = batch
        self.deadline = deadline
        self.sent = False
        self.attempts = 0
        self.code = 0
        self.why = ""


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
    def sent(self) -> bool:
        """Whether anything is on its way."""
        return any(batch.sent for batch in self._window())

    def _window(self) -> list[OutgoingBatch]:
        return list(itertools.islice(self._batches, WINDOW_BATCHES if self._known else 1))

    def next_batch(self) -> OutgoingBatch | None:
        """What may be sent now, if anything."""
        window = self._window()
        if self._recovering:
            if any(batch.sent for batch in window):
                return None
            self._recovering = False
            self._split_too_large(window)
            for batch in window:
                batch.code = 0
            window = self._window()
        return next((batch for batch in window if not batch.sent), None)

    def _split_too_large(self, window: list[OutgoingBatch]) -> None:
        """What the broker found too large goes as two, with the sequences that its records have."""
        for position in reversed(range(len(window))):
            batch = window[position]
            if batch.code == MESSAGE_TOO_LARGE:
                halves = [OutgoingBatch(half, batch.deadline) for half in batch.halves()]
                self.bytes += sum(len(half.data) for half in halves) - len(batch.data)
                del self._batches[position]
                for half in reversed(halves):
                    self._batches.insert(position, half)

    def sending(self, batch: OutgoingBatch) -> None:
        assert not batch.sent
        batch.sent = True
        batch.attempts += 1

    def acknowledged(self, batch: OutgoingBatch) -> None:
        """It is in the log, and so is everything before it."""
        assert batch.sent
        while True:
            first = self._batches.popleft()
            self.bytes -= len(first.data)
            if first is batch:
                break
            assert not first.sent, "answers come in the order of the requests"
        self._known = True
        self.failures = 0

    def failed(self, batch: OutgoingBatch, code: int, why: str = "") -> None:
        """It has to be sent again, after everything else that is on its way was answered."""
        assert batch.sent
        batch.sent = False
        batch.code = code
        batch.why = why
        self._recovering = True

    def is_broken(self) -> bool:
        """Whether records are missing in the log: everything that was ever sent is out of order. If one of them were in
        it, the last of those would be known again."""
        sent_once = [batch for batch in self._window() if batch.attempts]
        return bool(sent_once) and all(
            not batch.sent and batch.code == OUT_OF_ORDER_SEQUENCE_NUMBER for batch in sent_once
        )
