"""Classic groups: membership, offsets, administration. Members send valid ConsumerProtocol bytes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from tests.differential.story import Body, Pending, Story, Topic, assignment, story, subscription
from tests.support.deadlines import Deadline

UNKNOWN_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


class Member:
    """A member with its connection, its id and its generation."""

    def __init__(
        self, s: Story, on: str, group: str = "g", protocols: Sequence[str] = ("range",), **more: Any
    ) -> None:
        self.s, self.on, self.group = s, on, s.name(group)
        self.id, self.generation, self.instance = "", -1, more.get("instance")
        self.protocols, self.kind = protocols, more.get("kind", "consumer")
        self.session = more.get("session", 30000)
        self.rebalance = more.get("rebalance", 30000)
        self.topics = more.get("topics", ["a"])

    def join_body(self, **changes: Any) -> Body:
        protocols = [{"name": name, "metadata": subscription(self.topics)} for name in self.protocols]
        return {
            "group_id": self.group,
            "session_timeout": self.session,
            "rebalance_timeout": self.rebalance,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.kind,
            "protocols": protocols,
        } | changes

    def joining(self, v: int = 5, note: str = "", **changes: Any) -> Pending:
        """Send JoinGroup. From v4 on, a new member first gets its id with MEMBER_ID_REQUIRED, and joins with this id."""
        if v >= 4 and not self.id and not self.instance and "member_id" not in changes:
            body = self.join_body(**changes)
            self.id = self.s.quiet("join_group", v, retry=(14, 15, 16), on=self.on, **body)["member_id"]
            self.s.normal.learn(self.id)
        return self.s.send("join_group", v, on=self.on, note=note, **self.join_body(**changes))

    def joined(self, pending: Pending) -> Body:
        answer = self.s.take(pending)
        if answer["error_code"] == 0:
            self.id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def join(self, v: int = 5, note: str = "", **changes: Any) -> Body:
        return self.joined(self.joining(v, note, **changes))

    def who(self, **changes: Any) -> Body:
        body = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return body | {"group_instance_id": self.instance} | changes

    def syncing(
        self,
        parts: dict[str, dict[str, Sequence[int]]] | None = None,
        v: int = 5,
        note: str = "",
        **changes: Any,
    ) -> Pending:
        rows = [{"member_id": m, "assignment": assignment(a)} for m, a in (parts or {}).items()]
        names = {"protocol_type": self.kind, "protocol_name": self.protocols[0]}
        return self.s.send(
            "sync_group", v, on=self.on, note=note, assignments=rows, **(self.who(**names) | changes)
        )

    def sync(
        self,
        parts: dict[str, dict[str, Sequence[int]]] | None = None,
        v: int = 5,
        note: str = "",
        **changes: Any,
    ) -> Body:
        return self.s.take(self.syncing(parts, v, note, **changes))

    def lead(self) -> None:
        """Join as the only member, and assign topic a to itself."""
        self.join()
        self.sync({self.id: {"a": [0, 1]}})

    def heartbeat(self, note: str = "", v: int = 4, **changes: Any) -> int:
        return int(self.s.ask("heartbeat", v, on=self.on, note=note, **self.who(**changes))["error_code"])

    def leave(self, v: int = 3, note: str = "", **changes: Any) -> Body:
        row = {"member_id": self.id, "group_instance_id": self.instance} | changes
        body: dict[str, Any] = {"group_id": self.group, "member_id": row["member_id"], "members": [row]}
        return self.s.ask("leave_group", v, on=self.on, note=note, **body)

    def commit(self, t: Topic, note: str = "", v: int = 8, offset: int = 5, **changes: Any) -> None:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        row |= {k: changes.pop(k) for k in list(changes) if k in row}
        who = self.who()
        body = {
            "group_id": who["group_id"],
            "generation_id_or_member_epoch": who["generation_id"],
            "member_id": who["member_id"],
            "group_instance_id": who["group_instance_id"],
            "topics": [t.by(v, 10) | {"partitions": [row]}],
        }
        self.s.ask("offset_commit", v, on=self.on, note=note, **(body | changes))


def two(s: Story, **more: Any) -> tuple[Member, Member]:
    """A stable group of two members, the leader first."""
    a, b = Member(s, "a", **more), Member(s, "b", **more)
    a.lead()
    pending = b.joining()
    until(a, 27)
    again = a.joining()
    a.joined(again)
    b.joined(pending)
    sync = b.syncing()
    a.sync({a.id: {"a": [0]}, b.id: {"a": [1]}})
    s.take(sync)
    return a, b


def until_members(member: Member, count: int) -> None:
    """Poll, outside the transcript, until the group has this many members."""
    deadline = Deadline()
    while (
        len(member.s.quiet("describe_groups", 5, on="look", groups=[member.group])["groups"][0]["members"])
        != count
    ):
        deadline.check(f"{count} members")
        time.sleep(0.02)


def until(member: Member, code: int) -> None:
    """Send heartbeats, outside the transcript, until the error is `code`."""
    deadline = Deadline()
    while member.s.quiet("heartbeat", 3, retry=(), on=member.on, **member.who())["error_code"] != code:
        deadline.check("the heartbeat has the expected error")
        time.sleep(0.02)


# -- JoinGroup -----------------------------------------------------------------------------------------------------


@story("join-group")
def bad_requests(s: Story) -> None:
    """JoinGroup errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL."""
    m = Member(s, "m")
    for v in (0, 1, 3, 4, 5, 7, 9):
        for note, changes in (
            ("empty group", {"group_id": ""}),
            ("session timeout 999", {"session_timeout": 999}),
            ("session timeout 1800001", {"session_timeout": 1_800_001}),
            ("session timeout -1", {"session_timeout": -1}),
            ("unknown member", {"member_id": "nobody"}),
            ("no protocol type", {"protocol_type": "", "member_id": ""}),
            ("no protocols", {"protocols": [], "member_id": ""}),
        ):
            s.ask("join_group", v, on="m", note=note, **m.join_body(**changes))


@story("join-group")
def member_id_required(s: Story) -> None:
    """From v4 on a dynamic member first gets MEMBER_ID_REQUIRED (KIP-394). Before v4, or if static, it joins at once."""
    for v in range(10):
        m = Member(s, f"m{v}", f"g{v}")
        s.ask("join_group", v, on=m.on, client_id="my-client", note="first", **m.join_body())
    for v in (5, 9):
        m = Member(s, f"s{v}", f"s{v}", instance="inst")
        s.ask("join_group", v, on=m.on, client_id="my-client", note="static", **m.join_body())


@story("join-group")
def pending_member(s: Story) -> None:
    """A member id that was assigned but has not joined gets UNKNOWN_MEMBER_ID from Heartbeat and SyncGroup. It can leave."""
    m = Member(s, "m")
    answer = s.ask("join_group", 5, on="m", **m.join_body())
    m.id = answer["member_id"]
    m.heartbeat("pending", generation_id=0)
    m.sync(note="pending", generation_id=0)
    m.leave(note="pending")
    m.join(note="after it left")
    s.ask("describe_groups", 5, groups=[m.group])


@story("join-group")
def strange_clients(s: Story) -> None:
    """A new member id begins with the client id, whatever characters it has."""
    for number, client_id in enumerate(("ü", "", None, "a b")):
        m = Member(s, f"m{number}", f"g{number}")
        s.ask("join_group", 5, on=m.on, client_id=client_id, note=repr(client_id), **m.join_body())


@story("join-group")
def two_members(s: Story) -> None:
    """Only the leader gets the members. Heartbeats get REBALANCE_IN_PROGRESS until both members rejoin, then NONE."""
    a, b = Member(s, "a"), Member(s, "b")
    a.lead()
    a.heartbeat("stable")
    pending = b.joining()
    until(a, 27)
    a.heartbeat("preparing")
    a.sync(note="preparing")
    s.ask("describe_groups", 5, groups=[a.group], note="preparing")
    s.ask("list_groups", 4, note="preparing")
    a.join(note="again")
    b.joined(pending)
    a.heartbeat("completing")
    b.heartbeat("completing")
    s.ask("describe_groups", 5, groups=[a.group], note="completing")
    s.ask("list_groups", 4, note="completing")
    sync = b.syncing()
    a.sync({a.id: {"a": [0]}, b.id: {"a": [1]}})
    s.take(sync)
    b.heartbeat("stable")
    s.ask("describe_groups", 6, groups=[a.group], note="stable")


@story("join-group")
def inconsistent_protocols(s: Story) -> None:
    """Another protocol type, or no common protocol name, gets INCONSISTENT_GROUP_PROTOCOL.

    An empty group accepts any protocol.
    """
    a = Member(s, "a", protocols=("range", "roundrobin"))
    a.lead()
    for note, changes in (
        ("another type", {"protocol_type": "connect"}),
        ("nothing in common", {"protocols": [{"name": "sticky", "metadata": subscription(["a"])}]}),
        ("no protocols", {"protocols": []}),
        ("no type", {"protocol_type": ""}),
    ):
        for v in (3, 5):
            m = Member(s, f"{note}{v}")
            s.ask("join_group", v, on=m.on, note=note, **m.join_body(**changes))
    a.leave()
    other = Member(s, "other", kind="connect", protocols=("default",))
    other.join(note="the group is empty: another type")
    s.ask("list_groups", 5)


@story("join-group")
def selection(s: Story) -> None:
    """Candidates are the protocols that all members support; each member votes for the first candidate in its own list."""
    a = Member(s, "a", protocols=("range", "roundrobin", "sticky"))
    b = Member(s, "b", protocols=("sticky", "roundrobin"))
    c = Member(s, "c", protocols=("roundrobin", "sticky"))
    a.lead()
    waiting = [b.joining(), c.joining()]
    until(a, 27)
    until_members(a, 3)
    a.join(7)
    b.joined(waiting[0])
    c.joined(waiting[1])


@story("join-group")
def rejoining(s: Story) -> None:
    """A JoinGroup of a known member, by the state of the group.

    Stable: a follower with unchanged metadata gets the same generation; the leader, or changed metadata, causes a rebalance.
    Completing: unchanged metadata gets the same response again.
    """
    a, b = two(s)
    b.join(note="follower, unchanged")
    a.heartbeat("no rebalance")
    pending = a.joining(note="leader, unchanged")
    until(b, 27)
    b.heartbeat("rebalance")
    b.join(note="follower, to complete it")
    a.joined(pending)
    b.join(note="completing, unchanged")
    a.join(note="completing, leader, unchanged")
    sync = b.syncing()
    a.sync({a.id: {"a": [0]}, b.id: {"a": [1]}})
    s.take(sync)
    b.topics = ["a", "b"]
    pending = b.joining(note="follower, changed")
    until(a, 27)
    a.join(note="leader")
    b.joined(pending)


@story("join-group")
def member_that_does_not_rejoin(s: Story) -> None:
    """The coordinator removes a member that has not rejoined at the end of the rebalance timeout."""
    a, b = Member(s, "a", rebalance=700), Member(s, "b", rebalance=700)
    a.lead()
    b.join(note="a does not come")
    a.heartbeat("removed")
    b.sync({b.id: {"a": [0, 1]}})
    s.ask("describe_groups", 5, groups=[a.group])


@story("join-group")
def session_expires(s: Story) -> None:
    """A member without heartbeats is removed after its session timeout.

    When the last member is removed, the group is empty, in a new generation.
    """
    a = Member(s, "a", session=1000)
    a.lead()
    until_members(a, 0)
    a.heartbeat("expired")
    s.ask("describe_groups", 5, groups=[a.group])
    b = Member(s, "b")
    b.join(note="the next")


@story("join-group")
def leader_leaves(s: Story) -> None:
    """When the leader leaves, another joined member becomes the leader."""
    a, b = two(s)
    a.leave(note="leader")
    b.heartbeat("rebalance")
    b.join(note="alone, leader now")
    b.sync({b.id: {"a": [0, 1]}})


@story("join-group")
def connection_closed_while_joining(s: Story) -> None:
    """A member whose connection closes stays in the group: its heartbeat on another connection is accepted."""
    a = Member(s, "a")
    a.lead()
    s.close("a")
    a.heartbeat("from another connection")


@story("join-group")
def answers_of_versions(s: Story) -> None:
    """The response to JoinGroup has protocolType and a nullable protocolName from v7 on, and skipAssignment from v9 on."""
    for v in (6, 7, 8, 9):
        m = Member(s, f"m{v}", f"g{v}")
        m.join(v)
        m.join(v, note="unknown member", member_id="nobody")


# -- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------------------------------


@story("sync-group")
def errors(s: Story) -> None:
    """SyncGroup gets UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL (v5) or INVALID_GROUP_ID."""
    nobody = Member(s, "nobody", "unknown")
    for v in (0, 3, 5):
        nobody.sync(v=v, note="unknown group", member_id="x", generation_id=1)
    m = Member(s, "m")
    m.join()
    for v in (0, 3, 4, 5):
        m.sync(v=v, note="unknown member", member_id="x")
        m.sync(v=v, note="generation 0", generation_id=0)
        m.sync(v=v, note="generation 9", generation_id=9)
        m.sync(v=v, note="empty group", group_id="")
    m.sync(note="another type", protocol_type="connect")
    m.sync(note="another name", protocol_name="sticky")
    m.sync({m.id: {"a": [0]}}, note="null names", protocol_type=None, protocol_name=None)
    m.sync(note="stable: the stored assignment")
    m.sync({m.id: {"a": [7]}}, note="stable: another assignment is not taken")


@story("sync-group")
def missing_and_foreign_members(s: Story) -> None:
    """Members that are missing in the leader's assignment get no bytes. Unknown members in the assignment are ignored."""
    a, b = Member(s, "a"), Member(s, "b")
    a.lead()
    pending = b.joining()
    until(a, 27)
    a.join()
    b.joined(pending)
    sync = b.syncing()
    a.sync({a.id: {"a": [0]}, "stranger": {"a": [1]}})
    s.take(sync)
    s.ask("describe_groups", 5, groups=[a.group])


