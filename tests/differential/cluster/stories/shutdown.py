"""Controlled shutdown of a node: other nodes become leaders of its partitions before it stops."""

from __future__ import annotations

from collections.abc import Iterator

from tests.differential.cluster.stories.asking import describe, metadata
from tests.differential.cluster.stories.elections import PREFERRED, elect
from tests.differential.cluster.stories.producing import Producer, read
from tests.differential.cluster.story import ClusterStory, story

FIRST, SECOND = (1, 2, 3), (2, 3, 1)


@story("shutdown", "stopped")
def leadership(s: ClusterStory) -> Iterator[None]:
    """The node leaves the ISR and stops leading partitions. A partition without another replica gets no leader."""
    led, followed, own = s.topic([[1, 2, 3]]), s.topic([[2, 1, 3]]), s.topic([[1]], min__insync__replicas="1")
    for t, at in ((led, 1), (followed, 2), (own, 1)):
        s.produce(t, s.batch(1), at=at)
    s.await_replicated(led, 1, [1, 2, 3])
    yield
    s.await_leader(led, 2)
    s.await_leader(own, -1)
    s.await_isr(followed, {2, 3})
    for t in (led, followed, own):
        metadata(s, t, 2)
        describe(s, t, 3)
    s.produce(led, s.batch(1), at=2)
    elect(s, led, PREFERRED)
    yield
    for t, in_sync in ((led, {1, 2, 3}), (followed, {1, 2, 3}), (own, {1})):
        s.await_isr(t, in_sync)
        metadata(s, t, 3)
    s.await_leader(own, 1)
    metadata(s, own, 2)
    s.produce(own, s.batch(1), at=1)
    s.fetch(own, 0, v=16, at=1)
    elect(s, led, PREFERRED)
    s.await_leader(led, 1)
    metadata(s, led, 1)


@story("shutdown", "stopped")
def transactions(s: ClusterStory) -> Iterator[None]:
    """An open transaction continues after its coordinator and the leader of its partition have moved."""
    t, p = s.topic([[1, 2, 3]]), Producer(s, FIRST)
    p.send(t, 0, 1)
    s.await_replicated(t, 1, [1, 2, 3])
    yield
    s.await_leader(t, 2)
    p.moves_to(2)
    p.describe()
    p.send(t, 1, 2)
    p.end(True)
    read(s, t, 2)
    yield
    s.await_isr(t, {1, 2, 3})
    p.send(t, 0, 2)
    p.end(False)
    read(s, t, 2)


@story("shutdown", "stopped")
def idempotence(s: ClusterStory) -> Iterator[None]:
    """The node has the producer state when it leads again after a clean restart."""
    t = s.topic([[1, 2]])
    pid, epoch = s.producer_id()

    def send(seq: int, at: int, note: str = "") -> None:
        s.produce(t, s.batch(1, pid=pid, epoch=epoch, seq=seq), at=at, note=note or f"{seq}")

    for seq in range(3):
        send(seq, 1)
    s.await_replicated(t, 3, [1, 2])
    yield
    s.await_leader(t, 2)
    yield
    s.await_isr(t, {1, 2})
    send(2, 2, "again")
    send(3, 2)
    s.await_replicated(t, 4, [1, 2])
    elect(s, t, PREFERRED)
    s.await_leader(t, 1)
    send(3, 1, "again")
    send(0, 1, "an old one")
    send(4, 1)
    send(6, 1, "a gap")
