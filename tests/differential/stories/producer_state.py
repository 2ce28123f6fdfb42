"""A partition's state of each idempotent producer."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import Body, Story, Topic, story

LAST = 2**31 - 1


def send(s: Story, t: Topic, note: str, pid: int, epoch: int, seq: int, count: int = 1, **more: Any) -> Body:
    return s.produce(t, s.batch(count, pid=pid, epoch=epoch, seq=seq), note=note, **more)


@story("producer-state")
def duplicates(s: Story) -> None:
    """A batch with epoch and sequences of one of the last five batches gets their offsets, and nothing is appended.

    The time in the response is that of the cached batch, also on a CreateTime topic.
    """
    t = s.topic()
    pid, _ = s.producer_id()
    for seq in range(0, 14, 2):
        send(s, t, f"{seq}", pid, 0, seq, 2)
    for seq in range(0, 14, 2):
        send(s, t, f"{seq} again", pid, 0, seq, 2)
    send(s, t, "same first, other last", pid, 0, 12, 1)
    send(s, t, "other first, same last", pid, 0, 13, 1)
    send(s, t, "two cached ones together", pid, 0, 10, 4)
    send(s, t, "next", pid, 0, 14)
    send(s, t, "next again, acks 1", pid, 0, 14, acks=1)
    send(s, t, "next again, v3", pid, 0, 14, v=3)
    s.fetch([(t, 0, 12)])


@story("producer-state")
def duplicate_with_other_content(s: Story) -> None:
    """A batch is a duplicate if producer id, epoch and sequences are equal; the records are not compared."""
    t = s.topic()
    pid, _ = s.producer_id()
    s.produce(t, s.batch([b"a"], pid=pid, epoch=0, seq=0))
    s.produce(t, s.batch([b"other"], pid=pid, epoch=0, seq=0, ts=s.t0 + 5000))
    s.produce(
        t, s.batch([b"a"], pid=pid, epoch=0, seq=0, crc=1), note="a duplicate is looked for after the CRC"
    )
    s.produce(t, s.batch([b"a"], pid=pid, epoch=0, seq=0, base_offset=1), note="and after the base offset")
    s.fetch(t)


@story("producer-state")
def sequences_of_an_aborted_transaction(s: Story) -> None:
    """Before KIP-890 a client that reuses the sequences of its aborted transaction gets a success, but nothing is written.

    The next transaction has the same epoch, so its batches count as duplicates.
    """
    t, p = s.topic(), Producer(s, "tx")
    p.start(t, False, 0)
    p.end(False, False)
    p.add(t)
    s.produce(t, s.batch([b"other"], pid=p.pid, epoch=p.epoch, seq=0, txn=True), v=11, tx=p.tx, note="again")
    p.end(True, False)
    s.fetch(t)


@story("producer-state")
def duplicate_on_log_append_time(s: Story) -> None:
    t = s.topic(message__timestamp__type="LogAppendTime")
    pid, _ = s.producer_id()
    send(s, t, "first", pid, 0, 0)
    send(s, t, "again", pid, 0, 0)


@story("producer-state")
def gaps(s: Story) -> None:
    t = s.topic()
    pid, _ = s.producer_id()
    send(s, t, "0 to 2", pid, 0, 0, 3)
    send(s, t, "4: gap", pid, 0, 4)
    send(s, t, "1: overlap", pid, 0, 1)
    send(s, t, "2, two: overlap", pid, 0, 2, 2)
    send(s, t, "3", pid, 0, 3)
    send(s, t, "4", pid, 0, 4)
    send(s, t, "4, two: same first, longer", pid, 0, 4, 2)
    send(s, t, "0", pid, 0, 0)


@story("producer-state")
def first_write_of_a_producer(s: Story) -> None:
    """A partition without state of the producer accepts any sequence, also from an unassigned producer id."""
    for pid, seq in ((900_001, 100), (900_002, 0), (900_003, LAST)):
        t = s.topic()
        send(s, t, f"first, sequence {seq}", pid, 0, seq)
        send(s, t, "the next", pid, 0, 0 if seq == LAST else seq + 1)
    t = s.topic()
    send(s, t, "first, epoch 7", 900_004, 7, 5)
    send(s, t, "epoch 6", 900_004, 6, 6)
    send(s, t, "epoch 32767", 900_004, 32767, 0)


@story("producer-state")
def epochs(s: Story) -> None:
    """A higher epoch that does not start at sequence 0 gets OUT_OF_ORDER_SEQUENCE_NUMBER.

    A lower epoch gets INVALID_PRODUCER_EPOCH.
    """
    t = s.topic()
    pid, _ = s.producer_id()
    send(s, t, "epoch 1", pid, 1, 0)
    send(s, t, "epoch 0, next sequence", pid, 0, 1)
    send(s, t, "epoch 0, the same", pid, 0, 0)
    send(s, t, "epoch 2, sequence 5", pid, 2, 5)
    send(s, t, "epoch 2, sequence 1", pid, 2, 1)
    send(s, t, "epoch 1 goes on", pid, 1, 1)
    send(s, t, "epoch 3, sequence 0", pid, 3, 0)
    send(s, t, "epoch 1", pid, 1, 2)
    send(s, t, "epoch 3, again", pid, 3, 0)
    send(s, t, "epoch 3, next", pid, 3, 1)
    send(s, t, "epoch 9, sequence 0", pid, 9, 0)
    s.fetch(t)


@story("producer-state")
def wrapping(s: Story) -> None:
    """The sequence after 2147483647 is 0, also inside a batch."""
    t = s.topic()
    send(s, t, "2147483646, three", 900_100, 0, LAST - 1, 3)
    send(s, t, "again", 900_100, 0, LAST - 1, 3)
    send(s, t, "0", 900_100, 0, 0)
    send(s, t, "2", 900_100, 0, 2)
    send(s, t, "1", 900_100, 0, 1)
    u = s.topic()
    send(s, u, "2147483647", 900_101, 0, LAST)
    send(s, u, "1: gap", 900_101, 0, 1)
    send(s, u, "0", 900_101, 0, 0)
    send(s, u, "2147483647 again", 900_101, 0, LAST)


@story("producer-state")
def a_refused_batch_changes_nothing(s: Story) -> None:
    t = s.topic()
    pid, _ = s.producer_id()
    send(s, t, "0", pid, 0, 0)
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=1, crc=5), note="1, bad CRC")
    s.produce(t, s.batch(1, pid=pid, epoch=5, seq=0, crc=5), note="epoch 5, bad CRC")
    send(s, t, "epoch 5, sequence 3", pid, 5, 3)
    send(s, t, "1", pid, 0, 1)


@story("producer-state")
def partitions_are_apart(s: Story) -> None:
    t = s.topic(2)
    pid, _ = s.producer_id()
    send(s, t, "0 to partition 0", pid, 0, 0)
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=7), partition=1, note="7 to partition 1")
    send(s, t, "1 to partition 0", pid, 0, 1)
    other, _ = s.producer_id()
    send(s, t, "0 of another producer", other, 0, 0)
    two = [(t, 0, s.batch(1, pid=pid, epoch=0, seq=2)), (t, 1, s.batch(1, pid=other, epoch=0, seq=0))]
    s.produce(two, note="two producers in one request")


@story("producer-state")
def both_kinds(s: Story) -> None:
    """Plain batches between the batches of a producer do not change its state."""
    t = s.topic()
    pid, _ = s.producer_id()
    send(s, t, "0", pid, 0, 0)
    s.produce(t, s.batch(2), note="plain")
    send(s, t, "1", pid, 0, 1)
    send(s, t, "0 again", pid, 0, 0)
    s.fetch(t)


@story("producer-state")
def after_delete_records(s: Story) -> None:
    """Deleting the records does not remove the producer's state."""
    t = s.topic()
    pid, _ = s.producer_id()
    send(s, t, "0", pid, 0, 0)
    send(s, t, "1", pid, 0, 1)
    parts = [{"partition_index": 0, "offset": -1}]
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": parts}], timeout=10000)
    send(s, t, "1 again", pid, 0, 1)
    send(s, t, "0", pid, 0, 0)
    send(s, t, "2", pid, 0, 2)
