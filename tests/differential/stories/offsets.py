"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any

from tests.differential.story import Story, Topic, story

SPECIAL = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def listed(
    s: Story, t: Topic, note: str, timestamp: int, v: int = 7, partition: int = 0, **more: Any
) -> None:
    row = {"partition_index": partition, "timestamp": timestamp}
    row |= {k: more.pop(k) for k in ("current_leader_epoch",) if k in more}
    body: dict[str, Any] = {
        "replica_id": -1,
        "topics": [{"name": t.name, "partitions": [row]}],
        "timeout": 1000,
    } | more
    s.ask("list_offsets", v, note=note, **body)


@story("list-offsets")
def special_timestamps(s: Story) -> None:
    """Each special timestamp is valid from some version of ListOffsets on.

    Lower versions, and other negative timestamps, get UNSUPPORTED_VERSION.
    """
    t = s.topic()
    s.produce(t, s.batch(3, ts_deltas=[0, 900, 100]))
    for timestamp, low in SPECIAL.items():
        for v in sorted({1, low - 1, low, 11} - {0}):
            listed(s, t, f"timestamp {timestamp}", timestamp, v)
    for timestamp in (-7, -100, -(2**63)):
        listed(s, t, f"timestamp {timestamp}", timestamp, 11)
        listed(s, t, f"timestamp {timestamp}", timestamp, 1)


@story("list-offsets")
def by_time(s: Story) -> None:
    """ListOffsets returns the first record with at least the timestamp, also within a batch or a compressed batch."""
    t = s.topic()
    s.produce(t, s.batch(3, ts=s.t0, ts_deltas=[0, 50, 20]))
    s.produce(t, s.batch(3, ts=s.t0 + 100, ts_deltas=[0, 50, 20], codec=1))
    s.produce(t, s.batch(1, ts=s.t0 + 10))
    for delta in (-1000, 0, 1, 20, 21, 50, 51, 100, 110, 121, 150, 151):
        listed(s, t, f"t0+{delta}", s.t0 + delta)
        listed(s, t, f"t0+{delta}", s.t0 + delta, 1)
    listed(s, t, "0", 0)
    listed(s, t, "the highest", 2**63 - 1)


@story("list-offsets")
def empty_partition(s: Story) -> None:
    t = s.topic()
    for timestamp in SPECIAL:
        listed(s, t, f"timestamp {timestamp}", timestamp, 11)
    listed(s, t, "t0", s.t0, 11)


@story("list-offsets")
def errors(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(1))
    for v in (1, 4, 6, 11):
        listed(s, Topic(s.name("missing"), t.id), "unknown topic", -1, v)
        listed(s, t, "unknown partition", -1, v, partition=3)
    listed(s, t, "partition -1", -1, partition=-1)
    for epoch in (0, 1, 99, -1, -2):
        listed(s, t, f"leader epoch {epoch}", -1, 7, current_leader_epoch=epoch)
    rows = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    for v in (1, 7):
        s.ask(
            "list_offsets",
            v,
            replica_id=-1,
            topics=[{"name": t.name, "partitions": rows}],
            note="a partition twice",
        )
    s.ask("list_offsets", 7, replica_id=-1, topics=[], note="none")
    for replica in (-2, 0, 1, 5):
        listed(s, t, f"replica id {replica}", -1, 7, replica_id=replica)
    listed(s, t, "isolation 1", -1, 7, isolation_level=1)
    listed(s, t, "isolation 2", -1, 7, isolation_level=2)


@story("list-offsets")
def after_delete_records(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(5, ts_deltas=[0, 10, 20, 30, 40]))
    row = {"partition_index": 0, "offset": 3}
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": [row]}], timeout=10000)
    for timestamp in SPECIAL:
        listed(s, t, f"timestamp {timestamp}", timestamp, 11)
    for delta in (0, 20, 30, 35):
        listed(s, t, f"t0+{delta}", s.t0 + delta)


@story("list-offsets")
def max_timestamp_deleted(s: Story) -> None:
    """DeleteRecords moves the log start and keeps the batch.

    So timestamp -3 (max timestamp) returns a record that cannot be fetched any more.
    """
    t = s.topic()
    for delta in (0, 500, 20, 30):
        s.produce(t, s.batch(1, ts_deltas=[delta]))
    for offset in (1, 3, 4):
        row = {"partition_index": 0, "offset": offset}
        s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": [row]}], timeout=10000)
        listed(s, t, "max timestamp", -3, 7)
        listed(s, t, "max timestamp, committed", -3, 7, isolation_level=1)
        listed(s, t, "t0+40", s.t0 + 40)


