"""Fetch: shapes, sizes, offsets, long poll, leader epochs, sessions. isolation.py has the effects of transactions."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tests.differential.story import LONG_POLL_MS, Story, Topic, story
from tests.support.deadlines import Stopwatch

UNKNOWN = Topic("no-such-topic-anywhere", uuid.UUID("11111111-2222-3333-4444-555555555555"))


def fill(s: Story, t: Topic, batches: int, size: int = 100, partition: int = 0) -> None:
    """Append batches of one record of `size` bytes, all equally long."""
    for _ in range(batches):
        data = s.batch([b"x" * size])
        body = {"name": t.name, "partition_data": [{"index": partition, "records": data}]}
        s.quiet("produce", 9, acks=-1, timeout=10000, topic_data=[body])


@story("fetch")
def unknown(s: Story) -> None:
    """Fetch returns UNKNOWN_TOPIC_OR_PARTITION for an unknown name or partition, UNKNOWN_TOPIC_ID for an unknown id."""
    t = s.topic()
    for v in (4, 6, 7, 11, 12):
        s.fetch([(UNKNOWN, 0, 0), (t, 5, 0), (t, 0, 0)], v=v)
    for v in (13, 15, 18):
        s.fetch([(UNKNOWN, 0, 0), (t, 5, 0), (t, 0, 0)], v=v)
    s.fetch([(t, -1, 0)], note="partition -1")


@story("fetch")
def offsets(s: Story) -> None:
    """Fetch below the log start or above the log end gets OFFSET_OUT_OF_RANGE, with -1 for all offsets.

    At the log end it gets no records.
    """
    t = s.topic()
    fill(s, t, 4)
    parts = [{"partition_index": 0, "offset": 2}]
    s.quiet("delete_records", 1, topics=[{"name": t.name, "partitions": parts}], timeout=10000)
    for offset in (-1, 0, 1, 2, 3, 4, 5, 2**63 - 1):
        for v in (4, 12):
            s.fetch(t, offset, v=v, note=f"offset {offset}")
    s.fetch(t, 9, max_wait=LONG_POLL_MS, note="an error does not wait")
    s.put("at once", True)


@story("fetch")
def within_a_batch(s: Story) -> None:
    """An offset within a batch returns the whole batch from its base offset on."""
    t = s.topic()
    s.produce(t, s.batch(4))
    s.produce(t, s.batch(4, codec=1))
    for offset in (0, 2, 3, 4, 6):
        s.fetch(t, offset, note=f"offset {offset}")


@story("fetch")
def partition_limits(s: Story) -> None:
    """KIP-74: the first batch is returned whole even above all limits; further data may be truncated at any byte."""
    t = s.topic()
    fill(s, t, 3)
    for limit in (0, 1, 10, 171, 172, 173, 260, 344, 400, 10_000):
        answer = s.quiet("fetch", 12, **FULL, **one(t, partition_max_bytes=limit))
        s.put(f"fetch v12, PartitionMaxBytes {limit}", returned(answer))


@story("fetch")
def request_limits(s: Story) -> None:
    """MaxBytes applies to the partitions in the order of the request; only the first with data may exceed it."""
    t = s.topic(3)
    for partition in range(3):
        fill(s, t, 2, partition=partition)
    for limit in (0, 1, 172, 344, 400, 600, 10_000):
        rows = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for p in (2, 0, 1)]
        body: dict[str, Any] = {"topics": [{"topic": t.name, "partitions": rows}]}
        s.put(
            f"fetch v12, MaxBytes {limit}",
            returned(s.quiet("fetch", 12, **(FULL | {"max_bytes": limit}), **body)),
        )
        s.put(
            f"fetch v4, MaxBytes {limit}",
            returned(s.quiet("fetch", 4, **(FULL | {"max_bytes": limit}), **body)),
        )
    rows = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 10} for p in (0, 1, 2)]
    body = {"topics": [{"topic": t.name, "partitions": rows}]}
    s.put("fetch v12, PartitionMaxBytes 10 for all", returned(s.quiet("fetch", 12, **FULL, **body)))
    rows = [
        {"partition": p, "fetch_offset": 2 if p == 0 else 0, "partition_max_bytes": 10} for p in (0, 1, 2)
    ]
    body = {"topics": [{"topic": t.name, "partitions": rows}]}
    s.put("fetch v12, the first has nothing", returned(s.quiet("fetch", 12, **FULL, **body)))


FULL: dict[str, Any] = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 1,
    "max_bytes": 1 << 24,
    "session_epoch": -1,
}


def one(t: Topic, **more: Any) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20} | more
    return {"topics": [{"topic": t.name, "partitions": [part]}]}


def returned(answer: dict[str, Any]) -> list[list[int]]:
    """Number of bytes of each partition's records, in the order of the response."""
    return [
        [p["partition_index"], p["error_code"], len(p["records"])]
        for r in answer["responses"]
        for p in r["partitions"]
    ]


