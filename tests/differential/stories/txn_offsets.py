"""TxnOffsetCommit, and its effect on OffsetFetch."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.stories import consumer_groups, groups
from tests.differential.stories.transactional import FAR, Producer
from tests.differential.story import Body, Story, Topic, story


def commit(s: Story, p: Producer, t: Topic, note: str, v: int = 3, **more: Any) -> None:
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    row |= {k: more.pop(k) for k in list(more) if k in row}
    body = p.who() | {"group_id": s.name("g"), "topics": [{"name": t.name, "partitions": [row]}]} | more
    s.ask("txn_offset_commit", v, retry=(51,), note=note, **body)


def committed(s: Story, t: Topic, note: str, stable: bool = False, v: int = 7) -> None:
    topics = [{"name": t.name, "partition_indexes": [0]}]
    s.ask("offset_fetch", v, group_id=s.name("g"), topics=topics, require_stable=stable, note=note)


@story("txn-offsets")
def verification(s: Story) -> None:
    """TxnOffsetCommit v5 adds the group's partition itself. Older versions need AddOffsetsToTxn.

    Without AddOffsetsToTxn they get INVALID_TXN_STATE up to v3, and TRANSACTION_ABORTABLE in v4.
    """
    t, p = s.topic(), Producer(s, "tx")
    for v in (0, 2, 3, 4):
        commit(s, p, t, "not added", v)
    commit(s, p, t, "adds itself", 5)
    commit(s, p, t, "now it is there", 3)
    p.end(True)
    committed(s, t, "visible")


@story("txn-offsets")
def identity(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    s.ask("add_offsets_to_txn", 3, group_id=s.name("g"), **p.who())
    for v in (0, 2, 3, 4, 5):
        commit(s, p, t, "higher epoch", v, producer_epoch=p.epoch + 1)
        commit(s, p, t, "lower epoch", v, producer_epoch=p.epoch - 1)
        commit(s, p, t, "another producer id", v, producer_id=p.pid + FAR)
        commit(s, p, t, "unknown id", v, transactional_id=s.name("unknown"))
        commit(s, p, t, "empty id", v, transactional_id="")
        commit(s, p, t, "empty group", v, group_id="")
    p.end(False, False)


@story("txn-offsets")
def partitions(s: Story) -> None:
    """Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION, long metadata OFFSET_METADATA_TOO_LARGE.

    The other partitions of the request succeed.
    """
    t, p = s.topic(), Producer(s, "tx")
    good = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    rows = [
        {"name": t.name, "partitions": [good, good | {"partition_index": 8}]},
        {"name": s.name("missing"), "partitions": [good]},
    ]
    for v in (3, 5):
        s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=s.name("g"), **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=rows, **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=rows[1:], note="only unknown", **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=[], note="none", **p.who())
        commit(s, p, t, "4096 of metadata", v, committed_metadata="x" * 4096)
        commit(s, p, t, "4097 of metadata", v, committed_metadata="x" * 4097)
        commit(s, p, t, "negative offset", v, committed_offset=-5)
        commit(s, p, t, "null metadata", v, committed_metadata=None)


@story("txn-offsets")
def group_checks(s: Story) -> None:
    """TxnOffsetCommit with generation, member id or instance id, for an unknown group and for a simple group."""
    t, p = s.topic(), Producer(s, "tx")
    s.ask("add_offsets_to_txn", 3, group_id=s.name("g"), **p.who())
    commit(s, p, t, "unknown group, generation 0", generation_id=0, member_id="m")
    commit(s, p, t, "unknown group, generation 5, no member", generation_id=5)
    commit(s, p, t, "unknown group, member", member_id="m")
    commit(s, p, t, "simple group, member", member_id="m")
    commit(s, p, t, "simple group, generation 0", generation_id=0, member_id="m")
    commit(s, p, t, "simple group, instance", group_instance_id="i", member_id="m")
    p.end(True, False)
    committed(s, t, "visible")


@story("txn-offsets")
def topic_ids(s: Story) -> None:
    """TxnOffsetCommit v6 has topic ids and further errors (KIP-1319)."""
    t, p = s.topic(2), Producer(s, "tx")
    good = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    rows: list[Body] = [
        {"topic_id": t.id, "partitions": [good | {"partition_index": 9}, good]},
        {"topic_id": uuid.UUID(int=77), "partitions": [good]},
        {"topic_id": None, "partitions": [good, good]},
    ]
    own = rows[:1]

    def commit_by_id(note: str, topics: list[Body], **changes: Any) -> None:
        body = p.who() | {"group_id": s.name("g"), "topics": topics} | changes
        answer = s.ask("txn_offset_commit", 6, retry=(51,), note=note, **body)
        order = [each["topic_id"] and s.normal.symbol("topic", each["topic_id"]) for each in answer["topics"]]
        indexes = [[one["partition_index"] for one in each["partitions"]] for each in answer["topics"]]
        s.put(f"order ({note})", [order, indexes])

    commit_by_id("one of four", rows)
    commit_by_id("none of two", rows[1:])
    commit_by_id("none", [])
    commit_by_id("twice", [own[0] | {"partitions": [good]}] * 2)
    commit_by_id(
        "metadata too long", [{"topic_id": t.id, "partitions": [good | {"committed_metadata": "x" * 4097}]}]
    )
    commit_by_id("empty group", own, group_id="")
    commit_by_id("another producer id", own, producer_id=p.pid + FAR)
    commit_by_id("another producer id, unknown topic", rows[1:2], producer_id=p.pid + FAR)
    commit_by_id(
        "another producer id, unknown group",
        own,
        producer_id=p.pid + FAR,
        group_id=s.name("h"),
        generation_id=3,
    )
    commit_by_id("higher epoch", own, producer_epoch=p.epoch + 1)
    commit_by_id("unknown group, generation 0", own, group_id=s.name("h"), generation_id=0, member_id="m")
    commit_by_id("unknown group, generation 5, no member", own, group_id=s.name("h"), generation_id=5)
    commit_by_id("unknown group, member", own, group_id=s.name("h"), member_id="m")
    commit_by_id("unknown group, instance", own, group_id=s.name("i"), member_id="m", group_instance_id="i")
    commit_by_id("simple group, generation 0", own, generation_id=0, member_id="m")
    p.end(True)
    committed(s, t, "visible")


@story("txn-offsets")
def unknown_groups_before_topic_ids(s: Story) -> None:
    """TxnOffsetCommit v5 returns ILLEGAL_GENERATION for an unknown group."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (4, 5):
        s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=s.name("g"), **p.who())
        commit(s, p, t, "unknown group, generation 0", v, generation_id=0, member_id="m")
        commit(s, p, t, "unknown group, another producer id", v, generation_id=0, producer_id=p.pid + FAR)