@story("list-offsets")
def log_append_time(s: Story) -> None:
    t = s.topic(message__timestamp__type="LogAppendTime")
    s.produce(t, s.batch(2))
    listed(s, t, "max timestamp", -3, 7)
    listed(s, t, "t0", s.t0, 7)


# -- OffsetForLeaderEpoch ------------------------------------------------------------------------------------------


@story("offset-for-leader-epoch")
def epochs(s: Story) -> None:
    """OffsetForLeaderEpoch returns the log end for the newest epoch, and (-1, -1) for -1 and epochs above the newest.

    CurrentLeaderEpoch is checked as in Fetch.
    """
    t, empty = s.topic(), s.topic()
    s.produce(t, s.batch(3))

    def ask(note: str, topic: str, epoch: int, v: int = 4, **more: int) -> None:
        row = {"partition": 0, "leader_epoch": epoch} | more
        s.ask(
            "offset_for_leader_epoch",
            v,
            replica_id=-1,
            topics=[{"topic": topic, "partitions": [row]}],
            note=note,
        )

    for epoch in (-2, -1, 0, 1, 2**31 - 1):
        ask(f"epoch {epoch}", t.name, epoch)
        ask(f"epoch {epoch}, empty log", empty.name, epoch)
    for current in (-1, 0, 1):
        for v in (2, 3, 4):
            ask(f"current epoch {current}", t.name, 0, v, current_leader_epoch=current)
    ask("unknown topic", s.name("missing"), 0)
    ask("unknown partition", t.name, 0, partition=4)
    s.ask("offset_for_leader_epoch", 4, replica_id=-1, topics=[], note="none")


# -- DeleteRecords -------------------------------------------------------------------------------------------------


@story("delete-records")
def offsets(s: Story) -> None:
    """DeleteRecords takes -1 for the high watermark. An offset above it, or below -1, gets OFFSET_OUT_OF_RANGE.

    An offset at or below the log start changes nothing.
    """
    t = s.topic()
    s.produce(t, s.batch(5))

    def delete(note: str, offset: int, v: int = 1, name: str = t.name, partition: int = 0) -> None:
        row = {"partition_index": partition, "offset": offset}
        s.ask("delete_records", v, topics=[{"name": name, "partitions": [row]}], timeout=10000, note=note)

    delete("0", 0)
    delete("2", 2)
    delete("2 again", 2)
    delete("1, below the log start", 1)
    delete("6, beyond the high watermark", 6)
    delete("-2", -2)
    s.fetch(t, 1, note="below the log start")
    s.fetch(t, 2, note="in the batch")
    delete("-1, all", -1)
    delete("-1 again, v2", -1, 2)
    s.fetch(t, 5)
    delete("unknown topic", 0, name=s.name("missing"))
    delete("unknown partition", 0, partition=5)
    delete("invalid name", 0, name="a/b")
    for name in ("__consumer_offsets", "__transaction_state"):
        delete(f"of {name}", 0, name=name)
    s.produce(t, s.batch(1), note="it goes on")


@story("delete-records")
def policies(s: Story) -> None:
    """DeleteRecords on a topic with compaction only gets POLICY_VIOLATION."""
    for policy in ("compact", "compact,delete", "delete"):
        t = s.topic(cleanup__policy=policy)
        s.produce(t, s.batch(2))
        row = {"partition_index": 0, "offset": 1}
        s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": [row]}], timeout=10000, note=policy)


@story("delete-records")
def several(s: Story) -> None:
    t = s.topic(2)
    s.produce(t, s.batch(2))
    rows = [{"partition_index": p, "offset": 1} for p in (0, 1, 2)]
    topics = [{"name": t.name, "partitions": rows}, {"name": s.name("missing"), "partitions": rows[:1]}]
    for v in (0, 2):
        s.ask("delete_records", v, topics=topics, timeout=10000)
    s.ask("delete_records", 1, topics=[], timeout=10000, note="none")
    twice = [{"partition_index": 0, "offset": 1}, {"partition_index": 0, "offset": 2}]
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": twice}], timeout=10000, note="twice")