@story("sync-group")
def nobody_syncs(s: Story) -> None:
    """Members that do not sync within the rebalance timeout are removed."""
    a = Member(s, "a", rebalance=600)
    a.join()
    until_members(a, 0)
    a.heartbeat("removed")
    s.ask("describe_groups", 5, groups=[a.group])


@story("heartbeat")
def states(s: Story) -> None:
    nobody = Member(s, "nobody", "unknown")
    for v in (0, 2, 3, 4):
        nobody.heartbeat("unknown group", v, member_id="x", generation_id=1)
        nobody.heartbeat("empty group id", v, group_id="", member_id="x", generation_id=1)
    m = Member(s, "m")
    m.join()
    m.heartbeat("completing")
    m.sync({m.id: {"a": [0]}})
    for v in (0, 3, 4):
        m.heartbeat("stable", v)
        m.heartbeat("generation lower", v, generation_id=0)
        m.heartbeat("generation higher", v, generation_id=9)
        m.heartbeat("unknown member", v, member_id="x")
    m.leave()
    m.heartbeat("empty")


@story("leave-group")
def dynamic(s: Story) -> None:
    nobody = Member(s, "nobody", "unknown")
    for v in range(6):
        nobody.leave(v, "unknown group", member_id="x")
        nobody.leave(v, "empty member id", member_id="")
    s.ask("leave_group", 3, group_id="", member_id="x", members=[{"member_id": "x"}], note="empty group id")
    s.ask("leave_group", 1, group_id="", member_id="x", note="empty group id")
    a, b = two(s)
    a.leave(1, "unknown member", member_id="x")
    a.leave(4, "unknown member", member_id="x")
    rows = [{"member_id": b.id}, {"member_id": "x"}]
    s.ask("leave_group", 4, group_id=a.group, members=rows, note="one good, one not")
    a.heartbeat("rebalance")
    s.ask("leave_group", 4, group_id=a.group, members=[], note="none")
    a.leave(0)
    s.ask("describe_groups", 5, groups=[a.group])
    s.ask("delete_groups", 1, groups_names=[a.group])


