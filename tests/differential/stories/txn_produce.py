"""Produce in transactions: verification and implicit addition of partitions (KIP-890), producer id and epoch, sequences."""

from __future__ import annotations

from tests.differential.stories.transactional import FAR, Producer
from tests.differential.story import Story, story


@story("txn-produce")
def verification(s: Story) -> None:
    """Produce v12 adds its partition to the transaction (KIP-890). Older versions need AddPartitionsToTxn.

    For a partition that was not added they get INVALID_TXN_STATE up to v10, and TRANSACTION_ABORTABLE in v11.
    """
    t, p = s.topic(), Producer(s, "tx")
    for v in (3, 7, 8, 10, 11):
        p.send(t, 0, False, v=v, note="not added, no transaction")
    other = s.topic()
    p.add(other)
    for v in (3, 10, 11):
        p.send(t, 0, False, v=v, note="not added, another one was")
    p.send(t, 0, v=12, note="adds itself")
    p.send(t, 1, False, v=3, note="from now on no question")
    p.send(t, 2, v=13)
    p.end(True)
    s.fetch(t, isolation_level=1)


@story("txn-produce")
def identity(s: Story) -> None:
    """A wrong epoch gets INVALID_PRODUCER_EPOCH (not PRODUCER_FENCED), a wrong producer id INVALID_PRODUCER_ID_MAPPING."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (3, 10, 11, 12):
        p.send(t, 0, v=v, epoch=p.epoch + 1, note="higher epoch")
        p.send(t, 0, v=v, pid=p.pid + FAR, note="another producer id")
        p.send(t, 0, v=v, tx=s.name("unknown"), note="unknown id")
        p.send(t, 0, v=v, tx="", note="empty id")
    s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
    for v in (3, 10, 11, 12):
        p.send(t, 0, v=v, note="lower epoch")
    s.fetch(t)


@story("txn-produce")
def two_producers_in_one_request(s: Story) -> None:
    """A request with batches of two producers gets INVALID_PRODUCER_ID_MAPPING for all its partitions."""
    t, p, q = s.topic(3), Producer(s, "p"), Producer(s, "q")
    one = s.batch(1, pid=p.pid, epoch=p.epoch, seq=0, txn=True)
    two = s.batch(1, pid=q.pid, epoch=q.epoch, seq=0, txn=True)
    three = s.batch(1, pid=p.pid, epoch=p.epoch + 1, seq=0, txn=True)
    for v in (11, 12):
        s.produce([(t, 0, one), (t, 1, two)], v=v, tx=p.tx)
        s.produce([(t, 0, one), (t, 1, three)], v=v, tx=p.tx, note="two epochs")
    s.produce([(t, 0, one), (t, 1, s.batch(1))], v=12, tx=p.tx, note="one plain")


@story("txn-produce")
def sequences(s: Story) -> None:
    """In TV2 each transaction begins at sequence 0, also after a refused higher sequence. In TV1 the sequences continue."""
    t, p = s.topic(), Producer(s, "tx")
    p.send(t, 5, note="TV2, first 5")
    p.send(t, 7, note="TV2, then 7")
    p.send(t, 0, note="TV2, 0")
    p.send(t, 0, note="TV2, 0 again")
    p.send(t, 2, note="TV2, gap")
    p.send(t, 1, note="TV2, 1")
    p.end(True)
    p.send(t, 2, note="TV2, next transaction, 2")
    p.send(t, 0, note="TV2, next transaction, 0")
    p.end(True)
    u, q = s.topic(), Producer(s, "old")
    for seq in (3, 4):
        q.add(u)
        q.send(u, seq, False, note=f"TV1, {seq}")
        q.end(True, False)
    q.add(u)
    q.send(u, 0, False, note="TV1, 0 in a later transaction")
    q.send(u, 5, False, note="TV1, 5")
    q.end(False, False)


@story("txn-produce")
def add_succeeds_append_fails(s: Story) -> None:
    """If the partition is added but the append fails, the partition stays in the transaction and gets a marker."""
    t, u, p = s.topic(), s.topic(), Producer(s, "tx")
    p.send(u, 0)
    p.send(t, 4, note="wrong sequence")
    p.end(True)
    s.fetch(t, note="a marker alone")
    s.fetch(u)


@story("txn-produce")
def retries_after_the_end(s: Story) -> None:
    """A retry of a batch of a completed transaction gets an error.

    The error is TRANSACTION_ABORTABLE or INVALID_TXN_STATE with TV1, and INVALID_PRODUCER_EPOCH with TV2.
    """
    t, p = s.topic(), Producer(s, "tx")
    old = p.epoch
    p.send(t, 0)
    p.end(True)
    for v in (11, 12):
        p.send(t, 0, v=v, epoch=old, note="TV2 batch again")
    u, q = s.topic(), Producer(s, "old")
    q.start(u, False)
    q.end(True, False)
    for v in (10, 11):
        q.send(u, 0, False, v=v, note="TV1 batch again")


@story("txn-produce")
def plain_in_a_transaction(s: Story) -> None:
    """A producer's plain batches get INVALID_TXN_STATE while it has an open transaction in the partition."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    s.produce(t, s.batch(1, pid=p.pid, epoch=p.epoch, seq=1), v=12, tx=p.tx, note="plain, same producer")
    s.produce(t, s.batch(1), note="plain, no producer")
    p.send(t, 1, note="goes on")
    p.end(True)
    s.produce(t, s.batch(1, pid=p.pid, epoch=p.epoch, seq=0), note="plain after it")


@story("txn-produce")
def refused_before_the_coordinator(s: Story) -> None:
    """A Produce may be refused before or after its partition is added to the transaction."""
    t, p = s.topic(), Producer(s, "tx")
    good = {"pid": p.pid, "epoch": p.epoch, "seq": 0, "txn": True}
    s.produce(t, s.batch(1, crc=1, **good), v=12, tx=p.tx, note="CRC")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, acks=3, note="acks 3")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, partition=9, note="unknown partition")
    s.produce(t, s.batch(1, **good) * 2, v=12, tx=p.tx, note="two batches")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, acks=1, retry=(51,), note="acks 1")
    p.end(True)
    s.fetch(t)


@story("txn-produce")
def large_transaction_of_many_partitions(s: Story) -> None:
    t, p = s.topic(5), Producer(s, "tx")
    rows = [(t, n, s.batch(2, pid=p.pid, epoch=p.epoch, seq=0, txn=True)) for n in range(5)]
    s.produce(rows, v=12, tx=p.tx, retry=(51,))
    p.end(False)
    s.fetch([(t, n, 0) for n in range(5)], isolation_level=1)


@story("txn-produce")
def bit_without_a_producer(s: Story) -> None:
    """The transactional bit needs a transactional id. A batch without a producer id is appended without verification."""
    t, p = s.topic(2), Producer(s, "tx")
    for v in (11, 12):
        s.produce(t, s.batch(1, txn=True), v=v, note="no transactional id")
        s.produce(t, s.batch(1, txn=True), v=v, tx=p.tx, note="an id")
        s.produce(t, s.batch(1, txn=True), v=v, tx=s.name("unknown"), note="an unknown id")
        both = [(t, 0, s.batch(1, txn=True)), (t, 1, s.batch(1, pid=p.pid, epoch=p.epoch, seq=0, txn=True))]
        s.produce(both, v=v, tx=p.tx, note="beside one of a producer")
    p.end(True)
    s.fetch([(t, 0, 0), (t, 1, 0)], isolation_level=1)
