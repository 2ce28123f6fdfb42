"""One node of three is left, and the internal topics have min.insync.replicas=2: the responses of coordinators."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from tests.differential.cluster.stories.asking import describe_producers
from tests.differential.cluster.stories.groups import Member, describe, heartbeat
from tests.differential.cluster.stories.producing import Producer, read
from tests.differential.cluster.stories.transactions import fetch_offsets, find
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic

FIRST, SECOND = (1, 2, 3), (2, 3, 1)


@story("below-min-isr", "alone")
def transactions(s: ClusterStory) -> Iterator[None]:
    """No transaction state can be written: no transaction begins or ends, and none is lost."""
    t = s.topic([[1, 2]], min__insync__replicas="1")
    known, open_, far = Producer(s, FIRST, "known"), Producer(s, FIRST, "open"), Producer(s, SECOND, "far")
    fresh = s.coordinated(FIRST, "fresh")
    open_.send(t, 0, 1)
    yield
    s.await_isr("__transaction_state", {1}, 0)
    known.moves_to(1)
    far.moves_to(1)
    for v in (0, 4, 5):
        s.ask(
            "init_producer_id", v, at=1, transactional_id=fresh, transaction_timeout=60_000, note="a new id"
        )
        known.init(v)
    far.init(note="moved here")
    s.ask(
        "init_producer_id", 5, at=1, transactional_id=None, transaction_timeout=60_000, note="without an id"
    )
    for v in (0, 3, 5):
        known.add(t, v=v)
    known.add_offsets(s.coordinated(FIRST, "g"))
    known.send(t, 0, 1, timeout=200)
    known.send(t, 0, 1, v=11)
    open_.send(t, 1, 1, note="in the open one")
    for v in (3, 4, 5):
        open_.end(True, v)
    open_.end(False)
    for p in (known, open_, far):
        p.describe()
        find(s, p.tx, 1, 1)
    read(s, t, 1)
    describe_producers(s, t, 1)
    yield
    s.await_isr("__transaction_state", {1, 2, 3}, 0)
    open_.moves_to(1)
    open_.describe()
    open_.end(True)
    read(s, t, 1)
    known.init()
    known.send(t, 0, 1)
    known.end(True)


@story("below-min-isr", "alone")
def groups(s: ClusterStory) -> Iterator[None]:
    """Group records are written, but not committed until other nodes are back. The coordinator does not wait forever."""
    t = s.topic([[1, 2]], min__insync__replicas="1")
    known = {
        name: Member(s, s.coordinated(FIRST, name), t) for name in ("commits", "rejoins", "leaves", "deleted")
    }
    moved, p = Member(s, s.coordinated(SECOND, "moved"), t), Producer(s, FIRST)
    for m in known.values():
        m.join(1)
        m.sync(1)
        m.commit(3, 1)
    known["deleted"].leave(1)
    moved.join(2)
    moved.sync(2)
    moved.commit(4, 2)
    offsets = Topic("__consumer_offsets", uuid.UUID(int=0))
    for index, leader in ((0, 1), (1, 2)):
        s.await_replicated(offsets, s.high_watermark(offsets, leader, index), [1], index)
    yield
    for index in (0, 1):
        s.await_isr(offsets.name, {1}, index)
    s.await_coordinator(moved.group, 0, 1)
    nothing_is_uncommitted(s, known, moved)
    changes(s, known, moved, p)
    something_is_uncommitted(s, known, moved)
    yield
    for index in (0, 1):
        s.await_isr(offsets.name, {1, 2, 3}, index)
    for m in (*known.values(), moved):
        s.await_coordinator(m.group, 0, 1)
        fetch_offsets(s, m.group, t, 1)
        describe(s, m.group, 1)
    m = known["rejoins"]
    m.join(1)
    m.sync(1)
    m.commit(8, 1)
    fetch_offsets(s, m.group, t, 1)


def nothing_is_uncommitted(s: ClusterStory, known: dict[str, Member], moved: Member) -> None:
    """Requests that need no record get their usual responses."""
    for m in (*known.values(), moved):
        m.heartbeat(1)
        fetch_offsets(s, m.group, m.t, 1)
    known["commits"].sync(1)
    for m in (known["commits"], moved):
        describe(s, m.group, 1)
        find(s, m.group, 0, 1)


def changes(s: ClusterStory, known: dict[str, Member], moved: Member, p: Producer) -> None:
    """Send requests for which the coordinator must write a record."""
    for v in (2, 8, 9):
        known["commits"].commit(5, 1, v)
    moved.commit(6, 1)
    fresh = Member(s, s.coordinated(FIRST, "fresh"), moved.t)
    fresh.commit(1, 1)
    for v in (3, 5):
        p.offsets(s.coordinated(FIRST, "of-transactions"), moved.t, 7, 1, v, retry=())
    fresh.join(1)
    fresh.sync(1)
    known["rejoins"].join(1)
    known["rejoins"].sync(1)
    known["leaves"].leave(1)
    s.ask("delete_groups", 2, at=1, groups_names=[known["deleted"].group])
    heartbeat(s, s.coordinated(FIRST, "consumers"), "AAAAAAAAAAAAAAAAAAAAAQ", 0, 1, moved.t)


def something_is_uncommitted(s: ClusterStory, known: dict[str, Member], moved: Member) -> None:
    """Responses wait until earlier records of the group are committed; OffsetFetch returns the last committed state."""
    for m in (known["commits"], moved):
        m.heartbeat(1)
        m.sync(1)
        fetch_offsets(s, m.group, m.t, 1)
        m.leave(1, member_id="another")
    for v in (2, 3):
        known["leaves"].leave(1, v, note="again")
    rows = [{"name": moved.t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, at=1, group_id=known["leaves"].group, topics=rows)
    fetch_offsets(s, known["leaves"].group, moved.t, 1)
    fetch_offsets(s, known["deleted"].group, moved.t, 1)