@story("txn-offsets", profile="consumer-groups")
def of_members(s: Story) -> None:
    """TxnOffsetCommit with the member epochs of a consumer group, and with the generations of a classic group."""
    t, p = s.topic(), Producer(s, "tx")
    m = consumer_groups.Member(s, "m", names=[t.name])
    m.join()
    m.join("joins again")
    old = groups.Member(s, "old", "c")
    old.lead()
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    for v in (4, 5, 6):
        topics = [t.by(v, 6) | {"partitions": [row]}]
        for group, member_id, epoch in (
            (m.group, m.id, m.epoch),
            (m.group, m.id, m.epoch - 1),
            (m.group, m.id, m.epoch + 1),
            (m.group, m.id, -1),
            (m.group, "other", m.epoch),
            (m.group, "", m.epoch),
            (m.group, "", -1),
            (old.group, old.id, old.generation),
            (old.group, old.id, old.generation - 1),
            (old.group, old.id, old.generation + 1),
            (old.group, "other", old.generation),
            (old.group, "", -1),
        ):
            if v < 5:
                s.quiet("add_offsets_to_txn", 3, group_id=group, **p.who())
            kind, who = ("consumer", m.epoch) if group == m.group else ("classic", old.generation)
            since = f"{epoch - who:+d}" if epoch >= 0 else "none"
            name = "none" if not member_id else "other" if member_id == "other" else "itself"
            body = p.who() | {
                "group_id": group,
                "member_id": member_id,
                "generation_id": epoch,
                "topics": topics,
            }
            s.ask("txn_offset_commit", v, retry=(51,), note=f"{kind}, member {name}, epoch {since}", **body)
    p.end(False)