# -- static membership ---------------------------------------------------------------------------------------------


@story("static-members")
def replaced(s: Story) -> None:
    """A static member that rejoins without its member id gets a new one, without a rebalance.

    Requests with the old member id get FENCED_INSTANCE_ID, or UNKNOWN_MEMBER_ID if they have no instance id. Before v9
    the response to JoinGroup has the old member id as leader.
    """
    for v in (5, 8, 9):
        m = Member(s, f"m{v}", f"g{v}", instance="i")
        m.join(v)
        m.sync({m.id: {"a": [0]}})
        old = m.id
        again = Member(s, f"n{v}", f"g{v}", instance="i")
        answer = again.join(v, note="comes again")
        s.put("leads", answer["leader"] == again.id)
        s.put("leader is the old one", answer["leader"] == old)
        m.heartbeat("old id")
        m.heartbeat("old id, no instance", group_instance_id=None)
        m.sync(note="old id")
        m.leave(note="old id")
        again.sync(note="new id")
        again.heartbeat("new id")
        s.ask("describe_groups", 5, groups=[m.group])


@story("static-members")
def replaced_with_other_metadata(s: Story) -> None:
    """A static member that is replaced with other metadata causes a rebalance only if the protocol changes."""
    m = Member(s, "m", instance="i", protocols=("range",))
    m.lead()
    again = Member(s, "n", instance="i", protocols=("range",), topics=["b"])
    again.join(9, note="other topics")
    again.heartbeat("stable")
    third = Member(s, "o", instance="i", protocols=("sticky",))
    third.join(9, note="another protocol")
    third.heartbeat("after it")