@story("fetch")
def nothing_to_do(s: Story) -> None:
    t = s.topic()
    s.ask("fetch", 12, **FULL, topics=[], note="no topics")
    s.ask("fetch", 4, **FULL, topics=[], note="no topics")
    s.ask("fetch", 12, **FULL, topics=[{"topic": t.name, "partitions": []}], note="no partitions")
    s.ask("fetch", 12, **(FULL | {"max_wait": LONG_POLL_MS}), topics=[], note="no topics, 5 s")
    s.put("at once", True)


@story("fetch")
def twice_the_same_partition(s: Story) -> None:
    t = s.topic()
    fill(s, t, 2)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": t.name, "partitions": [part, part | {"fetch_offset": 1}]}]
    s.put("fetch v12", returned(s.quiet("fetch", 12, **FULL, topics=topics)))


@story("fetch")
def odd_parameters(s: Story) -> None:
    t = s.topic()
    fill(s, t, 1)
    for name, value in (
        ("max_wait", -1),
        ("min_bytes", 0),
        ("min_bytes", -1),
        ("min_bytes", 2**31 - 1),
        ("max_bytes", -1),
        ("isolation_level", 1),
        ("isolation_level", 2),
        ("isolation_level", -1),
        ("replica_id", -2),
        ("rack_id", "r1"),
    ):
        field: dict[str, Any] = {name: value}
        s.fetch(t, **field, note=f"{name} {value}")


@story("fetch")
def long_poll(s: Story) -> None:
    """A Fetch waits for MinBytes up to MaxWaitMs, and new data completes it."""
    t = s.topic()
    watch = Stopwatch()
    s.fetch(t, max_wait=600, note="nothing comes")
    s.put("waited", watch.has_run_s(0.5))
    waiting = s.send("fetch", 12, **(FULL | {"max_wait": LONG_POLL_MS}), **one(t), note="something comes")
    time.sleep(0.2)
    s.produce(t, s.batch(1), on="producer")
    s.take(waiting)
    s.put("woke", True)
    watch = Stopwatch()
    waiting = s.send(
        "fetch", 12, **(FULL | {"max_wait": 1000, "min_bytes": 500}), **one(t), note="less than MinBytes"
    )
    time.sleep(0.1)
    s.produce(t, s.batch(1), on="producer")
    s.take(waiting)
    s.put("waited", watch.has_run_s(0.8))
    s.fetch(
        t, 0, max_wait=LONG_POLL_MS, min_bytes=2**31 - 1, max_bytes=10, note="MinBytes is at most MaxBytes"
    )
    s.put("at once", True)


