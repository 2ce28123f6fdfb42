"""Share groups at their coordinator: heartbeats, epochs, assignments, initialization of share partitions, records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.differential.stories import consumer_groups
from tests.differential.stories.alter_configs import DELETE, change, told
from tests.differential.stories.share_clients import (
    ACCEPT,
    GROUP_RESOURCE,
    PROFILE,
    Member,
    await_state,
    configure,
    configured,
    count_of,
    describe,
    describe_offsets,
    filled,
    group_log,
    joined,
    state_topic,
)
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline


def prepared(s: Story, *topics: Topic, partitions: int = 1, **configs: str) -> None:
    """Wait until the share coordinators have loaded, and set configs of the group."""
    configure(s, **({"share__auto__offset__reset": "earliest"} | configs))
    state_topic(s)
    for t in topics:
        await_state(s, s.name("g"), t, partitions)


@story("share-groups", PROFILE)
def birth(s: Story) -> None:
    """The first assignment is empty, as no share partition is initialized. The next one is three seconds later."""
    t = s.topic(2)
    prepared(s, t, partitions=2, share__assignment__interval__ms="3000")
    m = Member(s)
    m.join("joins", t)
    m.beat("at once")
    m.until(lambda answer: answer["member_epoch"] == 3, "it has its partitions")
    m.beat("again")
    describe(s)
    describe_offsets(s, "all")
    group_log(s)
    again = Member(s, "m2")
    again.join("a second one has partitions at once", t)


@story("share-groups", PROFILE)
def bad_requests(s: Story) -> None:
    t = s.topic()
    m = Member(s)
    for note, changes in (
        ("empty group", {"group_id": ""}),
        ("blank group", {"group_id": " "}),
        ("no member id", {"member_id": ""}),
        ("37 characters", {"member_id": "x" * 37}),
        ("36 characters", {"member_id": "x" * 36}),
        ("empty rack", {"rack_id": ""}),
        ("a rack", {"rack_id": "r"}),
        ("subscribes to nothing", {"subscribed_topic_names": None}),
        ("subscribes to no topic", {"subscribed_topic_names": []}),
        ("an unknown topic", {"subscribed_topic_names": [s.name("none")]}),
        ("the same topic twice", {"subscribed_topic_names": [t.name, t.name]}),
        ("an invalid topic name", {"subscribed_topic_names": ["no name"]}),
        ("epoch -2", {"member_epoch": -2}),
        ("epoch 7", {"member_epoch": 7}),
        ("leaves", {"member_epoch": -1}),
    ):
        group = {"group_id": s.name(note.replace(" ", ""))}
        m.join(note, t, **(group | changes))


@story("share-groups", PROFILE)
def epochs(s: Story) -> None:
    t, none = s.topic(), s.name("none")
    m = joined(s, t)
    m.beat("a higher epoch", member_epoch=m.epoch + 1)
    m.beat("a lower epoch", member_epoch=1)
    before = m.epoch
    m.beat("another subscription", subscribed_topic_names=[t.name, none])
    m.beat("the epoch before", member_epoch=before)
    m.beat("the one before that", member_epoch=before - 1)
    m.join("epoch 0", subscribed_topic_names=[t.name, none])
    m.beat("the same subscription", subscribed_topic_names=[none, t.name])
    m.beat("another rack", rack_id="r")
    m.beat("an empty subscription", subscribed_topic_names=[])
    m.beat("another member", member_id="other")
    Member(s, "other").leave("another member leaves")
    m.leave()
    m.beat("after it left")
    m.leave("leaves again")
    describe(s, "empty")
    m.join("joins the empty group", t)
    group_log(s)


@story("share-groups", PROFILE)
def subscriptions(s: Story) -> None:
    t, u = s.topic(2), s.topic()
    m = joined(s, t, u, partitions=1)
    m.until(lambda answer: answer["assignment"] is None, "nothing is new")
    m.beat("one topic less", subscribed_topic_names=[t.name])
    m.beat("as it was", subscribed_topic_names=[u.name, t.name])
    m.beat("a topic that does not exist yet", subscribed_topic_names=[t.name, s.name("t3")])
    described = describe(s, "subscribed to what does not exist")
    s.put("epoch of the group", described["groups"][0]["group_epoch"])
    later = s.topic()
    await_state(s, m.group, later, 1)
    m.until(lambda answer: count_of(answer) == 3, "it has the new topic")
    m.beat("nothing", subscribed_topic_names=[])
    describe(s, "subscribed to nothing")
    m.beat("an internal topic", subscribed_topic_names=["__consumer_offsets"])
    describe_offsets(s, "all that was initialized", (t.name, [0, 1]), (u.name, [0]), (later.name, [0]))


@story("share-groups", PROFILE)
def partitions_are_added(s: Story) -> None:
    """Added partitions start at offset 0, whatever share.auto.offset.reset says."""
    t = filled(s, 3)
    m = joined(s, t, share__auto__offset__reset="latest")
    s.quiet(
        "create_partitions", 3, topics=[{"name": t.name, "count": 3, "assignments": None}], timeout=10_000
    )
    s.wait_for(t.name, 3)
    await_state(s, m.group, t, 3)
    filled(s, 2, topic=t, partition=2)
    m.until(lambda answer: count_of(answer) == 3, "it has the new partitions")
    describe_offsets(s, "all")
    m.fetch("the added partition from 0 on", (t, 2))
    m.nothing("the first one from its end on", (t, 0))
    group_log(s)


@story("share-groups", PROFILE)
def topic_deleted(s: Story) -> None:
    t, u = s.topic(), s.topic()
    m = joined(s, t, u)
    s.quiet("delete_topics", 6, topics=[{"name": u.name}], timeout=10_000)
    m.until(lambda answer: answer["assignment"] is not None, "a topic is gone")
    describe(s)
    describe_offsets(s, "all")
    s.quiet("delete_topics", 6, topics=[{"name": t.name}], timeout=10_000)
    m.until(lambda answer: answer["assignment"] is not None, "both topics are gone")
    describe(s)
    describe_offsets(s, "all")
    group_log(s)


def counts(s: Story, note: str, members: list[Member]) -> None:
    """How many partitions each member has, and how many members each partition: who has which depends on hashes."""
    rows = s.quiet("share_group_describe", 1, group_ids=[members[0].group])["groups"][0]["members"]
    of_members, of_partitions = [], Counter[tuple[str, int]]()
    for row in rows:
        found = [
            (topic["topic_name"].replace(s.prefix, "~"), partition)
            for topic in row["assignment"]["topic_partitions"]
            for partition in topic["partitions"]
        ]
        of_members.append(len(found))
        of_partitions.update(found)
    by_name = {f"{name}-{partition}": count for (name, partition), count in sorted(of_partitions.items())}
    s.put(note, {"members": sorted(of_members), "partitions": by_name})


def settled(s: Story, members: list[Member], **changes: Any) -> None:
    """Send heartbeats of all members until none has a new assignment."""
    deadline = Deadline()
    while True:
        answers = []
        for m in members:
            answer = s.quiet("share_group_heartbeat", 1, **m.body())
            m.epoch = answer["member_epoch"]
            answers.append(answer)
        if all(each["assignment"] is None for each in answers) and len({m.epoch for m in members}) == 1:
            return
        deadline.check("assignments are settled")


def join_quietly(s: Story, member_id: str, *topics: Topic) -> Member:
    m = Member(s, member_id)
    names = [t.name for t in topics]
    m.epoch = s.quiet("share_group_heartbeat", 1, **m.body(subscribed_topic_names=names))["member_epoch"]
    return m


@story("share-groups", PROFILE)
def more_members_than_partitions(s: Story) -> None:
    t = s.topic(2)
    members = [joined(s, t, member_id="m0", partitions=2)]
    for number in range(1, 5):
        members.append(join_quietly(s, f"m{number}", t))
        settled(s, members)
        counts(s, f"{len(members)} members, 2 partitions", members)
    for gone in (4, 3, 2, 1):
        members.pop().leave()
        settled(s, members)
        counts(s, f"{gone} members, 2 partitions", members)


@story("share-groups", PROFILE)
def fewer_members_than_partitions(s: Story) -> None:
    t, u = s.topic(4), s.topic(3)
    members = [joined(s, t, u, member_id="m0", partitions=3)]
    settled(s, members)
    for number in range(1, 4):
        members.append(join_quietly(s, f"m{number}", t, u))
        settled(s, members)
        counts(s, f"{len(members)} members, 7 partitions", members)


@story("share-groups", PROFILE)
def members_with_other_subscriptions(s: Story) -> None:
    t, u = s.topic(2), s.topic(2)
    members = [joined(s, t, u, member_id="m0", partitions=2)]
    for number, topics in enumerate(((t,), (u,), (t, u), (u,)), 1):
        members.append(join_quietly(s, f"m{number}", *topics))
        settled(s, members)
        counts(s, f"{len(members)} members", members)


@story("share-groups", PROFILE)
def other_kinds_of_groups(s: Story) -> None:
    """A share group is no group of another kind, also without members. No other group becomes a share group."""
    t = s.topic()
    consumer = consumer_groups.Member(s, "m", "consumers", names=[t.name])
    consumer.join()
    m = Member(s, group="consumers")
    m.join("a consumer group", t)
    consumer.leave()
    m.join("an empty consumer group", t)
    m.beat("a heartbeat in it", member_epoch=1)
    m.leave("leaves it")
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    simple: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
    commit = {"topics": [{"name": t.name, "partitions": [row]}]} | simple
    s.ask("offset_commit", 8, group_id=s.name("simple"), **commit)
    Member(s, group="simple").join("a group with offsets only", t)
    shared = joined(s, t)
    others(s, "with a member", t, shared.group, commit)
    shared.leave()
    others(s, "empty", t, shared.group, commit)
    describe(s, "it is as it was")


def others(s: Story, note: str, t: Topic, group: str, commit: Body) -> None:
    consumer_groups.Member(s, "c", "g", names=[t.name]).join(f"consumer, {note}")
    protocols = [{"name": "range", "metadata": b""}]
    body: Body = {"group_id": group, "member_id": "", "session_timeout": 10_000, "rebalance_timeout": 10_000}
    s.ask("join_group", 5, note=note, protocol_type="consumer", protocols=protocols, **body)
    s.ask("join_group", 5, note=f"as share, {note}", protocol_type="share", protocols=protocols, **body)
    who: Body = {"group_id": group, "member_id": "m", "generation_id": 1}
    s.ask("sync_group", 3, note=note, assignments=[], **who)
    s.ask("heartbeat", 3, note=note, **who)
    s.ask("leave_group", 3, note=note, group_id=group, members=[{"member_id": "m"}])
    s.ask("offset_commit", 8, note=note, group_id=group, **commit)
    rows = [{"name": t.name, "partition_indexes": [0]}]
    s.ask("offset_fetch", 7, note=note, group_id=group, topics=rows, require_stable=False)
    rows = [{"name": t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, note=note, group_id=group, topics=rows)
    for v in (4, 6):
        s.ask("describe_groups", v, note=note, groups=[group])
    s.ask("consumer_group_describe", 1, note=note, group_ids=[group])


@story("share-groups", PROFILE)
def expiry(s: Story) -> None:
    """A member whose session has timed out may fetch and acknowledge all the same."""
    t = filled(s, 4)
    limits: Body = {"share__session__timeout__ms": "1000", "share__heartbeat__interval__ms": "100"}
    m = joined(s, t, **limits)
    m.fetch("acquires", t)
    deadline = Deadline()
    while s.quiet("share_group_describe", 1, group_ids=[m.group])["groups"][0]["group_state"] != "Empty":
        deadline.check("the session times out")
    describe(s, "it has timed out")
    m.beat("the member")
    m.acknowledge("all the same", {t: [(0, 1, ACCEPT)]})
    m.nothing("and fetches", t)
    m.join("joins again", t)
    group_log(s)


@story("share-groups", "small-share-groups")
def at_most_three_members(s: Story) -> None:
    names = {"subscribed_topic_names": [s.name("none")]}
    for number in range(4):
        Member(s, f"m{number}").join(f"member {number + 1}", **names)
    Member(s, "m0").join("the first again", **names)
    Member(s, "m3").beat("the one that was refused", member_epoch=2)
    Member(s, "m1").leave()
    Member(s, "m3").join("the one that was refused again", **names)


VALID = {
    "share__session__timeout__ms": "50000",
    "share__heartbeat__interval__ms": "6000",
    "share__record__lock__duration__ms": "20000",
    "share__delivery__count__limit": "3",
    "share__partition__max__record__locks": "200",
    "share__assignment__interval__ms": "2000",
    "share__auto__offset__reset": "by_duration:PT1H",
    "share__isolation__level": "read_committed",
    "share__renew__acknowledge__enable": "false",
    "errors__deadletterqueue__topic__name": "bad name!",
    "errors__deadletterqueue__copy__record__enable": "true",
}
INVALID = (
    ("share__session__timeout__ms", "499 60001 0 x"),
    ("share__heartbeat__interval__ms", "99 15001 0"),
    ("share__record__lock__duration__ms", "999 60001 1000.5"),
    ("share__delivery__count__limit", "1 11"),
    ("share__partition__max__record__locks", "99 4001"),
    ("share__assignment__interval__ms", "-1 15001"),
    (
        "share__auto__offset__reset",
        "none Latest by_duration by_duration:1h by_duration:-PT1H by_duration:PT0S",
    ),
    ("share__isolation__level", "none READ_COMMITTED"),
    ("share__renew__acknowledge__enable", "maybe"),
    ("errors__deadletterqueue__topic__name", "__dead"),
    ("errors__deadletterqueue__copy__record__enable", "1"),
    ("share__nothing", "1"),
)


@story("share-groups", PROFILE)
def configs(s: Story) -> None:
    keys = [name.replace("__", ".") for name in VALID]
    told(s, "nothing set", GROUP_RESOURCE, s.name("g"), *keys)
    for name, value in VALID.items():
        configured(s, f"{name.replace('__', '.')} {value}", **{name: value})
    configure(s, **VALID)
    told(s, "all set", GROUP_RESOURCE, s.name("g"), *keys)
    for name, values in INVALID:
        for value in values.split():
            configured(s, f"{name.replace('__', '.')} {value}", **{name: value})
    configured(
        s,
        "heartbeats as long as the session",
        "g2",
        share__session__timeout__ms="15000",
        share__heartbeat__interval__ms="15000",
    )
    change(s, "no group", GROUP_RESOURCE, "", ("share.delivery.count.limit", 0, "3"))
    change(s, "deleted", GROUP_RESOURCE, s.name("g"), *((key, DELETE, None) for key in keys))