@story("txn-offsets")
def visibility(s: Story) -> None:
    """Pending offsets are invisible, and an abort drops them.

    With require_stable, OffsetFetch returns UNSTABLE_OFFSET_COMMIT and -1 for them.
    """
    t, p = s.topic(), Producer(s, "tx")
    plain = [
        {
            "name": t.name,
            "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "p"}],
        }
    ]
    s.ask("offset_commit", 8, group_id=s.name("g"), member_id="", topics=plain)
    commit(s, p, t, "7", 5)
    for v in (1, 6, 7, 8, 9):
        _committed_in(s, t, "pending", v, False)
    for v in (7, 8, 9):
        _committed_in(s, t, "pending, stable", v, True)
    s.ask(
        "offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=True, note="pending, all, stable"
    )
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=False, note="pending, all")
    p.end(False)
    committed(s, t, "aborted", True)
    commit(s, p, t, "7 again", 5)
    p.end(True)
    s.ask(
        "offset_fetch",
        7,
        retry=(88,),
        group_id=s.name("g"),
        topics=None,
        require_stable=True,
        note="committed",
    )


def _committed_in(s: Story, t: Topic, note: str, v: int, stable: bool) -> None:
    topics = [{"name": t.name, "partition_indexes": [0]}]
    groups = [{"group_id": s.name("g"), "topics": topics}]
    body: Body = {"group_id": s.name("g"), "topics": topics} if v < 8 else {"groups": groups}
    s.ask("offset_fetch", v, require_stable=stable, note=note, **body)


@story("txn-offsets")
def only_pending(s: Story) -> None:
    """OffsetFetch of all topics with require_stable does not list a group's pending offsets."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=True, note="all, stable")
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=False, note="all")
    committed(s, t, "named, stable", True)
    committed(s, t, "named")
    s.ask("list_groups", 4)
    s.ask("describe_groups", 5, groups=[s.name("g")])
    p.end(True)


@story("txn-offsets")
def later_plain_commit_wins(s: Story) -> None:
    """A commit marker does not make a pending offset visible if a plain commit has a later record in the log."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    plain = [
        {
            "name": t.name,
            "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}],
        }
    ]
    s.ask("offset_commit", 8, group_id=s.name("g"), member_id="", topics=plain)
    committed(s, t, "still pending", True)
    p.end(True)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True)


@story("txn-offsets")
def deletion_drops_pending(s: Story) -> None:
    """DeleteGroups and OffsetDelete drop a pending offset; the commit does not restore it."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    parts = [{"name": t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, group_id=s.name("g"), topics=parts)
    committed(s, t, "after OffsetDelete", True)
    commit(s, p, t, "7 again", 5)
    s.ask("delete_groups", 2, groups_names=[s.name("g")])
    committed(s, t, "after DeleteGroups", True)
    p.end(True)
    s.ask(
        "offset_fetch",
        7,
        retry=(88,),
        group_id=s.name("g"),
        topics=None,
        require_stable=True,
        note="after the commit",
    )


@story("txn-offsets")
def two_transactions(s: Story) -> None:
    """Of two pending offsets the later record wins, whichever transaction commits last."""
    t, p, q = s.topic(), Producer(s, "p"), Producer(s, "q")
    commit(s, p, t, "7 by p", 5)
    commit(s, q, t, "9 by q", 5, committed_offset=9)
    q.end(True)
    committed(s, t, "q committed, p pending", True)
    committed(s, t, "q committed, p pending")
    p.end(True)
    s.ask(
        "offset_fetch",
        7,
        retry=(88,),
        group_id=s.name("g"),
        topics=None,
        require_stable=True,
        note="both committed",
    )


@story("txn-offsets")
def whole_transaction(s: Story) -> None:
    """A TV1 transaction commits records and offsets together."""
    t, p = s.topic(), Producer(s, "tx")
    p.add(t)
    p.send(t, 0, False)
    s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=s.name("g"), **p.who())
    commit(s, p, t, "7", 3, generation_id=-1)
    p.end(True, False)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True)
    s.fetch(t, isolation_level=1)


@story("txn-offsets")
def only_metadata_that_is_too_long(s: Story) -> None:
    """TxnOffsetCommit with only metadata that is too long writes nothing.

    Kafka creates the group in memory: DeleteGroups finds it, DescribeGroups does not.
    """
    t, p = s.topic(), Producer(s, "tx")
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "x" * 4097}
    topics = [{"name": t.name, "partitions": [row]}]
    for v in (3, 5):
        group = s.name(f"g{v}")
        s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=group, **p.who())
        s.ask("txn_offset_commit", v, retry=(51,), group_id=group, topics=topics, note="too long", **p.who())
        s.ask("describe_groups", 5, groups=[group], include_authorized_operations=False, note="the group")
        s.ask("delete_groups", 2, groups_names=[group], note="the group")