@story("fetch")
def leader_epochs(s: Story) -> None:
    """An older CurrentLeaderEpoch gets FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH.

    A newer LastFetchedEpoch gets OFFSET_OUT_OF_RANGE.
    """
    t = s.topic()
    fill(s, t, 3)
    for v in (9, 12, 13, 18):
        for epoch in (-1, 0, 1, 1000):
            s.fetch(t, v=v, current_leader_epoch=epoch, note=f"current {epoch}")
    s.fetch(t, current_leader_epoch=-2, note="current -2")
    for epoch in (-1, 0, 1, 5):
        for offset in (0, 3):
            s.fetch(t, offset, last_fetched_epoch=epoch, note=f"last fetched {epoch}, offset {offset}")
    s.fetch(t, 9, last_fetched_epoch=0, note="last fetched 0, offset 9")


# -- sessions ------------------------------------------------------------------------------------------------------


def session(
    s: Story, t: Topic | None, note: str, sid: int, epoch: int, v: int = 12, **more: Any
) -> dict[str, Any]:
    rows = [(t, 0, more.pop("offset", 0))] if t else []
    forgotten = more.pop("forget", [])
    more["forgotten_topics_data"] = [f.by(v, 13, "topic") | {"partitions": [0]} for f in forgotten]
    return s.fetch(rows, v=v, session_id=sid, session_epoch=epoch, note=note, **more)


@story("fetch-session")
def life(s: Story) -> None:
    """Incremental responses have only partitions with records, a new high watermark or log start, or an error.

    The cached fetch offset of a partition changes only when a request contains the partition.
    """
    t, u = s.topic(), s.topic()
    fill(s, t, 1)
    sid = s.fetch([(t, 0, 0), (u, 0, 0)], session_epoch=0, note="new")["session_id"]
    session(s, None, "nothing sent: the same data again", sid, 1)
    session(s, t, "moved on", sid, 2, offset=1)
    session(s, None, "nothing new", sid, 3)
    fill(s, u, 1)
    session(s, None, "data in the other", sid, 4)
    session(s, None, "and again", sid, 5)
    session(s, None, "the other is forgotten", sid, 6, forget=[u])
    fill(s, u, 1)
    session(s, None, "its data is not told", sid, 7)
    session(s, u, "added again", sid, 8, offset=1)
    session(s, None, "closed", sid, -1)
    session(s, None, "gone", sid, 9)


@story("fetch-session")
def errors(s: Story) -> None:
    """Responses with FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH have no topics, and the session survives."""
    t = s.topic()
    fill(s, t, 1)
    session(s, t, "unknown id", 123456789, 1)
    session(s, t, "unknown id 0, epoch 1", 0, 1)
    session(s, t, "negative id", -5, 1)
    session(s, t, "unknown id, epoch 0", 987654321, 0)
    session(s, t, "unknown id, epoch -1", 987654321, -1)
    sid = session(s, t, "new", 0, 0)["session_id"]
    for epoch in (2, 100, -2, 2**31 - 1):
        session(s, t, f"epoch {epoch}, 1 expected", sid, epoch)
    session(s, t, "epoch 1", sid, 1)
    session(s, t, "epoch 1 again", sid, 1)
    session(s, t, "epoch 2", sid, 2)


@story("fetch-session")
def replaced(s: Story) -> None:
    """A Fetch with (session id, epoch 0) closes the session and creates another one."""
    t = s.topic()
    first = session(s, t, "new", 0, 0)["session_id"]
    second = session(s, t, "again, with its id", first, 0)["session_id"]
    s.put("another id", first != second)
    session(s, t, "the old one", first, 1)
    session(s, t, "the new one", second, 1)


@story("fetch-session")
def names_and_ids(s: Story) -> None:
    """A session created with topic names gets FETCH_SESSION_TOPIC_ID_ERROR in versions with ids, and the reverse."""
    t = s.topic()
    by_name = session(s, t, "new, by name", 0, 0, 12)["session_id"]
    session(s, t, "by id", by_name, 1, 13)
    session(s, None, "nothing, v13", by_name, 1, 13)
    by_id = session(s, t, "new, by id", 0, 0, 13)["session_id"]
    session(s, t, "by name", by_id, 1, 12)
    session(s, t, "by id, v18", by_id, 1, 18)


