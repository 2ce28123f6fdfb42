"""The share coordinator: its five APIs as other brokers send them, and its records in __share_group_state."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.differential.stories.share_clients import (
    ACCEPT,
    PROFILE,
    REJECT,
    RELEASE,
    await_state,
    describe_offsets,
    filled,
    joined,
    key_of,
    state_log,
    state_topic,
)
from tests.differential.story import Body, Story, Topic, story
from tests.support import raw
from tests.support.deadlines import Deadline

UNKNOWN = Topic("no-such-topic-anywhere", uuid.UUID("11111111-2222-3333-4444-555555555555"))
NAMES = {"initialize": (0,), "read": (0,), "write": (0, 1), "delete": (0,), "summary": (0, 1)}
APIS = {
    "initialize": "initialize_share_group_state",
    "read": "read_share_group_state",
    "write": "write_share_group_state",
    "delete": "delete_share_group_state",
    "summary": "read_share_group_state_summary",
}
FIELDS: dict[str, Body] = {
    "initialize": {"state_epoch": 1, "start_offset": -1},
    "read": {"leader_epoch": 0},
    "write": {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": ()},
    "delete": {},
    "summary": {"leader_epoch": 0},
}


def ask(s: Story, what: str, note: str, t: Topic, partition: int = 0, v: int = 0, **changes: Any) -> Body:
    group = changes.pop("group", s.name("g"))
    row = FIELDS[what] | {"partition": partition} | changes
    return s.ask(APIS[what], v, note=note, group_id=group, topics=[{"topic_id": t.id, "partitions": [row]}])


def rows(*found: tuple[int, int, int, int]) -> list[Body]:
    """State batches: first offset, last offset, delivery state, delivery count."""
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return [dict(zip(names, each, strict=True)) for each in found]


def prepared(s: Story, partitions: int = 1) -> Topic:
    t = s.topic(partitions)
    state_topic(s)
    await_state(s, s.name("g"), t, partitions)
    return t


@story("share-state", PROFILE)
def life_of_a_state(s: Story) -> None:
    t = prepared(s)
    ask(s, "read", "not there", t)
    ask(s, "write", "not there", t)
    for v in (0, 1):
        ask(s, "summary", "not there", t, v=v)
    ask(s, "delete", "not there", t)
    ask(s, "initialize", "first", t)
    ask(s, "read", "nothing written", t)
    ask(s, "summary", "nothing written", t, v=1)
    ask(s, "write", "v0", t, state_batches=rows((0, 4, 2, 1)))
    ask(s, "write", "v1", t, v=1, start_offset=2, delivery_complete_count=3, state_batches=rows((5, 5, 0, 2)))
    ask(s, "read", "written", t)
    for v in (0, 1):
        ask(s, "summary", "written", t, v=v)
    ask(s, "initialize", "again", t, state_epoch=2, start_offset=7)
    ask(s, "read", "initialized again", t)
    ask(s, "delete", "there", t)
    ask(s, "read", "deleted", t)
    state_log(s, "", "g", t)


@story("share-state", PROFILE)
def epochs(s: Story) -> None:
    t = prepared(s)
    ask(s, "initialize", "epoch 5", t, state_epoch=5)
    ask(s, "initialize", "a lower epoch", t, state_epoch=4)
    ask(s, "initialize", "the same epoch", t, state_epoch=5, start_offset=3)
    ask(s, "write", "a lower state epoch", t, state_epoch=4)
    ask(s, "write", "higher epochs are not stored", t, state_epoch=9, leader_epoch=9)
    ask(s, "write", "the stored ones", t, state_epoch=5, leader_epoch=3)
    ask(s, "summary", "its epochs", t, v=1)
    ask(s, "read", "raises the leader epoch", t, leader_epoch=4)
    ask(s, "read", "a lower one", t, leader_epoch=3)
    ask(s, "write", "a lower one", t, state_epoch=5, leader_epoch=3)
    ask(s, "write", "lower leader and state epoch", t, state_epoch=1, leader_epoch=3)
    ask(s, "summary", "a lower one does not matter", t, v=1, leader_epoch=1)
    ask(s, "read", "the same one", t, leader_epoch=4)
    state_log(s, "", "g", t)


@story("share-state", PROFILE)
def bad_requests(s: Story) -> None:
    t = prepared(s)
    for what, versions in NAMES.items():
        for v in versions:
            ask(s, what, "partition -1", t, -1, v=v)
            ask(s, what, "no partition 7", t, 7, v=v)
            ask(s, what, "an unknown topic id", UNKNOWN, v=v)
            ask(s, what, "no group", t, v=v, group="")
            s.ask(APIS[what], v, note="no topics", group_id=s.name("g"), topics=[])
            topics = [{"topic_id": t.id, "partitions": []}]
            s.ask(APIS[what], v, note="no partitions", group_id=s.name("g"), topics=topics)
            row = FIELDS[what] | {"partition": 0}
            topics = [{"topic_id": t.id, "partitions": [row, row]}]
            s.ask(APIS[what], v, note="a partition twice", group_id=s.name("twice"), topics=topics)
        for field in ("state_epoch", "leader_epoch"):
            if field in FIELDS[what]:
                ask(s, what, f"{field} -1", t, **{field: -1})
    ask(s, "initialize", "start offset -7", t, start_offset=-7)
    ask(s, "write", "start offset -7", t, start_offset=-7)
    ask(s, "write", "an unknown state", t, state_batches=rows((0, 1, 9, 1)))
    ask(s, "write", "the last before the first", t, state_batches=rows((5, 1, 2, 1)))
    ask(s, "read", "after that", t)


@story("share-state", PROFILE)
def merging(s: Story) -> None:
    """The higher delivery count wins, then the higher state. Equal neighbours are joined."""
    t = prepared(s)
    cases: Sequence[Sequence[tuple[int, int, int, int]]] = (
        [(0, 9, 0, 1)],
        [(3, 5, 2, 1)],
        [(4, 4, 0, 1)],
        [(4, 6, 0, 2)],
        [(10, 14, 0, 1)],
        [(0, 14, 4, 1)],
        [(2, 3, 0, 3), (8, 8, 2, 3)],
        [(20, 25, 2, 1), (17, 18, 2, 1)],
        [(16, 21, 2, 1)],
        [(0, 30, 3, 3)],
    )
    ask(s, "initialize", "from 0", t, start_offset=0)
    for case in cases:
        ask(s, "write", f"{case}", t, v=1, start_offset=0, state_batches=rows(*case))
        ask(s, "read", f"after {case}", t)
    for start, count in ((3, 5), (1, 9), (3, 2), (3, 7), (40, 1)):
        ask(
            s,
            "write",
            f"start {start}, count {count}",
            t,
            v=1,
            start_offset=start,
            delivery_complete_count=count,
        )
        ask(s, "summary", "its start and count", t, v=1)
        ask(s, "read", "its batches", t)
    ask(s, "write", "no start offset", t, v=1, start_offset=-1, state_batches=rows((41, 41, 2, 1)))
    ask(s, "read", "its start offset stays", t)
    state_log(s, "", "g", t)


@story("share-state", PROFILE)
def of_several_partitions(s: Story) -> None:
    t, u = prepared(s, 2), prepared(s)
    for what in ("initialize", "write", "read", "summary", "delete"):
        topics = [
            {"topic_id": t.id, "partitions": [FIELDS[what] | {"partition": p} for p in (1, 0, 7)]},
            {"topic_id": u.id, "partitions": [FIELDS[what] | {"partition": 0}]},
        ]
        s.ask(APIS[what], NAMES[what][-1], group_id=s.name("g"), topics=topics)


@story("share-state", PROFILE)
def log_of_a_reader(s: Story) -> None:
    """After four updates there is a snapshot."""
    t = filled(s, 10)
    m = joined(s, t)
    state_log(s, "initialized", "g", t)
    m.fetch("all", t)
    state_log(s, "fetched", "g", t)
    m.acknowledge("accepts 0-1", {t: [(0, 1, ACCEPT)]})
    m.acknowledge("releases 5, rejects 6", {t: [(5, 5, RELEASE), (6, 6, REJECT)]})
    m.fetch("5 again")
    m.acknowledge("accepts 5", {t: [(5, 5, ACCEPT)]})
    m.acknowledge("accepts 2-3", {t: [(2, 3, ACCEPT)]})
    m.acknowledge("accepts 4", {t: [(4, 4, ACCEPT)]})
    describe_offsets(s, "three are left", (t.name, [0]))
    m.acknowledge("accepts 7-9", {t: [(7, 9, ACCEPT)]})
    describe_offsets(s, "none is left", (t.name, [0]))
    state_log(s, "at the end", "g", t)


@story("share-state", PROFILE)
def topic_deleted(s: Story) -> None:
    t = filled(s, 2)
    m = joined(s, t)
    m.fetch("all", t)
    m.acknowledge("accepts", {t: [(0, 0, ACCEPT)]})
    s.quiet("delete_topics", 6, topics=[{"name": t.name}], timeout=10_000)
    m.until(lambda answer: answer["assignment"] is not None, "the topic is gone")
    rows = [{"topic_id": t.id, "partitions": [FIELDS["write"] | {"partition": 0}]}]
    deadline = Deadline()
    while 42 not in raw.error_codes(s.quiet(APIS["write"], 0, retry=(), group_id=m.group, topics=rows)):
        deadline.check("the state is deleted")
    for what in ("read", "write", "summary", "delete", "initialize"):
        ask(s, what, "of a deleted topic", t)
    state_log(s, "", "g", t)


@story("share-state", PROFILE)
def coordinators(s: Story) -> None:
    """FindCoordinator for a share partition, by its key."""
    t = prepared(s)
    good = key_of(s.name("g"), t, 0)
    uuid_text = good.split(":")[1]
    keys = (
        good,
        key_of(s.name("g"), t, 99),
        key_of(s.name("g"), t, -1),
        key_of(s.name("g"), UNKNOWN, 0),
        f"a:b:{uuid_text}:0",
        f":{uuid_text}:0",
        f" :{uuid_text}:0",
        f"g:{uuid_text}",
        f"g:{uuid_text}:x",
        "g:?:0",
        "g",
        "",
    )
    for key in keys:
        answer = s.quiet("find_coordinator", 6, key_type=2, coordinator_keys=[key])
        for row in answer["coordinators"]:
            row["key"] = row["key"].replace(uuid_text, "id")
        label = key.replace(uuid_text, "id").replace(s.prefix, "~")
        s.put(f"find_coordinator v6 ({label})", s.normal.answer("find_coordinator", answer))
    for v in (4, 5):
        answer = s.quiet("find_coordinator", v, key_type=2, coordinator_keys=[good])
        s.put(f"find_coordinator v{v}", [row["error_code"] for row in answer["coordinators"]])
    answer = s.quiet("find_coordinator", 3, key_type=2, key=good)
    s.put("find_coordinator v3", answer["error_code"])
    s.ask("find_coordinator", 6, note="of the group", key_type=0, coordinator_keys=[s.name("g")])
    s.ask("metadata", 12, topics=[{"name": "__share_group_state"}], allow_auto_topic_creation=False)
    keys_shown = (
        "cleanup.policy",
        "retention.ms",
        "segment.bytes",
        "compression.type",
        "min.insync.replicas",
    )
    row = {"resource_type": 2, "resource_name": "__share_group_state", "configuration_keys": list(keys_shown)}
    s.ask("describe_configs", 4, resources=[row])