@story("static-members")
def instance_and_member(s: Story) -> None:
    """A known instance id with a wrong member id gets FENCED_INSTANCE_ID.

    An unknown instance id with a member id gets UNKNOWN_MEMBER_ID.
    """
    m, t = Member(s, "m", instance="i"), s.topic()
    m.lead()
    for v in (5, 9):
        s.ask("join_group", v, on="x", note="wrong member id", **m.join_body(member_id="nobody"))
        s.ask(
            "join_group",
            v,
            on="x",
            note="unknown instance",
            **m.join_body(member_id="x", group_instance_id="j"),
        )
    m.heartbeat("wrong member id", member_id="nobody")
    m.heartbeat("unknown instance", group_instance_id="j")
    m.sync(note="wrong member id", member_id="nobody")
    m.sync(note="unknown instance", group_instance_id="j")
    m.commit(t, "wrong member id", member_id="nobody")
    m.commit(t, "unknown instance", group_instance_id="j")
    m.leave(note="wrong member id", member_id="nobody")
    m.leave(note="unknown instance", member_id="", group_instance_id="j")
    m.leave(note="instance alone", member_id="")
    s.ask("describe_groups", 5, groups=[m.group])


@story("static-members")
def rejoins_with_its_id(s: Story) -> None:
    m = Member(s, "m", instance="i")
    m.lead()
    m.join(note="leader, its own id")
    m.sync({m.id: {"a": [0]}})
    m.heartbeat()


