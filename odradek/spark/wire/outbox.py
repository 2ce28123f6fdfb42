"""The unacknowledged outgoing batches of one partition, in order. The module uses no sockets.

A broker has metadata of a producer's last five batches in a partition (ProducerStateEntry.java), and accepts a batch only
after its predecessor. So only the first five unacknowledged batches may be in flight. After a failure, batches are sent
again only when all batches in flight have a response, with the same bytes and sequences.

An acknowledgement covers all earlier batches too: a broker accepts a batch only after its predecessor, so they are in its
log, whatever their own responses were. This matters if a batch was written, its response was lost, and the next leader has
just been started: it has only the last batch of the producer, and returns OUT_OF_ORDER_SEQUENCE_NUMBER for earlier ones.

The very first batch is sent alone: a broker without state of the producer accepts any first sequence
(ProducerAppendInfo.java), so it would accept the second batch although the first was rejected.
"""

from __future__ import annotations

import itertools
from collections import deque

from odradek.spark.records.encode import Batch
from odradek.spark.wire.errors import MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER

WINDOW_BATCHES = 5


class OutgoingBatch:
    """A record batch. ``deadline``: monotonic time in seconds after which the batch is not sent again.

    ``attempts``: number of times that the batch was sent; ``code``: Kafka's error of the last attempt, 0 if there is none;
    ``why``: the reason why its connection was lost, if the error was a lost connection.
    """

    __slots__ = ("attempts", "code", "data", "deadline", "halves", "records", "sent", "why")

    def __init__(self, batch: Batch, deadline: float) -> None:
        self.data, self.records, self.halves = batch
        self.deadline = deadline
        self.sent = False
        self.attempts = 0
        self.code = 0
        self.why = ""


class Outbox:
    """The unacknowledged batches of a partition in the order of their sequences.

    ``due``: monotonic time at which the next batch may be sent.
    """

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
        """The first unacknowledged batch."""
        return self._batches[0] if self._batches else None

    @property
    def sent(self) -> bool:
        """Whether any batch is in flight."""
        return any(batch.sent for batch in self._window())

    def _window(self) -> list[OutgoingBatch]:
        return list(itertools.islice(self._batches, WINDOW_BATCHES if self._known else 1))

    def next_batch(self) -> OutgoingBatch | None:
        """The next batch that may be sent now, None if there is none."""
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
        """Split each batch that the broker found too large into two, without changing the sequences of its records."""
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
        """Remove the acknowledged batch, and all batches before it: they are in the log too."""
        assert batch.sent
        while True:
            first = self._batches.popleft()
            self.bytes -= len(first.data)
            if first is batch:
                break
            assert not first.sent, "responses come in the order of the requests"
        self._known = True
        self.failures = 0

    def failed(self, batch: OutgoingBatch, code: int, why: str = "") -> None:
        """Schedule the batch to be sent again, after all other batches in flight have a response."""
        assert batch.sent
        batch.sent = False
        batch.code = code
        batch.why = why
        self._recovering = True

    def is_broken(self) -> bool:
        """Whether records are lost: every batch that was sent got OUT_OF_ORDER_SEQUENCE_NUMBER.

        If the log had any of the batches, the broker would recognise at least the last one.
        """
        sent_once = [batch for batch in self._window() if batch.attempts]
        return bool(sent_once) and all(
            not batch.sent and batch.code == OUT_OF_ORDER_SEQUENCE_NUMBER for batch in sent_once
        )
