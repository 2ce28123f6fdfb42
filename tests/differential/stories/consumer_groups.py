"""Consumer groups (KIP-848): heartbeats, reconciliation, conversions, offsets, and the records in the log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from broker.groups.consumer.topics import topic_hash
from protocol.batch import batches
from protocol.hashing import partition_for
from protocol.records.group_log import (
    ConsumerGroupMetadataValue,
    UnknownKey,
    decode_key,
    decode_value,
)
from tests.differential.stories import groups as classic
from tests.differential.stories.transactional import Producer
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline

PROFILE = "consumer-groups"
Owned = Mapping[Topic, Sequence[int]]


class Member:
    """A consumer group member with its id, its epoch, and its owned partitions."""

    def __init__(self, s: Story, member_id: str, group: str = "g", **more: Any) -> None:
        self.s, self.id, self.group = s, member_id, s.name(group)
        self.epoch = 0
        self.instance: str | None = more.get("instance")
        self.names: list[str] | None = more.get("names")
        self.regex: str | None = more.get("regex")
        self.assignor: str | None = more.get("assignor")
        self.rebalance: int = more.get("rebalance", 60_000)

    def body(self, **changes: Any) -> Body:
        plain: Body = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        return plain | changes

    def all_of_itself(self) -> Body:
        return {
            "rebalance_timeout": self.rebalance,
            "subscribed_topic_names": self.names,
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.assignor,
        }

    def beat(self, note: str = "", v: int = 1, owned: Owned | None = None, **changes: Any) -> Body:
        if owned is not None:
            changes["topic_partitions"] = rows(owned)
        answer = self.s.ask("consumer_group_heartbeat", v, note=note, **self.body(**changes))
        return self._heard(answer)

    def _heard(self, answer: Body) -> Body:
        if answer["error_code"] == 0:
            self.epoch = answer["member_epoch"]
        return answer

    def join(self, note: str = "joins", v: int = 1, **changes: Any) -> Body:
        changes = {"member_epoch": 0, "topic_partitions": []} | self.all_of_itself() | changes
        return self._heard(
            self.s.ask("consumer_group_heartbeat", v, note=note, retry=(14, 15, 16), **self.body(**changes))
        )

    def until(self, wanted: Any, note: str, **changes: Any) -> Body:
        """Send heartbeats until ``wanted`` accepts a response, and record only that response."""
        deadline = Deadline()
        while True:
            answer = self._heard(self.s.quiet("consumer_group_heartbeat", 1, **self.body(**changes)))
            if wanted(answer):
                break
            deadline.check(note)
            time.sleep(0.02)
        self.s.put(f"until {note}", self.s.normal.answer("consumer_group_heartbeat", answer))
        return answer

    def leave(self, note: str = "leaves", epoch: int = -1) -> Body:
        return self.s.ask("consumer_group_heartbeat", 1, note=note, **self.body(member_epoch=epoch))

    def commit(self, t: Topic, note: str, partition: int = 0, v: int = 9, **changes: Any) -> None:
        row = {"partition_index": partition, "committed_offset": 5, "committed_metadata": "m"}
        body: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "topics": [t.by(v, 10) | {"partitions": [row]}],
        }
        self.s.ask("offset_commit", v, note=note, **(body | changes))


def rows(owned: Owned) -> list[Body]:
    return [{"topic_id": topic.id, "partitions": list(parts)} for topic, parts in owned.items()]


def describe(s: Story, note: str = "", group: str = "g", v: int = 1) -> Body:
    body: dict[str, Any] = {"group_ids": [s.name(group)], "include_authorized_operations": False}
    return s.ask("consumer_group_describe", v, note=note, **body)


def log(s: Story, note: str = "", group: str = "g") -> None:
    """Add all log records of the group to the transcript, in log order; adjacent records of a type are sorted."""
    name = s.name(group)
    rows = []
    for record in _records(s, partition_for(name, 50)):
        key = decode_key(bytes(record.key))
        if isinstance(key, UnknownKey) or name != (
            getattr(key, "group_id", None) or getattr(key, "group", None)
        ):
            continue
        value = decode_value(key, None if record.value is None else bytes(record.value))
        plain = _plain(value)
        if isinstance(value, ConsumerGroupMetadataValue) and value.metadata_hash:
            plain["metadata_hash"] = s.normal.symbol("hash", value.metadata_hash)
        rows.append({"type": key.TYPE, "key": _plain(key), "value": _in_order(s, plain)})
    # Members are in the order of a hash map of their ids, some of which are random.
    ordered = [
        row
        for _, run in groupby(rows, key=lambda row: (row["type"], row["value"] is None))
        for row in sorted(run, key=lambda row: s.normal.value(row["key"].get("member_id", ""), "", False))
    ]
    s.put(f"the log {note}".strip(), s.normal.value(ordered, "", False))


def _in_order(s: Story, value: Any) -> Any:
    """Sort topics by their symbols. Kafka has them in the order of a hash map of their ids."""
    if isinstance(value, dict):
        if "version" in value:
            value["version"] = "version"
        return {name: _in_order(s, inner) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict) and "topic_id" in value[0]:
        return sorted(value, key=lambda row: s.normal.symbol("topic", row["topic_id"]))
    return value


def _records(s: Story, partition: int) -> list[Any]:
    found: list[Any] = []
    offset = 0
    while True:
        row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        body: dict[str, Any] = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
        }
        topics = [{"topic": "__consumer_offsets", "partitions": [row]}]
        answer = s.quiet("fetch", 5, **body, topics=topics)
        data = answer["responses"][0]["partitions"][0]["records"] or b""
        before = offset
        for batch in batches(data):
            if not batch.is_control:
                found += batch.records()
            offset = batch.next_offset
        if offset == before:
            return found


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value


def last_hash(s: Story, group: str = "g") -> int:
    """The metadata hash in the group's last record, not normalised."""
    found = 0
    for record in _records(s, partition_for(s.name(group), 50)):
        key = decode_key(bytes(record.key))
        if (
            isinstance(key, UnknownKey)
            or record.value is None
            or getattr(key, "group_id", None) != s.name(group)
        ):
            continue
        value = decode_value(key, bytes(record.value))
        if isinstance(value, ConsumerGroupMetadataValue):
            found = value.metadata_hash
    return found