@story("static-members")
def two_static_members(s: Story) -> None:
    a, b = Member(s, "a", instance="ia"), Member(s, "b", instance="ib")
    a.lead()
    pending = b.joining()
    until(a, 27)
    a.join()
    b.joined(pending)
    sync = b.syncing()
    a.sync({a.id: {"a": [0]}, b.id: {"a": [1]}})
    s.take(sync)
    again = Member(s, "c", instance="ib")
    again.join(note="the follower comes again")
    again.sync(note="its assignment")
    a.heartbeat("no rebalance")


# -- offsets -------------------------------------------------------------------------------------------------------


@story("offset-commit")
def without_members(s: Story) -> None:
    """The first OffsetCommit creates a simple group.

    A commit with a generation for an unknown group gets ILLEGAL_GENERATION, or GROUP_ID_NOT_FOUND from v9 on.
    """
    t = s.topic()
    m = Member(s, "m")
    for v in (2, 5, 8, 9, 10):
        m.commit(t, "unknown group, generation 1", v, generation_id_or_member_epoch=1, member_id="x")
        m.commit(t, "unknown group, generation 0, no member", v, generation_id_or_member_epoch=0)
    for v in (2, 4, 5, 9, 10):
        m.commit(t, "simple", v)
        m.commit(t, "simple, member", v, member_id="x")
        m.commit(t, "simple, generation 3", v, generation_id_or_member_epoch=3, member_id="x")
    s.ask("describe_groups", 6, groups=[m.group])
    s.ask("list_groups", 5)


