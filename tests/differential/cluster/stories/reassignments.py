"""Replicas that are added and removed by AlterPartitionReassignments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.differential.cluster.stories.asking import describe, metadata
from tests.differential.cluster.stories.in_sync import set_config
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic
from tests.support import raw


def move(
    s: ClusterStory,
    t: Topic,
    replicas: Sequence[int] | None,
    note: str = "",
    v: int = 1,
    partition: int = 0,
    **more: Any,
) -> bool:
    """Request a reassignment, and return whether it was accepted."""
    rows = [{"partition_index": partition, "replicas": None if replicas is None else list(replicas)}]
    body: dict[str, Any] = {"topics": [{"name": t.name, "partitions": rows}], "timeout": 30_000}
    answer = s.ask("alter_partition_reassignments", v, note=note or f"to {replicas}", **body, **more)
    return not any(raw.error_codes(answer))


def moving(s: ClusterStory, t: Topic, note: str = "") -> None:
    """Record the reassignments in progress, from ListPartitionReassignments, Metadata and DescribeTopicPartitions."""
    body: dict[str, Any] = {"topics": [{"name": t.name, "partition_indexes": [0]}], "timeout": 30_000}
    for topic in s.look(3, "list_partition_reassignments", 0, **body)["topics"]:
        # The controller learns of a completed reassignment before the other nodes.
        await_replicas(s, t, topic["partitions"][0]["replicas"])
    s.ask("list_partition_reassignments", 0, note=note, **body)
    metadata(s, t, 3, note=note)
    describe(s, t, 3, note=note)


def await_replicas(s: ClusterStory, t: Topic, replicas: Sequence[int], partition: int = 0) -> None:
    wanted = list(replicas)
    s.until(
        lambda: all(s.partitions(t, at)[partition]["replica_nodes"] == wanted for at in s.side.reachable()),
        f"{t.name} has its replicas on {wanted}",
    )
    s.settled(t)


@story("reassignments")
def all_in_sync(s: ClusterStory) -> None:
    """With all links working, a reassignment completes by itself."""
    t = s.topic([[1, 2]])
    s.produce(t, s.batch(2), at=1)
    for replicas in ([1, 2], [2, 1], [1, 2, 3], [3, 2, 1], [2, 3], [1], [2], [1, 2]):
        move(s, t, replicas)
        await_replicas(s, t, replicas)
        s.await_isr(t, set(replicas))
        moving(s, t, f"{replicas}")
    s.produce(t, s.batch(1), at=s.partitions(t, 3)[0]["leader_id"])
    s.fetch(t, 0, v=16, at=2)


@story("reassignments")
def refused(s: ClusterStory) -> None:
    t = s.topic([[1, 2]])
    for v in (0, 1):
        for replicas in ([1, 4], [1, 1], [], [-1], [4, 5], None):
            move(s, t, replicas, v=v)
    for may_change in (True, False):
        for replicas in ([1, 2], [1, 3], [1], [1, 2, 3]):
            note = f"to {replicas}, the factor may change: {may_change}"
            if move(s, t, replicas, note, allow_replication_factor_change=may_change):
                await_replicas(s, t, replicas)
                s.await_isr(t, set(replicas))
    moving(s, t)


@story("reassignments", "cut")
def while_one_is_cut(s: ClusterStory) -> Iterator[None]:
    """Reassignments to node 3 stay in progress while node 3 cannot fetch."""
    added, moved, led = s.topic([[1, 2]]), s.topic([[1, 2]]), s.topic([[1, 2]])
    given_up, changed, left = s.topic([[1, 2]]), s.topic([[1, 2]]), s.topic([[1, 2, 3]])
    every = (added, moved, led, given_up, changed, left)
    for t in every:
        s.produce(t, s.batch(1), at=1)
    s.await_replicated(left, 1, [3])
    yield
    s.produce(left, s.batch(1), at=1, acks=1)
    yield
    s.await_isr(left, {1, 2})
    move(s, added, [1, 2, 3])
    move(s, moved, [1, 3])
    move(s, led, [3, 2])
    move(s, given_up, [3])
    move(s, changed, [2, 3])
    move(s, left, [1, 2])
    await_replicas(s, left, [1, 2])
    for t in every:
        moving(s, t)
    s.ask(
        "list_partition_reassignments",
        0,
        topics=[{"name": added.name, "partition_indexes": [0, 1]}],
        timeout=30_000,
    )
    move(s, added, [1, 2, 3], "the same again")
    move(s, moved, [1, 2], "back to where it was")
    moving(s, moved, "back")
    move(s, moved, None, "given up")
    await_replicas(s, moved, [1, 2])
    moving(s, moved, "given up")
    move(s, given_up, None, "given up")
    await_replicas(s, given_up, [1, 2])
    moving(s, given_up)
    move(s, given_up, None, "given up again")
    move(s, changed, [1, 3], "elsewhere")
    moving(s, changed)
    move(s, led, [3, 1], "another factor", allow_replication_factor_change=False)
    moving(s, led)
    for t in every:
        s.produce(t, s.batch(1), at=1)
    s.fetch(added, 0, v=11, at=3, note="at the replica that comes")
    more_partitions(s, added, [[1, 2]], "as it was")
    more_partitions(s, added, [[1, 2, 3]], "as it will be")
    yield
    for t, replicas in ((added, [1, 2, 3]), (led, [3, 1]), (changed, [1, 3])):
        await_replicas(s, t, replicas)
        s.await_isr(t, set(replicas))
        moving(s, t)


def more_partitions(
    s: ClusterStory, t: Topic, replicas: Sequence[Sequence[int]], note: str, **more: Any
) -> None:
    count = len(s.partitions(t, 3)) + len(replicas)
    rows = [{"broker_ids": list(each)} for each in replicas]
    body: dict[str, Any] = {
        "topics": [{"name": t.name, "count": count, "assignments": rows}],
        "timeout": 30_000,
    }
    answer = s.ask("create_partitions", 3, validate_only=False, note=note, **body, **more)
    if not any(raw.error_codes(answer)):
        s.until(
            lambda: all(len(s.partitions(t, at)) == count for at in s.side.reachable()),
            f"{t.name} has more partitions",
        )


@story("reassignments", "killed")
def with_a_dead_node(s: ClusterStory) -> Iterator[None]:
    """While node 1 is dead, reassignments add and remove replicas on it, and new partitions get replicas on it."""
    away, onto, alone, grown = s.topic([[1, 2]]), s.topic([[2, 3]]), s.topic([[1]]), s.topic([[2, 3]])
    cancelled = s.topic([[1]], unclean__leader__election__enable="true")
    yield
    s.await_leader(away, 2)
    s.await_leader(alone, -1)
    s.await_leader(cancelled, -1)
    move(s, away, [2, 3])
    await_replicas(s, away, [2, 3])
    moving(s, away)
    move(s, onto, [2, 1])
    moving(s, onto)
    for t in (alone, cancelled):
        move(s, t, [2])
        moving(s, t)
        if move(s, t, None, "given up"):
            await_replicas(s, t, [1])
        moving(s, t)
    more_partitions(s, grown, [[2, 1]], "on a dead node")
    more_partitions(s, grown, [[1, 2]], "led by a dead node")
    more_partitions(s, grown, [[2, 4]], "on a node that is not there")
    more_partitions(s, grown, [[2]], "with a replica less")
    s.settled(grown)
    metadata(s, grown, 3)
    describe(s, grown, 3)
    yield
    await_replicas(s, onto, [2, 1])
    s.await_isr(onto, {1, 2})
    moving(s, onto)
    for partition in (1, 2):
        s.await_isr(grown, {1, 2}, partition)
    metadata(s, grown, 3)
    await_replicas(s, alone, [2])
    metadata(s, alone, 3)
    set_config(s, grown, "min.insync.replicas", None)
