"""Requests of operators about share groups: described, listed, offsets described, altered and deleted, groups deleted."""

from __future__ import annotations

from tests.differential.stories import consumer_groups
from tests.differential.stories.share_clients import (
    ACCEPT,
    PROFILE,
    Member,
    alter_offsets,
    delete_groups,
    delete_offsets,
    describe,
    describe_offsets,
    filled,
    group_log,
    joined,
    state_log,
)
from tests.differential.story import Story, story


@story("share-admin", PROFILE)
def described(s: Story) -> None:
    t = s.topic(2)
    m = joined(s, t, partitions=2)
    consumer_groups.Member(s, "c", "consumers", names=[t.name]).join()
    Member(s, "idle").join("subscribes to what is not there", subscribed_topic_names=[s.name("none")])
    m.until(lambda answer: answer["assignment"] is None, "nothing is new")
    describe(s, "two members")
    describe(s, "with operations", include_authorized_operations=True)
    for note, group in (("unknown", "none"), ("a consumer group", "consumers")):
        describe(s, note, group)
    describe(s, "no name", group_ids=[""])
    describe(s, "none", group_ids=[])
    describe(s, "several", group_ids=[s.name("g"), "", s.name("none"), s.name("g")])
    m.leave()
    Member(s, "idle").leave()
    describe(s, "empty")


@story("share-admin", PROFILE)
def listed(s: Story) -> None:
    t = s.topic()
    m = joined(s, t)
    for v in range(6):
        s.ask("list_groups", v, note=f"v{v}")
    for types in (["share"], ["SHARE"], ["consumer"], ["classic", "share"], ["none"], ["streams"]):
        s.ask("list_groups", 5, note=f"types {types}", types_filter=types)
    for states in (["Stable"], ["stable"], ["Empty"], ["Assigning"], ["none"]):
        s.ask("list_groups", 5, note=f"states {states}", states_filter=states)
    m.leave()
    s.ask("list_groups", 5, note="without members")
    s.ask("list_groups", 5, note="empty ones", states_filter=["Empty"], types_filter=["Share"])


@story("share-admin", PROFILE)
def offsets_described(s: Story) -> None:
    t, u = filled(s, 5, topic=s.topic(2)), s.topic()
    m = joined(s, t, partitions=2)
    for v in (0, 1):
        describe_offsets(s, "never acknowledged", v=v)
    m.fetch("all", t)
    m.acknowledge("accepts some", {t: [(0, 1, ACCEPT), (3, 3, ACCEPT)]})
    for v in (0, 1):
        describe_offsets(s, "acknowledged", v=v)
    describe_offsets(s, "named", (t.name, [1, 0]))
    describe_offsets(s, "no partitions", (t.name, []))
    describe_offsets(s, "partition -1", (t.name, [0, -1]))
    describe_offsets(s, "not subscribed", (u.name, [0]))
    describe_offsets(s, "unknown topic", (s.name("none"), [0]))
    s.ask(
        "describe_share_group_offsets", 1, note="no topics", groups=[{"group_id": s.name("g"), "topics": []}]
    )
    s.ask("describe_share_group_offsets", 1, note="no groups", groups=[])
    consumer_groups.Member(s, "c", "consumers", names=[t.name]).join()
    for group in ("none", "consumers"):
        describe_offsets(s, f"all of {group}", group=group)
        describe_offsets(s, f"of {group}", (t.name, [0]), group=group)
    row = {"group_id": "", "topics": [{"topic_name": t.name, "partitions": [0]}]}
    s.ask("describe_share_group_offsets", 1, note="no name", groups=[row])
    s.ask("describe_share_group_offsets", 1, note="no name, all", groups=[{"group_id": "", "topics": None}])
    both = [{"group_id": s.name(name), "topics": None} for name in ("g", "none")]
    s.ask("describe_share_group_offsets", 1, note="two groups", groups=both)
    filled(s, 3, topic=t)
    describe_offsets(s, "more records", (t.name, [0]))


@story("share-admin", PROFILE)
def offsets_altered_and_deleted(s: Story) -> None:
    t = filled(s, 20, topic=s.topic(2))
    m = joined(s, t, partitions=2)
    alter_offsets(s, "with a member", (t.name, 0, 5))
    delete_offsets(s, "with a member", t.name)
    delete_groups(s, "with a member", "g")
    m.leave()
    alter_offsets(s, "to 5", (t.name, 0, 5))
    describe_offsets(s, "5")
    m.fetch("from 5 on", t)
    m.end_session()
    alter_offsets(s, "to -5", (t.name, 0, -5))
    describe_offsets(s, "-5")
    rows = ((t.name, 0, 1000), (t.name, 9, 1), (s.name("nope"), 0, 1), (t.name, 1, 0))
    alter_offsets(s, "several", *rows)
    describe_offsets(s, "past the end")
    alter_offsets(s, "none")
    alter_offsets(s, "the same twice", (t.name, 0, 3), (t.name, 0, 4))
    describe_offsets(s, "twice")
    delete_offsets(s, "twice the same and an unknown one", t.name, s.name("nope"), t.name)
    delete_offsets(s, "again", t.name)
    delete_offsets(s, "none")
    describe_offsets(s, "nothing is left")
    describe(s, "the group is there")
    group_log(s)
    state_log(s, "of partition 0", "g", t)


@story("share-admin", PROFILE)
def offsets_of_other_groups(s: Story) -> None:
    t = filled(s, 3)
    consumer_groups.Member(s, "c", "consumers", names=[t.name]).join()
    joined(s, t, group="warm")
    alter_offsets(s, "a consumer group", (t.name, 0, 1), group="consumers")
    delete_offsets(s, "a consumer group", t.name, group="consumers")
    delete_offsets(s, "an unknown group", t.name, group="none")
    alter_offsets(s, "an unknown group, an unknown topic", (s.name("nope"), 0, 1), group="none")
    describe(s, "not created", "none")
    alter_offsets(s, "an unknown group", (t.name, 0, 1), group="new")
    describe(s, "created", "new")
    describe_offsets(s, "created", group="new")
    group_log(s, "of the new group", "new")
    m = Member(s, group="new")
    m.join("joins the new group", t)
    m.fetch("from 1 on", t)
    topics = [{"topic_name": t.name, "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    s.ask("alter_share_group_offsets", 0, note="no name", group_id="", topics=topics)
    s.ask("delete_share_group_offsets", 0, note="no name", group_id="", topics=[{"topic_name": t.name}])


@story("share-admin", PROFILE)
def groups_deleted(s: Story) -> None:
    t, u = filled(s, 3), filled(s, 3)
    m = joined(s, t, u)
    m.fetch("some", t)
    delete_groups(s, "with a member", "g")
    m.leave()
    delete_groups(s, "one of two", "g", "none")
    describe(s, "gone")
    describe_offsets(s, "gone")
    s.ask("list_groups", 5)
    group_log(s)
    state_log(s, "of the first topic", "g", t)
    m.disconnect()
    again = joined(s, t, u, member_id="again")
    again.fetch("a new group with the name", t)
    again.leave()
    empty = Member(s, "e", "empty")
    empty.join("joins", t)
    empty.leave()
    delete_groups(s, "after a short life", "empty")
