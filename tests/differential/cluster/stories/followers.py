"""Consumers that fetch from followers (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.producing import Producer
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic


def near(s: ClusterStory, t: Topic, rack: str, at: int, offset: int = 0, v: int = 12, **more: Any) -> None:
    s.fetch(t, offset, v=v, at=at, rack_id=rack, note=f"rack {rack or 'none'}", **more)


@story("followers")
def the_nearest(s: ClusterStory) -> None:
    """The leader returns a follower in the consumer's rack as preferred read replica, and no records."""
    t, two = s.topic([[1, 2, 3]]), s.topic([[1, 2]])
    for each in (t, two):
        s.produce(each, s.batch(3), at=1)
    s.await_replicated(t, 3, [1, 2, 3])
    s.await_replicated(two, 3, [1, 2])
    for v in (11, 12, 16):
        for rack in ("a", "b", "c", "d", ""):
            near(s, t, rack, 1, v=v)
    near(s, two, "c", 1)
    for offset in (2, 3, 4, 9):
        near(s, t, "b", 1, offset)
    near(s, t, "b", 1, -1)
    for at in (2, 3):
        for rack in ("a", "b", "c", ""):
            near(s, t, rack, at)
    near(s, t, "b", 2, 3)
    for offset in (4, 9, -1):
        for v in (11, 12, 16):
            near(s, t, "b", 2, offset, v=v)


@story("followers", "cut")
def one_that_lags(s: ClusterStory) -> Iterator[None]:
    """An out-of-sync follower is not preferred. If it gets a Fetch nevertheless, it returns the records that it has."""
    t = s.topic([[1, 2, 3]])
    s.produce(t, s.batch(2), at=1)
    s.await_replicated(t, 2, [1, 2, 3])
    yield
    s.produce(t, s.batch(3), at=1, acks=1)
    near(s, t, "c", 1, 5)
    near(s, t, "c", 1, 2)
    yield
    s.await_isr(t, {1, 2})
    s.await_replicated(t, 5, [1, 2])
    for rack in ("b", "c"):
        near(s, t, rack, 1)
    for v in (11, 12, 16):
        for offset in (0, 2, 3, 5, 6, 9):
            near(s, t, "c", 3, offset, v=v)
    yield
    s.await_isr(t, {1, 2, 3})
    s.await_replicated(t, 5, [1, 2, 3])
    near(s, t, "c", 1)
    near(s, t, "c", 3, 2)


@story("followers")
def committed_reads(s: ClusterStory) -> None:
    """A read_committed Fetch at a follower returns its own last stable offset and its own list of aborted transactions."""
    t, p, other = s.topic([[1, 2, 3]]), Producer(s, (3, 1, 2)), Producer(s, (3, 1, 2), "other")
    p.send(t, 0, 1)
    other.send(t, 0, 1)
    s.produce(t, s.batch(1), at=1)
    s.await_replicated(t, 3, [1, 2, 3])
    for at in (1, 2):
        for isolation in (0, 1):
            s.fetch(t, 0, v=12, at=at, isolation_level=isolation, note=f"isolation {isolation}")
    p.end(False)
    s.await_replicated(t, 4, [1, 2, 3])
    for at in (1, 2):
        s.fetch(t, 0, v=12, at=at, isolation_level=1, note="one aborted, one open")
    other.end(True)
    s.await_replicated(t, 5, [1, 2, 3])
    for at in (1, 2):
        for offset in (0, 2, 4):
            s.fetch(t, offset, v=12, at=at, isolation_level=1, note="all complete")