# -- heartbeats ----------------------------------------------------------------------------------------------------


@story("consumer-groups", PROFILE)
def bad_requests(s: Story) -> None:
    t = s.topic()
    m = Member(s, "m", names=[t.name])
    for v in (0, 1):
        for note, changes in (
            ("empty group", {"group_id": ""}),
            ("blank group", {"group_id": " "}),
            ("empty member id", {"member_id": ""}),
            ("empty instance id", {"instance_id": ""}),
            ("empty rack", {"rack_id": ""}),
            ("no rebalance timeout", {"rebalance_timeout": -1}),
            ("owns something", {"topic_partitions": rows({t: [0]})}),
            ("does not say what it owns", {"topic_partitions": None}),
            ("subscribes to nothing", {"subscribed_topic_names": None}),
            ("epoch -2 without instance", {"member_epoch": -2}),
            ("epoch -3", {"member_epoch": -3}),
            ("epoch 7", {"member_epoch": 7}),
            ("leaves", {"member_epoch": -1}),
            ("leaves without id", {"member_epoch": -1, "member_id": ""}),
            ("leaves for a while", {"member_epoch": -2, "instance_id": "i"}),
            ("unknown assignor", {"server_assignor": "sticky"}),
            ("empty assignor", {"server_assignor": ""}),
        ):
            group = {"group_id": s.name(f"{note}{v}".replace(" ", ""))}
            m.join(note, v, **(group | changes))
    for note, regex in (("bad", "("), ("backreference", r"(a)\1"), ("lookahead", "(?=a)")):
        m.join(f"{note} regular expression", group_id=s.name(note), subscribed_topic_regex=regex)


