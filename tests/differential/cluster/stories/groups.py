"""Groups whose coordinator moves to another node."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.transactions import fetch_offsets, find
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Body, Topic, assignment, subscription

FIRST, SECOND = (1, 2, 3), (2, 3, 1)


class Member:
    """The only member of a classic group."""

    def __init__(self, s: ClusterStory, group: str, t: Topic) -> None:
        self.s, self.group, self.t = s, group, t
        self.member_id, self.generation = "", -1

    def who(self) -> Body:
        return {"group_id": self.group, "member_id": self.member_id, "generation_id": self.generation}

    def join(self, at: int, v: int = 5, **more: Any) -> Body:
        protocols = [{"name": "range", "metadata": subscription([self.t.name])}]
        body: dict[str, Any] = {
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        answer = self.s.ask(
            "join_group", v, at=at, group_id=self.group, member_id=self.member_id, **body, **more
        )
        if answer["error_code"] == 79:
            self.member_id = answer["member_id"]
            return self.join(at, v, **more)
        if answer["error_code"] == 0:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        return answer

    def sync(self, at: int, v: int = 3, **more: Any) -> Body:
        rows = [{"member_id": self.member_id, "assignment": assignment({self.t.name: [0]})}]
        return self.s.ask("sync_group", v, at=at, assignments=rows, **self.who(), **more)

    def heartbeat(self, at: int, v: int = 4, **more: Any) -> Body:
        return self.s.ask("heartbeat", v, at=at, **self.who(), **more)

    def commit(self, offset: int, at: int, v: int = 8, **more: Any) -> Body:
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        body: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
        }
        return self.s.ask(
            "offset_commit", v, at=at, topics=[{"name": self.t.name, "partitions": rows}], **body, **more
        )

    def leave(self, at: int, v: int = 3, **more: Any) -> Body:
        member_id = more.pop("member_id", self.member_id)
        body: Body = {"group_id": self.group, "member_id": member_id, "members": [{"member_id": member_id}]}
        return self.s.ask("leave_group", v, at=at, **body, **more)


def describe(s: ClusterStory, group: str, at: int, **more: Any) -> None:
    for v in (5, 6):
        s.ask("describe_groups", v, at=at, groups=[group], **more)


def every_request(s: ClusterStory, m: Member, at: int) -> None:
    """Send each kind of request of a member or an operator to a node, which may be the group's coordinator."""
    m.heartbeat(at)
    m.commit(8, at)
    m.commit(8, at, 9)
    m.sync(at)
    m.join(at)
    m.join(at, 2)
    m.leave(at)
    m.leave(at, 2)
    fetch_offsets(s, m.group, m.t, at)
    describe(s, m.group, at)
    s.ask("delete_groups", 2, at=at, groups_names=[m.group])
    rows = [{"name": m.t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, at=at, group_id=m.group, topics=rows)
    s.ask("list_groups", 5, at=at)
    s.ask("consumer_group_describe", 1, at=at, group_ids=[m.group])
    heartbeat(s, m.group, str(uuid.UUID(int=7)), 0, at, m.t)


def heartbeat(
    s: ClusterStory, group: str, member_id: str, epoch: int, at: int, t: Topic, **more: Any
) -> Body:
    """Send a ConsumerGroupHeartbeat with all fields."""
    body: Body = {"rebalance_timeout": 60_000, "subscribed_topic_names": [t.name], "topic_partitions": []}
    return s.ask(
        "consumer_group_heartbeat",
        1,
        at=at,
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        **(body | more),
    )


@story("groups")
def at_another_node(s: ClusterStory) -> None:
    t, group = s.topic([[2, 3]]), s.coordinated(FIRST, "g")
    m = Member(s, group, t)
    m.join(1)
    m.sync(1)
    m.commit(5, 1)
    for at in (2, 3):
        every_request(s, m, at)
        for v in (0, 3, 6):
            find(s, group, 0, at, v)
    m.heartbeat(1)
    describe(s, group, 1)
    m.leave(1)


@story("groups", "killed")
def the_coordinator_dies(s: ClusterStory) -> Iterator[None]:
    """Members continue with the new coordinator, which has their committed offsets."""
    t, group, empty = s.topic([[2, 3]]), s.coordinated(FIRST, "g"), s.coordinated(FIRST, "offsets")
    m, simple = Member(s, group, t), Member(s, empty, t)
    m.join(1)
    m.sync(1)
    m.commit(5, 1)
    simple.commit(7, 1)
    yield
    s.await_coordinator(group, 0, 2)
    for at in (2, 3):
        find(s, group, 0, at)
        describe(s, group, at)
    m.heartbeat(2)
    m.heartbeat(3)
    m.sync(2)
    m.commit(6, 2)
    for each in (group, empty):
        fetch_offsets(s, each, t, 2)
    m.join(2, note="again")
    m.sync(2)
    m.heartbeat(2)
    s.ask("list_groups", 5, at=2)
    s.ask("list_groups", 5, at=3)
    yield
    m.heartbeat(1)
    describe(s, group, 1)
    fetch_offsets(s, group, t, 1)
    m.commit(9, 2)
    m.leave(2)
    fetch_offsets(s, group, t, 2)
    s.ask("delete_groups", 2, at=2, groups_names=[group, empty])


@story("groups", "killed")
def a_consumer_groups_coordinator_dies(s: ClusterStory) -> Iterator[None]:
    """In a KIP-848 group, members keep their epochs and their partitions."""
    t, group = s.topic([[2, 3], [3, 2]]), s.coordinated(FIRST, "g")
    one = "AAAAAAAAAAAAAAAAAAAAAQ"
    s.await_coordinator(group, 0, 1)
    owned = [{"topic_id": t.id, "partitions": [0, 1]}]
    heartbeat(s, group, one, 0, 1, t)
    s.until(lambda: is_reconciled(s, group, one, 1), "the member has its partitions")
    heartbeat(s, group, one, epoch_of(s, group, one, 1), 1, t, topic_partitions=owned)
    yield
    s.await_coordinator(group, 0, 2)
    epoch = epoch_of(s, group, one, 2)
    heartbeat(s, group, one, epoch, 2, t, topic_partitions=owned)
    heartbeat(s, group, one, epoch, 3, t, topic_partitions=owned)
    heartbeat(s, group, one, epoch + 1, 2, t, topic_partitions=owned)
    for at in (2, 3):
        s.ask("consumer_group_describe", 1, at=at, group_ids=[group])
    rows = [
        {"partition_index": 0, "committed_offset": 3, "committed_metadata": "", "committed_leader_epoch": -1}
    ]
    for commit_epoch in (epoch, epoch - 1, epoch + 1):
        s.ask(
            "offset_commit",
            9,
            at=2,
            group_id=group,
            member_id=one,
            generation_id_or_member_epoch=commit_epoch,
            topics=[{"name": t.name, "partitions": rows}],
        )
    yield
    heartbeat(s, group, one, epoch, 1, t, topic_partitions=owned)
    heartbeat(s, group, one, -1, 2, t)


def described(s: ClusterStory, group: str, at: int) -> Body:
    return s.look(at, "consumer_group_describe", 1, group_ids=[group])["groups"][0]


def is_reconciled(s: ClusterStory, group: str, member_id: str, at: int) -> bool:
    """Whether the member has got its partitions."""
    epoch = epoch_of(s, group, member_id, at)
    body = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": -1}
    s.look(at, "consumer_group_heartbeat", 1, **body)
    rows = [row for row in described(s, group, at)["members"] if row["member_id"] == member_id]
    return bool(rows) and bool(rows[0]["assignment"]["topic_partitions"])


def epoch_of(s: ClusterStory, group: str, member_id: str, at: int) -> int:
    rows = [row for row in described(s, group, at)["members"] if row["member_id"] == member_id]
    return int(rows[0]["member_epoch"])
