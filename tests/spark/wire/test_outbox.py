"""The order of batches under failures, against a model of the producer state that a broker keeps."""

import random
from collections import deque

import pytest

from odradek.spark.records.encode import Batch
from odradek.spark.wire.outbox import WINDOW_BATCHES, Outbox, OutgoingBatch

OUT_OF_ORDER = 45


class Log:
    """A model of a partition's leader. It accepts any first batch, then only the next, and detects repeats of its last 5."""

    def __init__(self) -> None:
        self.appended: list[int] = []
        self.remembered: deque[int] = deque(maxlen=5)

    def move(self) -> None:
        """Move to a leader that has just started, and has only the producer's last batch, from a snapshot."""
        self.remembered = deque(list(self.remembered)[-1:], maxlen=5)

    def produce(self, number: int) -> str:
        if number in self.remembered:
            return "duplicate"
        if self.appended and number != self.appended[-1] + 1:
            return "out of order"
        self.appended.append(number)
        self.remembered.append(number)
        return "ok"


def outbox_of(count: int) -> Outbox:
    outbox = Outbox()
    for number in range(count):
        outbox.append(OutgoingBatch(Batch(b"%d" % number, 1, list), 0.0))
    return outbox


def next_of(outbox: Outbox) -> OutgoingBatch:
    batch = outbox.next_batch()
    assert batch is not None
    return batch


def number_of(batch: OutgoingBatch) -> int:
    return int(batch.data)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_fails_the_log_has_every_batch_once_and_in_order(seed):
    rng = random.Random(seed)
    log, outbox = Log(), outbox_of(60)
    on_the_way: deque[tuple[OutgoingBatch, str]] = deque()
    trouble = 400
    while len(outbox) or on_the_way:
        trouble -= 1
        if rng.random() < 0.6 and (batch := outbox.next_batch()) is not None:
            outbox.sending(batch)
            # Refused, appended with a lost response, appended but not replicated in time, or successful.
            fate = rng.choice(["refused", "lost", "appended", "ok", "ok", "ok"]) if trouble > 0 else "ok"
            result = "refused" if fate == "refused" else log.produce(number_of(batch))
            on_the_way.append((batch, fate if fate != "ok" else result))
            continue
        if not on_the_way:
            continue
        if trouble > 0 and rng.random() < 0.1:
            # The connection breaks and all responses are lost. The leader may have moved.
            while on_the_way:
                outbox.failed(on_the_way.popleft()[0], 13)
            if rng.random() < 0.5:
                log.move()
            continue
        batch, answer = on_the_way.popleft()
        if answer in ("ok", "duplicate"):
            outbox.acknowledged(batch)
        else:
            outbox.failed(batch, OUT_OF_ORDER if answer == "out of order" else 7)
            assert not outbox.is_broken(), "the outbox would report a lost batch"
    assert log.appended == list(range(60))
    assert outbox.bytes == 0


def test_the_first_batch_is_sent_alone():
    outbox = outbox_of(3)
    first = next_of(outbox)
    outbox.sending(first)
    assert outbox.next_batch() is None
    outbox.failed(first, 6)
    assert outbox.next_batch() is first


def known_outbox_of(count: int) -> Outbox:
    """An outbox with ``count`` batches for a partition in which the leader has acknowledged an earlier batch."""
    outbox = outbox_of(count + 1)
    before = next_of(outbox)
    outbox.sending(before)
    outbox.acknowledged(before)
    return outbox


def test_at_most_as_many_batches_are_in_flight_as_a_broker_remembers():
    outbox = known_outbox_of(9)
    sent = []
    while (batch := outbox.next_batch()) is not None:
        outbox.sending(batch)
        sent.append(batch)
    assert [number_of(batch) for batch in sent] == list(range(1, 1 + WINDOW_BATCHES))
    outbox.acknowledged(sent[0])
    assert number_of(next_of(outbox)) == WINDOW_BATCHES + 1


def test_after_a_failure_all_batches_in_flight_are_awaited():
    outbox = known_outbox_of(4)
    first = next_of(outbox)
    outbox.sending(first)
    second = next_of(outbox)
    outbox.sending(second)
    outbox.failed(first, 6)
    assert outbox.next_batch() is None
    outbox.failed(second, 45)
    assert outbox.next_batch() is first
    outbox.sending(first)
    assert outbox.next_batch() is second
    assert (first.attempts, second.attempts, first.sent) == (2, 1, True)


def test_a_loss_is_not_taken_for_a_delay():
    outbox = known_outbox_of(2)
    first = next_of(outbox)
    outbox.sending(first)
    outbox.failed(first, OUT_OF_ORDER)
    assert outbox.is_broken(), "the batch before it was acknowledged"


def test_out_of_order_is_a_loss_only_when_none_that_was_sent_is_known():
    outbox = known_outbox_of(2)
    first = next_of(outbox)
    outbox.sending(first)
    second = next_of(outbox)
    outbox.sending(second)
    outbox.failed(first, 13)
    outbox.failed(second, 13)
    for batch in (next_of(outbox), second):
        outbox.sending(batch)
    outbox.failed(first, OUT_OF_ORDER)
    assert not outbox.is_broken()
    outbox.failed(second, 13)
    assert not outbox.is_broken()
    for batch in (next_of(outbox), second):
        outbox.sending(batch)
    outbox.failed(first, OUT_OF_ORDER)
    outbox.acknowledged(second)
    assert len(outbox) == 0


def test_batches_that_are_all_out_of_order_mean_a_loss():
    outbox = known_outbox_of(2)
    for code in (13, OUT_OF_ORDER):
        batches = []
        while (batch := outbox.next_batch()) is not None:
            outbox.sending(batch)
            batches.append(batch)
        for batch in batches:
            assert not outbox.is_broken()
            outbox.failed(batch, code)
    assert outbox.is_broken()


def test_a_batch_that_is_too_large_is_split_in_two():
    def halves() -> list[Batch]:
        return [Batch(b"11", 5, list), Batch(b"12", 6, list)]

    outbox = known_outbox_of(0)
    outbox.append(OutgoingBatch(Batch(b"1-2", 11, halves), 0.0))
    outbox.append(OutgoingBatch(Batch(b"3", 1, list), 0.0))
    large = next_of(outbox)
    outbox.sending(large)
    next_one = next_of(outbox)
    outbox.sending(next_one)
    outbox.failed(large, 10)
    outbox.failed(next_one, OUT_OF_ORDER)
    sent = []
    while (batch := outbox.next_batch()) is not None:
        outbox.sending(batch)
        sent.append(batch)
    assert [bytes(batch.data) for batch in sent] == [b"11", b"12", b"3"]
    assert outbox.bytes == 5