@story("consumer-groups", PROFILE)
def one_member(s: Story) -> None:
    t = s.topic(2)
    m = Member(s, "m", names=[t.name])
    m.join()
    m.beat("nothing new")
    m.beat("says what it owns", owned={t: [0, 1]})
    m.beat("says all", owned={t: [0, 1]}, **m.all_of_itself())
    m.beat("v0", v=0)
    describe(s, "stable")
    describe(s, "stable", v=0)
    s.ask("list_groups", 5)
    m.beat("a higher epoch", member_epoch=m.epoch + 1)
    m.beat("a lower epoch", member_epoch=m.epoch - 1)
    m.beat("another member", member_id="other")
    m.beat("an instance that is none", instance_id="i")
    m.join("joins again")
    m.leave()
    m.beat("after it left")
    m.leave("leaves again")
    describe(s, "empty")
    log(s)
    m.join("joins the empty group")
    s.put("the hash is ours", last_hash(s) == _hash_of(t, 2))


def _hash_of(topic: Topic, partitions: int) -> int:
    from broker.groups.consumer.topics import metadata_hash

    found = topic_hash(topic.id, topic.name, [[]] * partitions)

    class One:
        def topic_hash(self, name: str) -> int:
            return found

    return metadata_hash(One(), [topic.name])  # type: ignore[arg-type]


@story("consumer-groups", PROFILE)
def member_ids(s: Story) -> None:
    """In v0 the coordinator creates the member id, even if the request has one."""
    t = s.topic()
    m = Member(s, "", names=[t.name])
    answer = m.join("without id", v=0)
    s.put("length of the id", len(answer["member_id"]))
    other = Member(s, "named", names=[t.name])
    other.join("with an id", v=0)


@story("consumer-groups", PROFILE)
def two_members(s: Story) -> None:
    """The second member gets partitions only after the first member has reported that it revoked them."""
    t = s.topic(2)
    a, b = Member(s, "a", names=[t.name]), Member(s, "b", names=[t.name])
    a.join("a joins")
    b.join("b joins")
    describe(s, "b waits")
    s.ask("list_groups", 5, note="assigning or reconciling")
    a.beat("a hears that it shall revoke")
    a.beat("a does not say what it owns")
    a.beat("a still owns both", owned={t: [0, 1]})
    b.beat("b asks before a has revoked", owned={})
    a.beat("a has revoked", owned={t: [0]})
    describe(s, "released")
    b.beat("b gets its partition")
    b.beat("b has it", owned={t: [1]})
    describe(s, "stable")
    a.leave("a leaves")
    b.beat("b gets all")
    b.beat("b has all", owned={t: [0, 1]})
    b.leave("b leaves")
    log(s)


@story("consumer-groups", PROFILE)
def lost_answers(s: Story) -> None:
    """A member that missed a response is one epoch behind, which is accepted if it owns no partition that it must revoke."""
    t = s.topic(4)
    a, b = Member(s, "a", names=[t.name]), Member(s, "b", names=[t.name])
    a.join("a joins")
    behind = a.epoch
    b.join("b joins")
    a.beat("a shall revoke")
    a.beat("a has revoked", owned={t: [0, 1]})
    a.beat("the answer was lost", member_epoch=behind, owned={t: [0, 1]})
    a.beat("one epoch behind, says nothing", member_epoch=behind)
    a.beat("one epoch behind, owns too much", member_epoch=behind, owned={t: [0, 1, 2]})
    a.beat("two epochs behind", member_epoch=behind - 1, owned={t: [0]})
    a.join("a was fenced and joins again")
    describe(s, "a has what it had")


@story("consumer-groups", PROFILE)
def static_members(s: Story) -> None:
    t = s.topic(2)
    a = Member(s, "a1", names=[t.name], instance="i")
    a.join("a joins")
    other = Member(s, "a2", names=[t.name], instance="i")
    other.join("another with its instance id")
    a.leave("a goes for a while", epoch=-2)
    describe(s, "a is away")
    a.beat("a beats though it is away")
    b = Member(s, "b", names=[t.name], instance="j")
    b.join("b joins meanwhile")
    other.join("the next incarnation")
    describe(s, "the next incarnation")
    a.beat("the first incarnation")
    a.leave("the first incarnation leaves")
    other.beat("the next incarnation has what it had", owned={t: [0, 1]})
    other.beat("it gives up one", owned={t: [0]})
    b.beat("b gets it")
    other.leave("it leaves for good")
    log(s)