@story("offset-commit")
def empty_group_id(s: Story) -> None:
    """The empty group id is valid for OffsetCommit and OffsetFetch as a simple group, but not for OffsetDelete."""
    t, m = s.topic(), Member(s, "m")
    m.group = ""
    s.ask("offset_fetch", 5, group_id="", topics=None, note="before")
    for v in (2, 8, 9):
        m.commit(t, v=v, offset=v)
    s.ask("offset_fetch", 1, group_id="", topics=[{"name": t.name, "partition_indexes": [0]}])
    s.ask("offset_fetch", 7, group_id="", topics=None)
    s.ask("offset_fetch", 8, groups=[{"group_id": "", "topics": None}])
    for v in (5, 6):
        s.ask("describe_groups", v, groups=[""])
    parts = [{"name": t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, group_id="", topics=parts)
    s.ask("delete_groups", 2, groups_names=[""])
    s.ask("delete_groups", 2, groups_names=[""], note="again")
    s.ask("offset_fetch", 7, group_id="", topics=None, note="gone")


@story("offset-commit")
def values(s: Story) -> None:
    """OffsetCommit accepts metadata up to 4096 bytes and any offset.

    Unknown topics get UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID in v10.
    """
    t, m = s.topic(), Member(s, "m")
    m.commit(t, "4096 of metadata", committed_metadata="x" * 4096)
    m.commit(t, "4097 of metadata", committed_metadata="x" * 4097)
    m.commit(t, "null metadata", committed_metadata=None)
    m.commit(t, "offset -7", offset=-7)
    m.commit(t, "offset 2^63-1", offset=2**63 - 1)
    m.commit(t, "partition 9", partition_index=9)
    m.commit(t, "partition -1", partition_index=-1)
    m.commit(Topic(s.name("missing"), UNKNOWN_ID), "unknown topic")
    m.commit(Topic(s.name("missing"), UNKNOWN_ID), "unknown id", 10)
    m.commit(Topic("__consumer_offsets", UNKNOWN_ID), "internal topic")
    m.commit(Topic("a/b", UNKNOWN_ID), "invalid name")
    m.commit(t, "no topics", topics=[])
    m.commit(t, "a topic without partitions", topics=[{"name": t.name, "partitions": []}])
    rows = [{"partition_index": p, "committed_offset": 1, "committed_metadata": ""} for p in (0, 5)]
    m.commit(t, "one good, one bad", topics=[{"name": t.name, "partitions": rows}])
    m.commit(
        t, "twice", topics=[{"name": t.name, "partitions": [rows[0], rows[0] | {"committed_offset": 2}]}]
    )
    s.ask("offset_fetch", 7, group_id=m.group, topics=None)


@story("offset-commit")
def leader_epochs(s: Story) -> None:
    t, m = s.topic(), Member(s, "m")
    for epoch in (-1, 0, 7):
        row = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": epoch,
            "committed_metadata": "",
        }
        m.commit(t, f"epoch {epoch}", topics=[{"name": t.name, "partitions": [row]}])
        s.ask("offset_fetch", 7, group_id=m.group, topics=None)


@story("offset-commit")
def with_members(s: Story) -> None:
    """OffsetCommit checks member id and generation.

    It gets REBALANCE_IN_PROGRESS while members have joined and not synced, but not while they still have to join.
    """
    t = s.topic()
    a, b = Member(s, "a"), Member(s, "b")
    a.join()
    a.commit(t, "completing")
    a.commit(t, "completing, v9", 9)
    a.sync({a.id: {"a": [0]}})
    for v in (2, 8, 9, 10):
        a.commit(t, "stable", v)
        a.commit(t, "unknown member", v, member_id="x")
        a.commit(t, "generation lower", v, generation_id_or_member_epoch=0)
        a.commit(t, "generation higher", v, generation_id_or_member_epoch=9)
        a.commit(t, "no member, no generation", v, member_id="", generation_id_or_member_epoch=-1)
        a.commit(t, "member, no generation", v, generation_id_or_member_epoch=-1)
    pending = b.joining()
    until(a, 27)
    a.commit(t, "preparing")
    a.join()
    b.joined(pending)
    b.commit(t, "completing")
    a.leave()
    b.leave()
    a.commit(t, "empty, no generation", member_id="", generation_id_or_member_epoch=-1)
    a.commit(t, "empty, old member", generation_id_or_member_epoch=1)


