"""The high watermark of leaders and followers below min.insync.replicas, and what clients get from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.asking import (
    delete_records,
    describe_producers,
    epoch_end,
    list_offsets,
)
from tests.differential.cluster.stories.in_sync import set_config
from tests.differential.cluster.stories.producing import Producer, read
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic, produce_body

SECOND = (2, 3, 1)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def log_end(s: ClusterStory, t: Topic, at: int) -> int:
    """Log end offset of a replica."""
    row = {"partition_index": 0, "timestamp": LATEST}
    answer = s.look(at, "list_offsets", 5, replica_id=-2, topics=[{"name": t.name, "partitions": [row]}])
    return int(answer["topics"][0]["partitions"][0]["offset"])


def await_log_end(s: ClusterStory, t: Topic, at: int, offset: int) -> None:
    s.until(lambda: log_end(s, t, at) == offset, f"the log of {t.name} on {at} ends at {offset}")


def offsets(s: ClusterStory, t: Topic, at: int, **more: Any) -> None:
    """Send ListOffsets for the latest and earliest offset, and by timestamp: of the first record, and after the last."""
    for timestamp, note in (
        (LATEST, "latest"),
        (EARLIEST, "earliest"),
        (MAX_TIMESTAMP, "maximum timestamp"),
        (0, "from the first record"),
        (s.t0 + 10**9, "after the last record"),
    ):
        list_offsets(s, t, at, timestamp=timestamp, note=note, **more)


def by_epoch(s: ClusterStory, t: Topic, at: int) -> None:
    for epoch in (0, 1, 2):
        list_offsets(s, t, at, epoch=epoch, note=f"epoch {epoch}")
        epoch_end(s, t, at, epoch)


def fetches(s: ClusterStory, t: Topic, at: int, *versions: int) -> None:
    """Fetch below the high watermark 1, above it, at the log end 2, and beyond."""
    for offset in (0, 1, 2, 3):
        for v in versions:
            s.fetch(t, offset, v=v, at=at)


def without_response(s: ClusterStory, t: Topic, at: int) -> None:
    """Send a Produce with acks=0. The connection then serves the next request."""
    s.send("produce", 9, at=at, timeout=1000, **produce_body([(t, 0, s.batch(1))], 9, 0, None))


@story("high-watermark", "unclean")
def below_min_isr(s: ClusterStory) -> Iterator[None]:
    """The high watermark of a leader below min.insync.replicas does not move, also under the next leader."""
    t, lowered = (
        s.topic([[1, 3, 2]], min__insync__replicas="3"),
        s.topic([[1, 3, 2]], min__insync__replicas="3"),
    )
    for each in (t, lowered):
        s.produce(each, s.batch(1), at=1)
        s.await_replicated(each, 1, [1, 2, 3])
    yield
    for each in (t, lowered):
        s.await_isr(each, {1, 3})
        s.produce(each, s.batch(1), at=1, note="all")
        s.produce(each, s.batch(1, ts=s.t0 + 5), at=1, acks=1, note="leader only")
        await_log_end(s, each, 3, 2)
    for at in (1, 3):
        fetches(s, t, at, 12)
        s.fetch(t, 0, at=at, isolation_level=1, note="committed")
    offsets(s, t, 1)
    delete_records(s, t, 1, 2, note="above the high watermark")
    yield
    for each in (t, lowered):
        s.await_leader(each, 3, readable=False)
        s.await_isr(each, {3})
    for v in (1, 4, 5, 10):
        list_offsets(s, t, 3, v)
    offsets(s, t, 3)
    by_epoch(s, t, 3)
    fetches(s, t, 3, 11, 16)
    s.produce(t, s.batch(1), at=3, note="all")
    s.produce(t, s.batch(1), at=3, acks=1, note="leader only")
    without_response(s, t, 3)
    s.fetch(t, 1, at=3, note="behind acks=0")
    await_log_end(s, t, 3, 4)
    delete_records(s, t, 3, 2, note="above the high watermark")
    delete_records(s, t, 3, -1)
    offsets(s, t, 3)
    yield
    for each in (t, lowered):
        s.await_isr(each, {2, 3})
    await_log_end(s, t, 2, 4)
    s.until(lambda: s.high_watermark(t, 2) == 1, "the follower has the high watermark of its leader")
    for at in (2, 3):
        s.fetch(t, 1, at=at)
    list_offsets(s, t, 3)
    set_config(s, lowered, "min.insync.replicas", "2")
    s.fetch(lowered, 0, at=3, note="two are enough")
    list_offsets(s, lowered, 3, note="two are enough")
    s.produce(lowered, s.batch(1), at=3, retry=(19,), note="two are enough")
    s.fetch(lowered, 0, at=3, note="after the next append")
    list_offsets(s, lowered, 3, note="after the next append")
    yield
    for each, end in ((t, 4), (lowered, 3)):
        s.await_isr(each, {1, 2, 3})
        s.await_replicated(each, end, [1, 2, 3])
    for at in (1, 3):
        s.fetch(t, 1, at=at)
    offsets(s, t, 3)


@story("high-watermark", "leaderless")
def without_a_leader(s: ClusterStory) -> Iterator[None]:
    """A replica that fell behind serves consumers up to its high watermark while there is no leader."""
    t = s.topic([[1, 3]], min__insync__replicas="1")
    s.produce(t, s.batch(1), at=1)
    s.await_replicated(t, 1, [1, 3])
    yield
    s.produce(t, s.batch(1), at=1, acks=1)
    yield
    s.await_isr(t, {1})
    s.produce(t, s.batch(1), at=1)
    yield
    s.await_leader(t, -1)
    for at in (2, 3):
        for epoch in (-1, 0, 1, 2):
            for v in (10, 11, 12, 16):
                s.fetch(t, 0, v=v, at=at, current_leader_epoch=epoch, note=f"epoch {epoch}")
            list_offsets(s, t, at, epoch=epoch, note=f"epoch {epoch}")
        for offset in (1, 2):
            s.fetch(t, offset, at=at)
        list_offsets(s, t, at, replica_id=-2, note="of a tool")
        for v in (9, 10, 12):
            for acks in (1, -1):
                s.produce(t, s.batch(1), v=v, at=at, acks=acks, note=f"acks {acks}")
        delete_records(s, t, at, -1)
    yield
    s.await_leader(t, 1)
    s.await_isr(t, {1, 3})
    s.await_replicated(t, 3, [1, 3])
    for at in (1, 3):
        s.fetch(t, 0, at=at)


@story("high-watermark", "killed")
def transactions(s: ClusterStory) -> Iterator[None]:
    """A partition of a transaction is below min.insync.replicas: the coordinator retries its marker until it is not."""
    t, other = s.topic([[2, 1]]), s.topic([[2, 3]])
    p, q = Producer(s, SECOND, "commits"), Producer(s, SECOND, "aborts")
    for each in (p, q):
        each.send(t, 0, 2)
        each.send(other, 0, 2)
    s.await_replicated(t, 2, [1, 2])
    yield
    s.await_isr(t, {2})
    s.await_isr("__transaction_state", {2, 3}, 1)
    p.send(t, 1, 2, note="below min.insync.replicas")
    for each, commits in ((p, True), (q, False)):
        each.end(commits, settles=False)
        s.until(lambda each=each: rests(s, each) == [t.name], "the other marker is written")  # type: ignore[misc]
        each.describe()
        each.init(retry=(), note="while the marker waits")
        each.send(other, 0, 2, retry=(), note="while the marker waits")
        each.end(commits, retry=(), settles=False, note="while the marker waits")
    for topic in (t, other):
        read(s, topic, 2)
        describe_producers(s, topic, 2)
    yield
    s.await_isr(t, {1, 2})
    for each in (p, q):
        each.settle()
        each.describe()
    for topic in (t, other):
        describe_producers(s, topic, 2)
        s.until(lambda topic=topic: s.stable(topic, 2) == 4, "all markers are there")  # type: ignore[misc]


def rests(s: ClusterStory, p: Producer) -> list[str]:
    """Topics whose partitions have no marker yet."""
    answer = s.look(p.at, "describe_transactions", 0, transactional_ids=[p.tx])
    return [topic["topic"] for topic in answer["transaction_states"][0]["topics"]]