@story("consumer-groups", PROFILE)
def renamed_static_members(s: Story) -> None:
    """A member that rejoins with another instance id leaves no member behind under its old instance id."""
    t = s.topic(2)
    a = Member(s, "a", names=[t.name], instance="i")
    a.join("a joins")
    a.instance = "j"
    a.join("a joins with another instance id")
    a.beat("its old instance id", instance_id="i")
    a.beat("its new instance id")
    b = Member(s, "b", names=[t.name], instance="i")
    b.join("another member has the old instance id")
    a.beat("a gives up", owned={t: [0]})
    b.beat("b gets", owned={})
    describe(s, "two")
    identity = {"member_id": "", "group_instance_id": "i", "reason": None}
    s.ask("leave_group", 5, note="by the old instance id", group_id=a.group, members=[identity])
    describe(s, "one")
    log(s)


@story("consumer-groups", "small-groups")
def full_groups(s: Story) -> None:
    """A static member that comes back is not counted again. ``group.consumer.max.size`` is 2."""
    t = s.topic(2)
    a, b = Member(s, "a1", names=[t.name], instance="i"), Member(s, "b", names=[t.name])
    a.join("a joins")
    b.join("b joins")
    third = Member(s, "c", names=[t.name])
    third.join("a third")
    third.beat("a third, which has an epoch", member_epoch=3)
    third.join("a third, static", instance_id="j")
    third.beat("a third, static, which has an epoch", member_epoch=3, instance_id="j")
    again = Member(s, "a2", names=[t.name], instance="i")
    again.join("a second a")
    again.beat("a second a, which has an epoch", member_epoch=3)
    classic_third = ClassicMember(s, "k", t)
    classic_third.join(note="a third, classic")
    classic_third.join(note="a third, classic and static", group_instance_id="j")
    classic_third.join(note="a second a, classic, with an id", member_id="x", group_instance_id="i")
    a.leave("a goes for a while", epoch=-2)
    third.join("a third, while a is away")
    again.join("the next a")
    describe(s, "full")
    last = ClassicMember(s, "a3", t, instance="i")
    last.join(note="the next a, classic", member_id="")
    describe(s, "full, of both protocols")


# -- subscriptions -------------------------------------------------------------------------------------------------


@story("consumer-groups", PROFILE)
def subscriptions(s: Story) -> None:
    """Subscribed names change; topics are created, grown and deleted."""
    t, u = s.topic(1), s.topic(2)
    later = s.name("later")
    m = Member(s, "m", names=[t.name])
    m.join()
    m.names = [u.name, later]
    m.beat("another topic", subscribed_topic_names=m.names)
    m.beat("gave up the first", owned={})
    m.beat("has the other", owned={u: [0, 1]})
    row = {"name": later, "num_partitions": 1, "replication_factor": 1}
    made = s.quiet("create_topics", 7, retry=(), topics=[row])["topics"][0]
    s.normal.symbol("topic", made["topic_id"])
    m.until(lambda answer: answer["assignment"] is not None, "the new topic is assigned")
    grown = {"name": t.name, "count": 3}
    s.quiet("create_partitions", 3, retry=(), topics=[grown], timeout=10_000, validate_only=False)
    m.beat("a topic of no concern has grown")
    grown = {"name": u.name, "count": 3}
    s.quiet("create_partitions", 3, retry=(), topics=[grown], timeout=10_000, validate_only=False)
    m.until(lambda answer: answer["assignment"] is not None, "the topic has grown")
    s.quiet("delete_topics", 6, retry=(), topics=[{"name": u.name}], timeout=10_000)
    m.until(lambda answer: answer["assignment"] is not None, "the topic was deleted")
    m.beat("nothing but the new topic", owned={})
    m.beat("no topics", subscribed_topic_names=[])
    m.beat("owns nothing", owned={})
    describe(s)
    log(s)