@story("fetch-session")
def all_forgotten(s: Story) -> None:
    """A session from which all partitions are removed is closed, and the response has session id 0."""
    t = s.topic()
    sid = session(s, t, "new", 0, 0)["session_id"]
    session(s, None, "all forgotten", sid, 1, forget=[t])
    session(s, None, "gone", sid, 2)


@story("fetch-session")
def forgotten_and_added_at_once(s: Story) -> None:
    t = s.topic()
    fill(s, t, 1)
    sid = session(s, t, "new", 0, 0)["session_id"]
    session(s, t, "added and forgotten in one request", sid, 1, forget=[t])
    session(s, None, "after it", sid, 2)


@story("fetch-session")
def errors_inside(s: Story) -> None:
    """A partition with an error is in each response of the session, and once more after it has recovered."""
    t = s.topic()
    fill(s, t, 1)
    sid = s.fetch([(t, 0, 0), (UNKNOWN, 0, 0)], session_epoch=0, note="new")["session_id"]
    session(s, t, "t from 1 on", sid, 1, offset=1)
    session(s, None, "the error again", sid, 2)
    session(s, t, "an offset out of range", sid, 3, offset=50)
    session(s, None, "again", sid, 4)
    session(s, t, "back", sid, 5, offset=1)
    session(s, None, "nothing of it", sid, 6)


@story("fetch-session")
def order(s: Story) -> None:
    """A partition that returned data moves to the end of the session's order."""
    t = s.topic(3)
    rows = [(t, p, 0) for p in range(3)]
    fill(s, t, 1, partition=0)
    sid = s.fetch(rows, session_epoch=0, note="new")["session_id"]
    for partition in range(3):
        fill(s, t, 1, partition=partition)
    answer = s.quiet("fetch", 12, **(FULL | {"session_id": sid, "session_epoch": 1}), topics=[])
    s.put("order", returned(answer))
    answer = s.quiet(
        "fetch", 12, **(FULL | {"session_id": sid, "session_epoch": 2, "max_bytes": 200}), topics=[]
    )
    s.put("order, 200 bytes", returned(answer))
    answer = s.quiet(
        "fetch", 12, **(FULL | {"session_id": sid, "session_epoch": 3, "max_bytes": 200}), topics=[]
    )
    s.put("order, 200 bytes again", returned(answer))


@story("fetch-session")
def on_another_connection(s: Story) -> None:
    t = s.topic()
    fill(s, t, 1)
    sid = session(s, t, "new", 0, 0)["session_id"]
    session(s, t, "from another connection", sid, 1, on="other", offset=1)


@story("fetch-session")
def log_start_moves(s: Story) -> None:
    """A new log start is returned in a session even without records."""
    t = s.topic()
    fill(s, t, 3)
    sid = session(s, t, "new, at the end", 0, 0, offset=3)["session_id"]
    session(s, None, "nothing", sid, 1)
    parts = [{"partition_index": 0, "offset": 2}]
    s.quiet("delete_records", 1, topics=[{"name": t.name, "partitions": parts}], timeout=10000)
    session(s, None, "log start 2", sid, 2)
    session(s, None, "nothing", sid, 3)


@story("fetch-session")
def long_poll_in_a_session(s: Story) -> None:
    t = s.topic()
    sid = session(s, t, "new", 0, 0)["session_id"]
    watch = Stopwatch()
    session(s, None, "nothing comes", sid, 1, max_wait=500)
    s.put("waited", watch.has_run_s(0.4))
    more = FULL | {"max_wait": LONG_POLL_MS, "session_id": sid, "session_epoch": 2}
    waiting = s.send("fetch", 12, **more, topics=[], note="something comes")
    time.sleep(0.2)
    s.produce(t, s.batch(1), on="producer")
    s.take(waiting)
