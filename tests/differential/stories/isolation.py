"""Transactions as consumers see them: last stable offset, aborted transactions, markers."""

from __future__ import annotations

import time
from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import LONG_POLL_MS, Story, Topic, story
from tests.support.deadlines import Stopwatch


def listed(s: Story, t: Topic, note: str, timestamp: int = -1) -> None:
    for isolation in (0, 1):
        row = {"partition_index": 0, "timestamp": timestamp}
        body: dict[str, Any] = {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": t.name, "partitions": [row]}],
        }
        s.ask("list_offsets", 7, note=f"{note}, isolation {isolation}", **body)


@story("isolation")
def one_commit(s: Story) -> None:
    """A TV2 transaction in one partition: last stable offset, marker, and the empty list of aborted transactions."""
    t, p = s.topic(), Producer(s, "tx")
    p.end(False, note="abort with nothing added moves the epoch")
    p.send(t, 0)
    p.send(t, 1, count=2)
    for v in (4, 11, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="open")
        s.fetch(t, v=v, isolation_level=0, note="open")
    listed(s, t, "open")
    listed(s, t, "open, by time", s.t0)
    listed(s, t, "open, max timestamp", -3)
    p.end(True)
    for v in (4, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="committed")
    listed(s, t, "committed")
    listed(s, t, "committed, by time", s.t0)
    listed(s, t, "committed, max timestamp", -3)


@story("isolation")
def one_abort(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.send(t, 0, count=2)
    p.end(False)
    for v in (4, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="aborted")
        s.fetch(t, v=v, isolation_level=0, note="aborted, uncommitted")
    s.fetch(t, 1, isolation_level=1, note="from its second record")
    s.fetch(t, 2, isolation_level=1, note="from the marker")
    s.fetch(t, 3, isolation_level=1, note="from behind")
    listed(s, t, "aborted")
    listed(s, t, "aborted, by time", s.t0)


@story("isolation")
def overlapping_aborts(s: Story) -> None:
    """The list of aborted transactions is in the order of the markers, not of the first offsets."""
    t, a, b = s.topic(), Producer(s, "a"), Producer(s, "b")
    a.send(t, 0)
    b.send(t, 0)
    s.produce(t, s.batch(1), note="plain behind an open transaction")
    b.end(False)
    s.fetch(t, isolation_level=1, note="b aborted, a open")
    watch = Stopwatch()
    s.fetch(t, isolation_level=1, max_wait=500, note="the long poll waits for the last stable offset")
    s.put("waited", watch.has_run_s(0.4))
    listed(s, t, "b aborted, a open")
    a.end(False)
    for offset in (0, 1, 2, 3, 4, 5):
        s.fetch(t, offset, isolation_level=1, note=f"both aborted, from {offset}")


@story("isolation")
def many_transactions(s: Story) -> None:
    """Three producers commit and abort transactions in turn. A read_committed consumer reads them from several
    offsets."""
    t = s.topic()
    producers = [Producer(s, f"p{n}") for n in range(3)]
    for n in range(9):
        p = producers[n % 3]
        p.send(t, 0)
        p.end(n % 2 == 0)
    for offset in (0, 4, 9, 14, 17, 18):
        s.fetch(t, offset, isolation_level=1, note=f"from {offset}")
    s.fetch(t, 0, isolation_level=1, partition_max_bytes=300, note="300 bytes")


@story("isolation")
def a_marker_wakes_the_long_poll(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    rows: dict[str, Any] = {
        "topics": [
            {
                "topic": t.name,
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9999}],
            }
        ]
    }
    wait: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": LONG_POLL_MS,
        "min_bytes": 1,
        "isolation_level": 1,
        "session_epoch": -1,
    }
    waiting = s.send("fetch", 12, on="reader", **wait, **rows)
    time.sleep(0.2)
    p.send(t, 1, note="more of the transaction")
    time.sleep(0.2)
    p.end(True)
    s.take(waiting)
    s.put("woke", True)


@story("isolation")
def sessions(s: Story) -> None:
    """In a session, a read_committed Fetch returns the records of a transaction only after the commit."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    answer = s.fetch(t, session_epoch=0, isolation_level=1, note="new")
    more = {"session_id": answer["session_id"], "isolation_level": 1}
    s.fetch([], session_epoch=1, **more, note="nothing")
    p.end(True)
    s.fetch([], session_epoch=2, **more, note="committed")


@story("isolation")
def delete_records_into_a_transaction(s: Story) -> None:
    """After DeleteRecords beyond the start of an open transaction the last stable offset is the log start."""
    t, p = s.topic(), Producer(s, "tx")
    s.produce(t, s.batch(2))
    p.send(t, 0, count=4)
    row = {"partition_index": 0, "offset": 4}
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": [row]}], timeout=10000)
    s.fetch(t, 4, isolation_level=1, note="open")
    listed(s, t, "open")
    p.end(False)
    s.fetch(t, 4, isolation_level=1, note="aborted")
    listed(s, t, "aborted")


@story("isolation")
def compressed(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    data = s.batch(3, pid=p.pid, epoch=p.epoch, seq=0, txn=True, codec=1)
    s.produce(t, data, v=12, tx=p.tx, retry=(51,))
    p.end(False)
    s.fetch(t, 1, isolation_level=1)