@story("consumer-groups", PROFILE)
def regular_expressions(s: Story) -> None:
    """Regular expressions are resolved after the response, at most every ten seconds; the group then has a new epoch."""
    t, u = s.topic(3), s.topic(1)
    m = Member(s, "m", regex=f"{s.prefix}-t1.*")
    m.join("joins with a regular expression")
    m.until(lambda answer: answer["assignment"] is not None, "it was resolved")
    m.beat("has them", owned={t: [0, 1, 2]})
    describe(s, "stable")
    n = Member(s, "n", regex=f"{s.prefix}-t1.*", names=[t.name])
    n.join("another, with a name too")
    m.beat("the first gives up", owned={t: [0, 1]})
    n.beat("the other gets", owned={})
    n.leave()
    m.beat("the first gets all", owned={t: [0, 1]})
    m.beat("another regular expression", subscribed_topic_regex="nothing.*")
    m.beat("it is to give up what it has", owned={})
    m.beat("a bad regular expression", subscribed_topic_regex="[")
    m.beat("no regular expression", subscribed_topic_regex="", subscribed_topic_names=[u.name])
    describe(s, "names")
    m.leave()
    log(s)


@story("consumer-groups", PROFILE)
def assignors(s: Story) -> None:
    """The group uses the assignor that most members request.

    Range sorts by instance and member ids, uniform uses the order of a hash map.
    """
    t, u = s.topic(5), s.topic(4)
    for kind in ("range", "uniform"):
        # The first topic in a uniform assignment depends on the topic ids.
        names = [t.name, u.name] if kind == "range" else [t.name]
        members = [Member(s, f"m{n}", kind, names=names, assignor=kind) for n in range(3)]
        members.append(Member(s, "static", kind, names=names, assignor=kind, instance="i"))
        for each in members:
            each.join(f"{kind}: {each.id}")
        describe(s, kind, kind)
        members[1].leave()
        members[0].beat("after one left")
        describe(s, f"{kind}, one left", kind)


@story("consumer-groups", PROFILE)
def different_subscriptions(s: Story) -> None:
    """Members with different subscriptions get a balanced assignment."""
    few, many = s.topic(2), s.topic(7)
    for kind in ("range", "uniform"):
        all_topics = [few.name, many.name]
        a = Member(s, "a", kind, names=all_topics, assignor=kind)
        b = Member(s, "b", kind, names=[many.name], assignor=kind)
        c = Member(s, "c", kind, names=[few.name], assignor=kind)
        for each in (a, b, c):
            each.join(f"{kind}: {each.id}")
        describe(s, kind, kind)


# -- offsets -------------------------------------------------------------------------------------------------------


@story("consumer-groups", PROFILE)
def offsets(s: Story) -> None:
    """OffsetCommit and OffsetFetch check the member epoch.

    An old epoch is accepted for partitions that the member already had in that epoch (KIP-1251).
    """
    t = s.topic(2)
    a = Member(s, "a", names=[t.name])
    a.join("a joins")
    for v in (8, 9, 10):
        a.commit(t, "right epoch", v=v)
    for v in (9, 10):
        a.commit(t, "higher epoch", v=v, generation_id_or_member_epoch=a.epoch + 1)
        a.commit(t, "lower epoch", v=v, generation_id_or_member_epoch=a.epoch - 1)
        a.commit(t, "unknown member", v=v, member_id="x")
        a.commit(t, "nobody", v=v, member_id="", generation_id_or_member_epoch=-1)
    first = a.epoch
    b = Member(s, "b", names=[t.name])
    b.join("b joins")
    a.beat("a shall revoke")
    for partition in (0, 1):
        a.commit(t, f"while it revokes, partition {partition}", partition)
    a.beat("a has revoked", owned={t: [0]})
    for partition in (0, 1):
        a.commit(t, f"an epoch back, partition {partition}", partition, generation_id_or_member_epoch=first)
    b.beat("b gets its partition", owned={})
    b.commit(t, "b", 1)
    b.commit(t, "b, an epoch back", 1, generation_id_or_member_epoch=b.epoch - 1)
    p = Producer(s, "tx")
    for note, changes in (
        ("right epoch", {}),
        ("higher epoch", {"generation_id": a.epoch + 1}),
        ("an epoch back", {"generation_id": first}),
        ("too old", {"generation_id": first - 1}),
        ("no member", {"generation_id": -1, "member_id": ""}),
        ("unknown member", {"member_id": "x"}),
    ):
        row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
        body: dict[str, Any] = {
            "group_id": a.group,
            "generation_id": a.epoch,
            "member_id": a.id,
            "group_instance_id": None,
        }
        body |= {"topics": [{"name": t.name, "partitions": [row]}]} | p.who() | changes
        s.ask("txn_offset_commit", 5, retry=(51,), note=note, **body)
    p.end(True)
    for note, member_id, epoch in (
        ("right epoch", a.id, a.epoch),
        ("higher epoch", a.id, a.epoch + 1),
        ("lower epoch", a.id, a.epoch - 1),
        ("unknown member", "x", 1),
        ("no member", None, -1),
        ("empty member", "", -1),
    ):
        topics = [{"name": t.name, "partition_indexes": [0, 1]}]
        group = {"group_id": a.group, "member_id": member_id, "member_epoch": epoch, "topics": topics}
        s.ask("offset_fetch", 9, retry=(88,), groups=[group], require_stable=True, note=note)
    a.leave("a leaves")
    a.commit(t, "after it left")
    b.leave("b leaves")
    a.commit(t, "to the empty group", member_id="", generation_id_or_member_epoch=-1)