@story("offset-fetch")
def nothing_there(s: Story) -> None:
    """OffsetFetch returns offset -1 without an error for an unknown group, topic or partition."""
    t = s.topic()
    for v in (1, 2, 5, 7):
        wanted = [
            {"name": t.name, "partition_indexes": [0, 9]},
            {"name": s.name("missing"), "partition_indexes": [0]},
        ]
        s.ask("offset_fetch", v, group_id=s.name("unknown"), topics=wanted)
    s.ask("offset_fetch", 2, group_id=s.name("unknown"), topics=None, note="all")
    s.ask("offset_fetch", 7, group_id=s.name("unknown"), topics=[], note="none")
    for v in (8, 9):
        wanted = [
            {"name": t.name, "partition_indexes": [0, 9]},
            {"name": s.name("missing"), "partition_indexes": [0]},
        ]
        s.ask("offset_fetch", v, groups=[{"group_id": s.name("unknown"), "topics": wanted}])
    by_id = [
        {"topic_id": t.id, "partition_indexes": [0, 9]},
        {"topic_id": UNKNOWN_ID, "partition_indexes": [0]},
    ]
    s.ask("offset_fetch", 10, groups=[{"group_id": s.name("unknown"), "topics": by_id}])


@story("offset-fetch")
def many_groups(s: Story) -> None:
    t, m, n = s.topic(), Member(s, "m", "g1"), Member(s, "n", "g2")
    m.commit(t, offset=1)
    n.commit(t, offset=2)
    all_of = [{"group_id": g, "topics": None} for g in (n.group, m.group, s.name("unknown"))]
    for v in (8, 9, 10):
        s.ask("offset_fetch", v, groups=all_of, note="all of each")
    s.ask("offset_fetch", 8, groups=[], note="none")
    s.ask("offset_fetch", 8, groups=[all_of[0], all_of[0]], note="one twice")


@story("offset-fetch")
def member_of_a_classic_group(s: Story) -> None:
    """OffsetFetch v9 of a classic group ignores member id and epoch."""
    t, m = s.topic(), Member(s, "m")
    m.lead()
    m.commit(t)
    topics = [{"name": t.name, "partition_indexes": [0]}]
    for member, epoch in ((m.id, 1), ("x", 1), (m.id, 99), (None, -1)):
        row = {"group_id": m.group, "member_id": member, "member_epoch": epoch, "topics": topics}
        s.ask(
            "offset_fetch",
            9,
            groups=[row],
            note=f"{'its' if member == m.id else member} member, epoch {epoch}",
        )


@story("offset-fetch")
def after_the_topic_is_gone(s: Story) -> None:
    t, u, m = s.topic(), s.topic(), Member(s, "m")
    m.commit(t)
    m.commit(u)
    s.ask("delete_topics", 6, topics=[{"name": t.name}], timeout=10000)
    deadline = Deadline()
    while len(s.quiet("offset_fetch", 7, group_id=m.group, topics=None)["topics"]) > 1:
        if deadline.is_over:
            break
        time.sleep(0.05)
    s.ask("offset_fetch", 7, group_id=m.group, topics=None)


# -- administration ------------------------------------------------------------------------------------------------


@story("group-admin")
def describe(s: Story) -> None:
    """DescribeGroups returns the state Dead for an unknown group, and from v6 on GROUP_ID_NOT_FOUND with a message."""
    for v in (0, 4, 5, 6):
        s.ask("describe_groups", v, groups=[s.name("unknown")])
    s.ask("describe_groups", 5, groups=[], note="none")
    m = Member(s, "m", kind="connect", protocols=("default",))
    m.join()
    m.sync({m.id: {}})
    for v in (0, 3, 4, 6):
        s.ask("describe_groups", v, groups=[m.group], include_authorized_operations=True)
    s.ask("describe_groups", 6, groups=[m.group, s.name("unknown"), m.group], note="three")


@story("group-admin")
def listing(s: Story) -> None:
    """ListGroups filters by state (v4) and type (v5) without regard to case. Unknown values match nothing."""
    t = s.topic()
    m, simple = Member(s, "m"), Member(s, "n", "simple")
    m.lead()
    simple.commit(t)
    for v in range(6):
        s.ask("list_groups", v)
    for states in (["Stable"], ["stable"], ["Empty"], ["Stable", "Empty"], ["Dead"], ["no such"], [""]):
        s.ask("list_groups", 4, states_filter=states, note=f"states {states}")
    for types in (["classic"], ["CLASSIC"], ["consumer"], ["no such"], ["classic", "share"]):
        s.ask("list_groups", 5, types_filter=types, note=f"types {types}")
    s.ask("list_groups", 5, types_filter=["classic"], states_filter=["Empty"], note="both")


