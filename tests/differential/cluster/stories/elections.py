"""Preferred and unclean elections, and the logs after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.asking import describe, epoch_end, list_offsets, metadata
from tests.differential.cluster.stories.in_sync import set_config
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic

PREFERRED, UNCLEAN = 0, 1


def elect(s: ClusterStory, t: Topic, kind: int, *partitions: int, v: int = 2, **more: Any) -> None:
    rows = [{"topic": t.name, "partitions": list(partitions or (0,))}]
    s.ask("elect_leaders", v, election_type=kind, topic_partitions=rows, timeout=30_000, **more)


@story("elections", "killed")
def preferred(s: ClusterStory) -> Iterator[None]:
    """The preferred leader is down; then it is up and not elected yet; then it is elected."""
    t = s.topic([[1, 2, 3], [2, 1, 3], [3, 2, 1]])
    yield
    s.await_leader(t, 2)
    for kind in (PREFERRED, UNCLEAN):
        elect(s, t, kind, 0, 1, 2, 7)
    yield
    s.await_isr(t, {1, 2, 3})
    for v in (0, 1, 2):
        elect(s, t, PREFERRED, 1, 2, v=v, note="not needed")
    elect(s, t, UNCLEAN, note="not needed")
    elect(s, t, PREFERRED)
    s.await_leader(t, 1)
    metadata(s, t, 3)
    elect(s, t, PREFERRED, note="again")
    for at in (1, 2):
        epoch_end(s, t, at, 1)
        epoch_end(s, t, at, 2)


@story("elections", "unclean")
def unclean_by_request(s: ClusterStory) -> Iterator[None]:
    """While the last in-sync replica is down, an operator elects another replica. The old leader then truncates its log."""
    t, kept = s.topic([[1, 2]], min__insync__replicas="1"), s.topic([[1, 2]], min__insync__replicas="1")
    for each in (t, kept):
        s.produce(each, s.batch(1), at=1)
        s.await_replicated(each, 1, [1, 2])
    yield
    s.await_isr(t, {1})
    for each in (t, kept):
        s.produce(each, s.batch(2), at=1)
        s.produce(each, s.batch(1), at=1)
    yield
    s.await_leader(t, -1)
    metadata(s, t, 3)
    describe(s, t, 3)
    elect(s, t, PREFERRED)
    elect(s, t, UNCLEAN)
    yield
    for each in (t, kept):
        s.await_leader(each, -1)
    metadata(s, t, 2)
    describe(s, t, 2)
    elect(s, t, PREFERRED)
    elect(s, t, UNCLEAN)
    s.await_leader(t, 2)
    metadata(s, t, 2)
    describe(s, t, 2)
    elect(s, t, UNCLEAN, note="again")
    elect(s, t, PREFERRED)
    s.fetch(t, 0, v=16, at=2)
    s.produce(t, s.batch(1), at=2)
    s.fetch(t, 4, v=16, at=2, current_leader_epoch=2, last_fetched_epoch=1, note="of the log that was lost")
    s.fetch(t, 4, v=16, at=2, note="beyond the end")
    epoch_end(s, t, 2, 0)
    epoch_end(s, t, 2, 1)
    yield
    s.await_isr(t, {1, 2})
    s.await_leader(kept, 1)
    s.await_isr(kept, {1, 2})
    s.await_replicated(t, 2, [1, 2])
    metadata(s, t, 1)
    s.fetch(t, 0, v=16, at=1, note="its log was cut")
    for epoch in (0, 1, 2, 3):
        epoch_end(s, t, 2, epoch)
    metadata(s, kept, 1)
    s.fetch(kept, 0, v=16, at=1, note="nothing was lost")
    elect(s, t, PREFERRED)
    s.await_leader(t, 1)
    s.fetch(t, 0, v=16, at=1)
    list_offsets(s, t, 1)


@story("elections", "unclean")
def unclean_by_setting(s: ClusterStory) -> Iterator[None]:
    """unclean.leader.election.enable of a topic is set at its creation, or later while a partition has no leader."""
    always = s.topic([[1, 2]], min__insync__replicas="1", unclean__leader__election__enable="true")
    later = s.topic([[1, 2]], min__insync__replicas="1")
    for t in (always, later):
        s.produce(t, s.batch(1), at=1)
        s.await_replicated(t, 1, [1, 2])
    yield
    for t in (always, later):
        s.await_isr(t, {1})
        s.produce(t, s.batch(2), at=1)
    yield
    for t in (always, later):
        s.await_leader(t, -1)
        metadata(s, t, 3)
    set_config(s, later, "unclean.leader.election.enable", "true")
    metadata(s, later, 3)
    yield
    for t in (always, later):
        s.await_leader(t, 2)
        metadata(s, t, 2)
        describe(s, t, 3)
        s.produce(t, s.batch(1), at=2)
    yield
    for t in (always, later):
        s.await_isr(t, {1, 2})
        metadata(s, t, 1)
        s.await_replicated(t, 2, [1, 2])
        s.fetch(t, 0, v=16, at=1)


@story("elections", "unclean")
def unclean_while_waiting(s: ClusterStory) -> Iterator[None]:
    """unclean.leader.election.enable is set while only an out-of-sync replica runs: the controller's periodic
    check elects it."""
    t = s.topic([[1, 2]], min__insync__replicas="1")
    s.produce(t, s.batch(1), at=1)
    s.await_replicated(t, 1, [1, 2])
    yield
    s.await_isr(t, {1})
    s.produce(t, s.batch(2), at=1)
    yield
    yield
    s.await_leader(t, -1)
    set_config(s, t, "unclean.leader.election.enable", "true")
    s.await_leader(t, 2)
    metadata(s, t, 2)
    yield
    s.await_isr(t, {1, 2})
    metadata(s, t, 1)