@story("consumer-groups", PROFILE)
def administration(s: Story) -> None:
    t, u = s.topic(1), s.topic(1)
    m = Member(s, "m", names=[t.name])
    m.join()
    m.commit(t, "a topic that it subscribes to")
    m.commit(u, "one that it does not")
    names = [s.name("g"), s.name("missing"), ""]
    for v in (5, 6):
        s.ask("describe_groups", v, groups=names)
    body: dict[str, Any] = {"group_ids": [*names, s.name("g")], "include_authorized_operations": True}
    s.ask("consumer_group_describe", 1, **body)
    for types in (["consumer"], ["Classic"], ["share"], ["other"]):
        s.ask("list_groups", 5, types_filter=types, states_filter=[], note=types[0])
    for states in (["stable"], ["Empty"], ["Reconciling", "Stable"], ["PreparingRebalance"]):
        s.ask("list_groups", 5, states_filter=states, types_filter=[], note=states[0])
    s.ask("delete_groups", 2, groups_names=[s.name("g")], note="not empty")
    topics = [{"name": each.name, "partitions": [{"partition_index": 0}]} for each in (t, u)]
    s.ask("offset_delete", 0, group_id=s.name("g"), topics=topics)
    row = {"member_id": "x", "group_instance_id": None}
    s.ask("leave_group", 5, group_id=s.name("g"), members=[row], note="a member that is none")
    row = {"member_id": "m", "group_instance_id": None}
    s.ask("leave_group", 5, group_id=s.name("g"), members=[row], note="sent away")
    m.beat("it was sent away")
    s.ask("delete_groups", 2, groups_names=[s.name("g")], note="empty")
    describe(s, "deleted")
    log(s)


@story("consumer-groups", PROFILE)
def sessions(s: Story) -> None:
    """A member without heartbeats is removed, and so is a member that does not revoke partitions in time."""
    t = s.topic(2)
    row = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "600"}
    beat = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "200"}
    resource = {"resource_type": 32, "resource_name": s.name("g"), "configs": [row, beat]}
    s.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    time.sleep(0.2)
    a, b = Member(s, "a", names=[t.name]), Member(s, "b", names=[t.name])
    a.join("a joins")
    b.join("b joins")
    b.until(lambda answer: answer["assignment"] is not None, "a is gone", topic_partitions=[])
    a.beat("a comes too late")
    slow = Member(s, "slow", "h", names=[t.name], rebalance=300)
    slow.join("one that does not revoke")
    quick = Member(s, "quick", "h", names=[t.name])
    quick.join("another")
    slow.beat("it shall revoke")
    quick.until(lambda answer: answer["assignment"] is not None, "it is gone", topic_partitions=[])
    slow.beat("it comes too late")


# -- conversions ---------------------------------------------------------------------------------------------------


class ClassicMember(classic.Member):
    """A member of the classic protocol that subscribes to existing topics."""

    def __init__(self, s: Story, on: str, topic: Topic, **more: Any) -> None:
        super().__init__(s, on, topics=[topic.name], **more)


