"""Leaders, and the responses of other nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.differential.cluster.stories.asking import (
    delete_records,
    describe,
    describe_producers,
    epoch_end,
    list_offsets,
    metadata,
)
from tests.differential.cluster.story import ClusterStory, story


@story("leadership")
def at_followers(s: ClusterStory) -> None:
    """Requests for a leader, sent to a follower and to a node without a replica."""
    t = s.topic([[1, 2]])
    s.produce(t, s.batch(3), at=1)
    s.await_replicated(t, 3, [1, 2])
    for at in (2, 3):
        for v in (3, 9, 10, 12, 13):
            s.produce(t, s.batch(1), v=v, at=at)
        s.produce(t, s.batch(1), acks=1, v=11, at=at)
        for v in (4, 10, 11, 12, 13, 15, 16, 18):
            s.fetch(t, 0, v=v, at=at)
        for v in (1, 4, 5, 10, 11):
            list_offsets(s, t, at, v)
        list_offsets(s, t, at, 10, -2)
        list_offsets(s, t, at, 10, 0)
        for replica in (-2, 1, 2, 3, 7):
            list_offsets(s, t, at, 10, replica_id=replica, note=f"replica id {replica}")
        list_offsets(s, t, at, 10, epoch=3, replica_id=-2, note="of a tool, epoch 3")
        for v in (2, 3, 4):
            epoch_end(s, t, at, 0, v=v)
        describe_producers(s, t, at)
        delete_records(s, t, at, 1)
        metadata(s, t, at)
        describe(s, t, at)


@story("leadership")
def epochs(s: ClusterStory) -> None:
    """Fetch, ListOffsets and OffsetForLeaderEpoch with a leader epoch that is older or newer than the node's."""
    t = s.topic([[1, 2, 3]])
    s.produce(t, s.batch(2), at=1)
    s.await_replicated(t, 2, [1, 2, 3])
    s.quiet(
        "elect_leaders",
        2,
        election_type=0,
        topic_partitions=[{"topic": t.name, "partitions": [0]}],
        timeout=10_000,
    )
    for at in (1, 2):
        for epoch in (-1, 0, 1, 5):
            for v in (9, 11, 12, 16):
                s.fetch(t, 0, v=v, at=at, current_leader_epoch=epoch, note=f"epoch {epoch}")
            for v in (4, 9):
                list_offsets(s, t, at, v, epoch=epoch, note=f"epoch {epoch}")
            for v in (2, 3, 4):
                epoch_end(s, t, at, 0, epoch, v, note=f"epoch {epoch}")


@story("leadership", "killed")
def failover(s: ClusterStory) -> Iterator[None]:
    """The leader is killed; the next in-sync replica leads in a new epoch, and the old leader comes back as a follower."""
    t = s.topic([[1, 2, 3]])
    s.produce(t, s.batch(2), at=1)
    s.await_replicated(t, 2, [1, 2, 3])
    metadata(s, t, 2)
    yield
    s.await_leader(t, 2)
    for at in (2, 3):
        metadata(s, t, at)
        describe(s, t, at)
        for v in (9, 10, 13):
            s.produce(t, s.batch(1), v=v, at=at)
        s.await_replicated(t, 5, [2, 3])
        for epoch in (-1, 0, 1, 2):
            s.fetch(t, 0, v=16, at=at, current_leader_epoch=epoch, note=f"epoch {epoch}")
            list_offsets(s, t, at, epoch=epoch, note=f"epoch {epoch}")
            epoch_end(s, t, at, 0, epoch, note=f"epoch {epoch}")
        s.fetch(
            t, 2, v=16, at=at, current_leader_epoch=1, last_fetched_epoch=0, note="from the end of epoch 0"
        )
        s.fetch(
            t, 3, v=16, at=at, current_leader_epoch=1, last_fetched_epoch=0, note="beyond the end of epoch 0"
        )
        s.fetch(t, 3, v=16, at=at, current_leader_epoch=1, last_fetched_epoch=1, note="of epoch 1")
        s.fetch(t, 3, v=16, at=at, current_leader_epoch=1, last_fetched_epoch=2, note="of an epoch to come")
    yield
    s.await_isr(t, {1, 2, 3})
    for at in (1, 2):
        metadata(s, t, at)
        for v in (9, 10):
            s.produce(t, s.batch(1), v=v, at=at)
        for epoch in (-1, 0, 1):
            s.fetch(t, 0, v=16, at=at, current_leader_epoch=epoch, note=f"epoch {epoch}")
            list_offsets(s, t, at, epoch=epoch, note=f"epoch {epoch}")
            epoch_end(s, t, at, 1, epoch, note=f"epoch {epoch}")


@story("leadership", "killed")
def without_the_leader(s: ClusterStory) -> Iterator[None]:
    """While the only replica, or the only in-sync replica, is down, the partition has no leader."""
    t = s.topic([[1]], min__insync__replicas="1")
    s.produce(t, s.batch(1), at=1)
    yield
    s.await_leader(t, -1)
    for at in (2, 3):
        metadata(s, t, at)
        describe(s, t, at)
        for v in (9, 10, 13):
            s.produce(t, s.batch(1), v=v, at=at)
        for v in (11, 12, 16):
            s.fetch(t, 0, v=v, at=at)
        list_offsets(s, t, at)
        epoch_end(s, t, at, 0)
        delete_records(s, t, at, 1)
        describe_producers(s, t, at)
    yield
    s.await_leader(t, 1)
    metadata(s, t, 1)
    for epoch in (-1, 0, 1, 2, 3):
        s.fetch(t, 0, v=16, at=1, current_leader_epoch=epoch, note=f"epoch {epoch}")