@story("group-admin")
def delete(s: Story) -> None:
    """DeleteGroups returns NON_EMPTY_GROUP for a group with members, and GROUP_ID_NOT_FOUND for an unknown group.

    These errors have no message in v3, which has a field for it (KIP-1331).
    """
    t, m, simple = s.topic(), Member(s, "m"), Member(s, "n", "simple")
    m.lead()
    m.commit(t)
    simple.commit(t)
    for v in range(4):
        names = [m.group, s.name("unknown"), ""]
        s.ask("delete_groups", v, groups_names=names)
    s.ask("delete_groups", 2, groups_names=[simple.group, simple.group], note="twice")
    s.ask("delete_groups", 2, groups_names=[], note="none")
    m.leave()
    s.ask("delete_groups", 2, groups_names=[m.group], note="empty now")
    s.ask("offset_fetch", 7, group_id=m.group, topics=None, note="its offsets are gone")
    m.heartbeat("gone")
    s.ask("list_groups", 5)


@story("group-admin")
def delete_offsets(s: Story) -> None:
    """OffsetDelete is refused for unknown groups, subscribed topics, and groups of another type that have members.

    The errors are GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC and NON_EMPTY_GROUP.
    """
    t, u = s.topic(), s.topic()
    m = Member(s, "m", topics=[t.name])
    simple = Member(s, "n", "simple")
    other = Member(s, "o", "other", kind="connect", protocols=("default",))

    def drop(note: str, group: str, *names: str, partitions: Sequence[int] = (0,)) -> None:
        parts = [{"partition_index": p} for p in partitions]
        topics = [{"name": name, "partitions": parts} for name in names]
        s.ask("offset_delete", 0, group_id=group, topics=topics, note=note)

    drop("unknown group", s.name("unknown"), t.name)
    m.lead()
    m.commit(t)
    m.commit(u)
    drop("subscribed and not", m.group, t.name, u.name)
    s.ask("offset_fetch", 7, group_id=m.group, topics=None)
    drop("unknown topic", m.group, s.name("missing"))
    drop("unknown partition", m.group, u.name, partitions=(0, 7))
    drop("no topics", m.group)
    m.leave()
    drop("group is empty", m.group, t.name)
    simple.commit(t)
    drop("simple group", simple.group, t.name)
    drop("nothing committed", simple.group, u.name)
    other.join()
    other.sync({})
    drop("another protocol type, members", other.group, t.name)


@story("group-transactions")
def member_checks(s: Story) -> None:
    """TxnOffsetCommit of a member gets UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or FENCED_INSTANCE_ID.

    During a rebalance it gets no error.
    """
    t, tx = s.topic(), s.name("tx")
    pid, epoch = s.producer_id(tx)
    a = Member(s, "a", instance="i")
    a.lead()
    who: dict[str, Any] = {
        "transactional_id": tx,
        "producer_id": pid,
        "producer_epoch": epoch,
        "group_id": a.group,
    }

    def commit(note: str, v: int = 5, **changes: Any) -> None:
        row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
        body: dict[str, Any] = (
            who | {"generation_id": a.generation, "member_id": a.id, "group_instance_id": "i"} | changes
        )
        body["topics"] = [{"name": t.name, "partitions": [row]}]
        s.ask("txn_offset_commit", v, retry=(51,), note=note, **body)

    s.quiet("add_offsets_to_txn", 3, **who)
    for v in (3, 4, 5):
        commit("unknown member", v, member_id="x", group_instance_id=None)
        commit("generation lower", v, generation_id=0)
        commit("generation higher", v, generation_id=9)
        commit("instance, wrong member", v, member_id="x")
        commit("unknown instance", v, group_instance_id="j")
        commit("no member at all", v, member_id="", generation_id=-1, group_instance_id=None)
        commit("member, no generation", v, generation_id=-1)
        commit("good", v)
    b = Member(s, "b")
    pending = b.joining()
    until(a, 27)
    commit("preparing")
    a.join()
    b.joined(pending)
    commit("completing")
    s.ask("end_txn", 5, committed=True, transactional_id=tx, producer_id=pid, producer_epoch=epoch)
    s.settle(tx)
    s.ask("offset_fetch", 7, retry=(88,), group_id=a.group, topics=None, require_stable=True)