@story("consumer-groups", PROFILE)
def upgrade_and_downgrade(s: Story) -> None:
    """The first member with the consumer protocol upgrades the group. When the last such member leaves, it is downgraded."""
    t = s.topic(2)
    a = ClassicMember(s, "a", t)
    a.join()
    a.sync({a.id: {t.name: [0, 1]}})
    b = Member(s, "b", names=[t.name])
    b.join("joins the classic group")
    describe(s, "upgraded")
    s.ask("list_groups", 5)
    a.heartbeat("the classic member is to join again")
    a.join(note="joins again, owning all")
    a.heartbeat("after joining")
    a.sync(note="is told what it keeps")
    describe(s, "the classic member has yet to revoke")
    a.join(note="joins again, owning nothing")
    a.sync(note="synced")
    b.beat("the other gets its part", owned={})
    a.heartbeat("all is well")
    a.commit(t, "the classic member commits")
    a.commit(t, "in another generation", generation_id_or_member_epoch=77)
    describe(s, "both")
    b.leave("the last one of the consumer protocol goes")
    s.ask("list_groups", 5, note="downgraded")
    a.heartbeat("the group rebalances")
    a.join(note="joins the classic group")
    a.sync({a.id: {t.name: [0, 1]}})
    a.leave(note="leaves")
    log(s)


@story("consumer-groups", PROFILE)
def classic_members_join(s: Story) -> None:
    """A member of the classic protocol joins a consumer group."""
    t = s.topic(2)
    a = Member(s, "a", names=[t.name])
    a.join("a joins")
    b = ClassicMember(s, "b", t)
    for v in (5, 9):
        s.ask("join_group", v, on="b", note="without an id", **b.join_body())
    s.ask("join_group", 5, on="b", note="another type", **b.join_body(protocol_type="connect"))
    b.join(member_id="bb")
    a.beat("a shall revoke")
    a.beat("a has revoked", owned={t: [0]})
    b.heartbeat("is to join again")
    b.sync(note="is to join again")
    b.join()
    b.sync(note="gets its part")
    b.sync(note="another protocol", protocol_name="roundrobin")
    b.heartbeat("another generation", generation_id=99)
    b.heartbeat("a member of the consumer protocol", member_id="a", generation_id=a.epoch)
    b.heartbeat("an unknown member", member_id="x")
    static = ClassicMember(s, "c", t, instance="i")
    static.join(note="static")
    static.sync(note="static")
    describe(s, "three")
    static.leave(note="static, by its instance", member_id="")
    b.leave(note="b")
    describe(s, "one")
    log(s)


