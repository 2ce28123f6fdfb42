"""Transactions whose coordinator, or whose partitions, move to another node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.asking import describe_producers
from tests.differential.cluster.stories.producing import Producer, read
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic

FIRST, SECOND = (1, 2, 3), (2, 3, 1)


@story("transactions")
def at_another_node(s: ClusterStory) -> None:
    """Requests for a transactional id get NOT_COORDINATOR from all nodes except its coordinator."""
    t, p = s.topic([[2, 3]]), Producer(s, FIRST)
    p.send(t, 0, 2)
    for at in (2, 3):
        for v in (0, 3, 4, 5):
            p.init(v, at=at, retry=())
        for v in (0, 2, 3, 4, 5):
            p.add(t, v=v, at=at, retry=())
        p.add(t, v=5, at=at, verify_only=True, retry=(), note="verify")
        p.add_offsets(s.name("g"), at=at)
        for v in (0, 3, 4, 5):
            p.end(True, v, at=at)
        p.describe(at)
        listed(s, at)
    for v in (1, 4, 6):
        for at in (1, 2, 3):
            find(s, p.tx, 1, at, v)
    p.describe()
    listed(s, 1)
    p.end(True)
    read(s, t, 2)


def listed(s: ClusterStory, at: int, **more: Any) -> None:
    s.ask("list_transactions", 2, at=at, **more)


def find(s: ClusterStory, key: str, kind: int, at: int, v: int = 4, **more: Any) -> None:
    body = {"key": key} if v < 4 else {"coordinator_keys": [key]}
    s.ask("find_coordinator", v, at=at, key_type=kind, **body, **more)


@story("transactions", "killed")
def the_coordinator_dies(s: ClusterStory) -> Iterator[None]:
    """The next coordinator continues with transactional ids in the states Empty, Ongoing, CompleteCommit and
    CompleteAbort."""
    t = s.topic([[2, 3]])
    empty, done, gone = Producer(s, FIRST, "empty"), Producer(s, FIRST, "done"), Producer(s, FIRST, "aborted")
    both, open_ = Producer(s, FIRST, "both"), Producer(s, FIRST, "open")
    every = (empty, done, gone, both, open_)
    done.send(t, 0, 2)
    done.end(True)
    gone.send(t, 0, 2)
    gone.end(False)
    both.send(t, 0, 2)
    open_.send(t, 0, 2)
    yield
    for p in every:
        p.moves_to(2)
        p.describe()
    listed(s, 2)
    listed(s, 3)
    for at in (2, 3):
        find(s, done.tx, 1, at)
        both.describe(3)
        both.end(True, at=3)
    both.send(t, 1, 2, note="goes on")
    both.end(True, note="begun before, committed after")
    open_.end(False, note="begun before, aborted after")
    done.send(t, 0, 2, note="the next one", epoch=done.epoch)
    done.end(True)
    gone.send(t, 0, 2, note="the next one")
    gone.end(True)
    for v in (0, 4, 5):
        empty.init(v)
    open_.init()
    read(s, t, 2)
    describe_producers(s, t, 2)
    yield
    for p in every:
        p.describe(1)
    listed(s, 1)
    find(s, done.tx, 1, 1)
    done.end(True, at=1)
    done.send(t, 1, 2)
    done.end(True)


@story("transactions", "killed")
def a_leader_dies(s: ClusterStory) -> Iterator[None]:
    """The new leader has the producer state: written sequences, open transactions, and fenced epochs."""
    t = s.topic([[1, 2, 3]])
    p, old = Producer(s, SECOND), Producer(s, SECOND, "old")
    pid, epoch = s.producer_id()
    for seq in range(3):
        s.produce(t, s.batch(1, pid=pid, epoch=epoch, seq=seq), at=1, note="idempotent")
    p.send(t, 0, 1)
    old.send(t, 0, 1)
    before = (old.pid, old.epoch)
    old.init(note="fences")
    zombie = {"pid": before[0], "epoch": before[1]}
    old.send(t, 1, 1, note="zombie", **zombie)
    old.end(True, note="zombie", producer_epoch=before[1], settles=False)
    describe_producers(s, t, 1)
    s.await_replicated(t, 6, [1, 2, 3])
    yield
    s.await_leader(t, 2)
    describe_producers(s, t, 2)
    for seq in (2, 0, 4, 3):
        s.produce(t, s.batch(1, pid=pid, epoch=epoch, seq=seq), at=2, note=f"idempotent, {seq}")
    old.send(t, 1, 2, note="zombie", **zombie)
    old.end(True, note="zombie", producer_epoch=before[1], settles=False)
    p.send(t, 0, 2, note="again")
    p.send(t, 1, 2, note="goes on")
    p.send(t, 2, 2, v=11, note="goes on, old protocol")
    read(s, t, 2)
    p.end(True)
    read(s, t, 2)
    old.send(t, 0, 2, note="the new epoch")
    describe_producers(s, t, 2)
    yield
    s.await_isr(t, {1, 2, 3})
    old.end(False)
    read(s, t, 2)
    describe_producers(s, t, 1)


@story("transactions", "killed")
def a_leader_dies_before_the_markers(s: ClusterStory) -> Iterator[None]:
    """The leader of a partition of the transaction dies: the marker is sent to the next leader."""
    t, p = s.topic([[1, 2, 3], [3, 2, 1]]), Producer(s, SECOND)
    p.send(t, 0, 1)
    p.send(t, 0, 3, partition=1)
    s.await_replicated(t, 1, [1, 2, 3])
    yield
    s.await_leader(t, 2)
    p.end(True)
    p.describe()
    for at, partition in ((2, 0), (3, 1)):
        read(s, t, at, partition=partition)
    p.send(t, 0, 3, partition=1)
    p.end(False)
    read(s, t, 3, partition=1)


@story("transactions", "killed")
def a_partition_without_a_leader(s: ClusterStory) -> Iterator[None]:
    """A transaction stays in PrepareCommit while one of its partitions has no leader, and then gets its marker."""
    t, p = s.topic([[1]], min__insync__replicas="1"), Producer(s, SECOND)
    p.send(t, 0, 1)
    yield
    s.await_leader(t, -1)
    p.end(True, settles=False)
    s.put("state", p.state())
    yield
    s.await_leader(t, 1)
    p.settle()
    s.put("state", p.state())
    read(s, t, 1)


@story("transactions", "decided")
def a_coordinator_dies_after_the_decision(s: ClusterStory) -> Iterator[None]:
    """If the coordinator dies before any marker is delivered, the next one completes the transaction.

    Transactions are in PrepareCommit and in PrepareAbort.
    """
    t = s.topic([[2, 3], [3, 2]])
    commits, aborts = Producer(s, FIRST, "commits"), Producer(s, FIRST, "aborts")
    old = Producer(s, FIRST, "old")
    for p in (commits, aborts, old):
        p.send(t, 0, 2)
        p.send(t, 0, 3, partition=1)
    for receiver in (2, 3):
        s.side.hold("write_txn_markers", 1, receiver)
    s.send("end_txn", 5, at=1, on="commits", committed=True, **commits.who())
    s.send("end_txn", 5, at=1, on="aborts", committed=False, **aborts.who())
    s.send("end_txn", 3, at=1, on="old", committed=True, **old.who())
    for p, state in ((commits, "PrepareCommit"), (aborts, "PrepareAbort"), (old, "PrepareCommit")):
        s.await_transaction(p.tx, state, 1)
        p.describe()
        p.init(retry=())
    for at, partition in ((2, 0), (3, 1)):
        read(s, t, at, partition=partition)
    yield
    s.side.release()
    for p in (commits, aborts, old):
        p.moves_to(2)
        p.settle()
        p.describe()
    for at, partition in ((2, 0), (3, 1)):
        s.until(lambda at=at, partition=partition: s.stable(t, at, partition) == 6, "all markers are there")  # type: ignore[misc]
        s.put(f"markers of {partition}", sorted(markers(s, t, at, partition)))
        describe_producers(s, t, at, partition=partition)
    for p in (commits, aborts):
        p.end(p is commits, note="again, of the epoch before")
    old.end(True, 3, note="again")
    for p in (commits, aborts, old):
        p.init()
    yield


def markers(s: ClusterStory, t: Topic, at: int, partition: int) -> list[str]:
    """The markers in a log, sorted by producer, as their order is random."""
    body = {"max_bytes": 1 << 20, "max_wait": 0, "min_bytes": 0, "replica_id": -1, "session_epoch": -1}
    row = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = s.look(at, "fetch", 11, **body, topics=[{"topic": t.name, "partitions": [row]}])
    batches = s.normal.answer("fetch", answer)["responses"][0]["partitions"][0]["records"]
    return [
        f"{each['producer_id']} epoch {each['epoch']}: {each['records'][0]}"
        for each in batches
        if each["attributes"] & 0x20
    ]


@story("transactions", "killed")
def offsets_move(s: ClusterStory) -> Iterator[None]:
    """The group's coordinator dies with pending offsets of a transaction. The next one commits them with the transaction."""
    t, group = s.topic([[2, 3]]), s.coordinated(FIRST, "g")
    p, other = Producer(s, SECOND), Producer(s, SECOND, "other")
    s.await_coordinator(group, 0, 1)
    for at in (2, 3):
        p.offsets(group, t, 5, at)
        p.offsets(group, t, 5, at, 3)
    p.offsets(group, t, 7, 1)
    other.add_offsets(group)
    other.offsets(group, t, 9, 1, 3)
    fetch_offsets(s, group, t, 1)
    yield
    s.await_coordinator(group, 0, 2)
    fetch_offsets(s, group, t, 2)
    fetch_offsets(s, group, t, 3)
    other.end(False)
    fetch_offsets(s, group, t, 2)
    p.end(True)
    fetch_offsets(s, group, t, 2)
    p.offsets(group, t, 11, 2)
    p.end(True)
    fetch_offsets(s, group, t, 2)
    yield
    fetch_offsets(s, group, t, 1)


def fetch_offsets(s: ClusterStory, group: str, t: Topic, at: int) -> None:
    for stable in (False, True):
        rows = [
            {
                "group_id": group,
                "member_id": None,
                "member_epoch": -1,
                "topics": [{"name": t.name, "partition_indexes": [0]}],
            }
        ]
        s.ask("offset_fetch", 9, at=at, groups=rows, require_stable=stable, note=f"stable: {stable}")