@story("consumer-groups", PROFILE)
def refused_classic_members(s: Story) -> None:
    """The response to a refused JoinGroup has no member id, even if the request has one."""
    t = s.topic(2)
    a = Member(s, "a", names=[t.name])
    a.join("a joins")
    b = ClassicMember(s, "b", t)
    # Version 0, truncated after the number of topics.
    cut = [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x01"}]
    for v in (5, 9):
        s.ask(
            "join_group",
            v,
            on="b",
            note="another type",
            **b.join_body(member_id="bb", protocol_type="connect"),
        )
        s.ask("join_group", v, on="b", note="no subscription", **b.join_body(member_id="bb", protocols=cut))
    static = ClassicMember(s, "c", t, instance="i")
    static.join(note="static")
    static.join(note="another with the id of its instance", member_id="x")
    static.join(note="an unknown instance", member_id="x", group_instance_id="j")


@story("consumer-groups", PROFILE)
def preferences(s: Story) -> None:
    """A changed rack or rebalance timeout is stored, and has no effect until the next target assignment. Another assignor
    that most members request has one at once."""
    t = s.topic(4)
    a, b = Member(s, "a", names=[t.name]), Member(s, "b", names=[t.name], instance="i")
    a.join("a joins", rack_id="r1")
    b.join("b joins")
    a.beat("a gives up", owned={t: [0, 1]})
    b.beat("b gets", owned={})
    describe(s, "shared")
    a.beat("another assignor", server_assignor="range")
    a.beat("another rack", rack_id="r2")
    a.beat("another rebalance timeout", rebalance_timeout=30_000)
    describe(s, "of one vote each, or none")
    b.beat("the same assignor", server_assignor="range")
    b.beat("the other one again", server_assignor="uniform")
    describe(s, "one vote for each")
    b.beat("both want one", server_assignor="range")
    c = Member(s, "c", names=[t.name], assignor="uniform")
    c.join("a third one joins, which wants the other")
    describe(s, "two votes to one")
    log(s)


@story("consumer-groups", PROFILE)
def joining_again(s: Story) -> None:
    """A member that rejoins owns nothing: partitions that it had to revoke are free."""
    t = s.topic(4)
    a, b = Member(s, "a", names=[t.name]), Member(s, "b", names=[t.name])
    a.join("a joins")
    b.join("b joins")
    a.beat("a shall revoke")
    b.beat("b waits", owned={})
    a.join("a joins again")
    describe(s, "a owns nothing but what it shall have")
    b.beat("b gets its part", owned={})
    b.join("b joins again, with all that it has")
    b.join("and with other topics", subscribed_topic_names=[])
    describe(s, "b has nothing")
    log(s)


@story("consumer-groups", PROFILE)
def expressions_and_internal_topics(s: Story) -> None:
    """A regex may match an internal topic, and has to match the whole name."""
    t = s.topic(1)
    m = Member(s, "m", regex="__consumer_off.*")
    m.join("an internal topic")
    m.until(lambda answer: answer["assignment"] is not None, "it was resolved")
    short = Member(s, "short", "h", regex=t.name[:-1])
    short.join("the beginning of a name")
    short.beat("nothing matches", owned={})
    log(s, group="h")


@story("consumer-groups", PROFILE)
def static_members_change_their_protocol(s: Story) -> None:
    """A static member rejoins with the other protocol, and gets its old assignment."""
    t = s.topic(2)
    old = ClassicMember(s, "a", t, instance="i")
    old.join()
    old.sync({old.id: {t.name: [0, 1]}})
    new = Member(s, "new", names=[t.name], instance="i")
    new.join("with the consumer protocol")
    describe(s, "upgraded by its only member")
    old.heartbeat("the classic incarnation")
    new.beat("has what it had", owned={t: [0, 1]})
    other = Member(s, "other", names=[t.name], instance="j")
    other.join("another joins")
    new.beat("the first gives up", owned={t: [0]})
    other.beat("the other gets", owned={})
    back = ClassicMember(s, "b", t, instance="j")
    back.join(note="with the classic protocol", member_id="")
    describe(s, "of both protocols")
    other.beat("the incarnation before it")
    back.sync(note="synced")
    # The members in the record of a classic group are in the order of a hash map of their random ids.
    log(s)
    last = ClassicMember(s, "c", t, instance="i")
    last.join(note="the last one of the consumer protocol goes classic too", member_id="")
    s.ask("list_groups", 5, note="downgraded")
    last.sync(note="in the classic group")
    back.heartbeat("in the classic group")
    new.beat("the incarnation before it")


@story("consumer-groups", PROFILE)
def empty_groups(s: Story) -> None:
    """An empty group accepts either protocol."""
    t = s.topic(1)
    a = ClassicMember(s, "a", t)
    a.join()
    a.sync({a.id: {t.name: [0]}})
    a.commit(t, "classic")
    a.leave()
    b = Member(s, "b", names=[t.name])
    b.join("the empty classic group")
    group = {"group_id": b.group, "member_id": b.id, "member_epoch": b.epoch}
    group["topics"] = [{"name": t.name, "partition_indexes": [0]}]
    s.ask("offset_fetch", 9, groups=[group], require_stable=True, note="what was committed before")
    b.leave()
    c = ClassicMember(s, "c", t)
    c.join(note="the empty consumer group", member_id="")
    s.ask("list_groups", 5)
    other = ClassicMember(s, "d", t, group="other", kind="connect", protocols=("default",))
    other.join()
    other.sync({other.id: {}})
    d = Member(s, "d", "other", names=[t.name])
    d.join("a group of another type with members")
    log(s)
