"""Share groups on several nodes: requests to the wrong node, leaders and coordinators that move or die."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.differential.cluster.stories.transactions import find
from tests.differential.cluster.story import PLACED, ClusterStory, assignments, story
from tests.differential.stories.alter_configs import SET, resource
from tests.differential.stories.share_clients import (
    ACCEPT,
    GROUP_RESOURCE,
    REJECT,
    RELEASE,
    Member,
    await_assigned,
    key_of,
    silent,
)
from tests.differential.story import Body, Topic
from tests.support.deadlines import Deadline

ON_1, ON_2, ON_3 = (tuple(nodes for nodes in PLACED if nodes[0] == node) for node in (1, 2, 3))
"""Places of a coordinator's partition. One of them may be too few: half of the keys of a group have an even hash."""
WAITS_MS = 5_000
STATE_TOPIC = "__share_group_state"
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.assignment.interval.ms": "0",
    "share.record.lock.duration.ms": "60000",
}


def state_topic(s: ClusterStory) -> None:
    """Create the topic of the share coordinators, if no other story has, and elect its preferred leaders."""
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
    }
    row = {
        "name": STATE_TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments(PLACED),
        "configs": [{"name": name, "value": value} for name, value in configs.items()],
    }
    s.quiet("create_topics", 7, retry=(), topics=[row], timeout=30_000)
    for index, nodes in enumerate(PLACED):
        s.await_isr(STATE_TOPIC, set(nodes), index)
    rows = [{"topic": STATE_TOPIC, "partitions": list(range(len(PLACED)))}]
    s.quiet("elect_leaders", 2, retry=(), election_type=0, topic_partitions=rows, timeout=30_000)
    for index, nodes in enumerate(PLACED):
        s.await_leader(STATE_TOPIC, nodes[0], index)


def configure(s: ClusterStory, group: str) -> None:
    """Set configs of a group, and wait until all nodes have them."""
    row = resource(GROUP_RESOURCE, group, *((name, SET, value) for name, value in CONFIGS.items()))
    s.quiet("incremental_alter_configs", 1, retry=(), resources=[row], validate_only=False)
    wanted = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": list(CONFIGS)}

    def has_all(at: int) -> bool:
        rows = s.look(at, "describe_configs", 4, resources=[wanted])["results"][0]["configs"]
        return {each["name"]: each["value"] for each in rows} == CONFIGS

    s.until(lambda: all(map(has_all, s.side.reachable())), f"all nodes have the configs of {group}")


class On(Member):
    """A member that fetches at one node and sends heartbeats to the group's coordinator."""

    def __init__(
        self, s: ClusterStory, group: str, leader: int, coordinator: int, member_id: str = "m"
    ) -> None:
        super().__init__(s, member_id)
        self.group = group
        self.move(leader)
        self.coordinator = f"{coordinator} {member_id}"

    def move(self, leader: int) -> None:
        """Go on at another node, without a session."""
        self.on = f"{leader} {self.id}"
        self.session = 0


Places = Sequence[Sequence[int]]


def joined(s: ClusterStory, t: Topic, leader: int, by: Places, share_coordinator: Places) -> On:
    """A member that has been assigned the topic's only partition."""
    state_topic(s)
    group = s.share_coordinated(t, by, share_coordinator)
    configure(s, group)
    s.await_coordinator(group, 0, by[0][0])
    await_share_coordinator(s, group, t, share_coordinator[0][0])
    m = On(s, group, leader, by[0][0])
    await_assigned(s, m, 1, member_epoch=0, subscribed_topic_names=[t.name])
    return m


def await_share_coordinator(s: ClusterStory, group: str, t: Topic, node: int) -> None:
    def code() -> int:
        rows = [{"topic_id": t.id, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        answer = s.look(node, "read_share_group_state_summary", 0, group_id=group, topics=rows)
        return int(answer["results"][0]["partitions"][0]["error_code"])

    s.until(lambda: code() == 0, f"{node} has the state of {group}")


def filled(s: ClusterStory, replicas: Sequence[int], *sizes: int) -> Topic:
    t = s.topic([list(replicas)])
    for size in sizes:
        s.produce(t, s.batch(size), at=replicas[0], quiet=True)
    return t


def lead(s: ClusterStory, t: Topic, replicas: Sequence[int]) -> None:
    """Make the first of these replicas the leader."""
    rows = [{"name": t.name, "partitions": [{"partition_index": 0, "replicas": list(replicas)}]}]
    s.quiet("alter_partition_reassignments", 1, retry=(), topics=rows, timeout=30_000)

    def order() -> bool:
        found = s.partitions(t, s.home)[0]
        return list(found["replica_nodes"]) == list(replicas)

    s.until(order, f"{t.name} has its replicas in the order {replicas}")
    chosen = [{"topic": t.name, "partitions": [0]}]
    s.quiet("elect_leaders", 2, retry=(), election_type=0, topic_partitions=chosen, timeout=30_000)
    s.await_leader(t, replicas[0])


def offsets(s: ClusterStory, note: str, m: On, t: Topic, at: int) -> Body:
    row = {"group_id": m.group, "topics": [{"topic_name": t.name, "partitions": [0]}]}
    return s.ask("describe_share_group_offsets", 1, at=at, note=note, groups=[row])


@story("share-groups", "share")
def at_another_node(s: ClusterStory) -> None:
    t = filled(s, (1, 2, 3), 4)
    m = joined(s, t, 1, ON_2, ON_3)
    for at in (2, 3):
        other = On(s, m.group, at, at, f"m{at}")
        other.nothing("opens a session", t)
        other.nothing("again", acks={t: [(0, 0, ACCEPT)]})
        other.acknowledge("accepts", {t: [(0, 0, ACCEPT)]})
    for at in (1, 3):
        body = m.body(member_epoch=0, subscribed_topic_names=[t.name])
        s.ask("share_group_heartbeat", 1, at=at, **body)
        s.ask("share_group_describe", 1, at=at, group_ids=[m.group])
        offsets(s, "", m, t, at)
        s.ask(
            "describe_share_group_offsets",
            1,
            at=at,
            note="all",
            groups=[{"group_id": m.group, "topics": None}],
        )
        rows = [{"topic_name": t.name, "partitions": [{"partition_index": 0, "start_offset": 1}]}]
        s.ask("alter_share_group_offsets", 0, at=at, group_id=m.group, topics=rows)
        s.ask("delete_share_group_offsets", 0, at=at, group_id=m.group, topics=[{"topic_name": t.name}])
        s.ask("delete_groups", 2, at=at, groups_names=[m.group])
    for at in (1, 2, 3):
        find(s, m.group, 0, at, 6)
        found = s.quiet("find_coordinator", 6, at=at, key_type=2, coordinator_keys=[key_of(m.group, t, 0)])
        s.put(
            f"share coordinator at {at}",
            [[row["node_id"], row["error_code"]] for row in found["coordinators"]],
        )
        s.ask("list_groups", 5, at=at)
    for at in (1, 2):
        fields: Body
        for api, v, fields in (
            ("initialize_share_group_state", 0, {"state_epoch": 3, "start_offset": 0}),
            ("read_share_group_state", 0, {"leader_epoch": 0}),
            ("write_share_group_state", 1, {"state_epoch": 3, "leader_epoch": 0, "start_offset": 0}),
            ("read_share_group_state_summary", 1, {"leader_epoch": 0}),
            ("delete_share_group_state", 0, {}),
        ):
            states = [{"topic_id": t.id, "partitions": [{"partition": 0} | fields]}]
            s.ask(api, v, at=at, group_id=m.group, topics=states)


@story("share-groups", "share")
def the_leader_moves(s: ClusterStory) -> None:
    """Locks end with the leader, deliveries are counted as far as they were written."""
    t = filled(s, (1, 2, 3), 8)
    m = joined(s, t, 1, ON_2, ON_3)
    waiting = On(s, m.group, 1, 2, "waiting")
    m.fetch("all, at node 1", t)
    m.acknowledge("some", {t: [(0, 1, ACCEPT), (3, 3, RELEASE), (5, 5, REJECT)]})
    m.fetch("the released one")
    pending = waiting.begin_fetch("waits at node 1", t, max_wait=WAITS_MS)
    silent(s, pending, "all is acquired")
    lead(s, t, (2, 1, 3))
    silent(s, pending, "node 2 leads")
    s.take(pending)
    m.acknowledge("at the former leader", {t: [(2, 2, ACCEPT)]})
    m.nothing("at the former leader", acks={t: [(4, 4, ACCEPT)]})
    old = m.session
    m.move(2)
    m.nothing("with the former session", share_session_epoch=old)
    m.fetch("all, at node 2", t)
    m.acknowledge("what it had", {t: [(2, 4, ACCEPT), (6, 7, RELEASE)]})
    offsets(s, "at node 2", m, t, 2)
    lead(s, t, (1, 2, 3))
    m.nothing("at node 2 again")
    m.on, m.session = "1 m", old
    m.fetch("the first session is still there", t)
    m.acknowledge("all", {t: [(6, 7, ACCEPT)]})
    offsets(s, "at the end", m, t, 2)


@story("share-groups", "share-killed")
def the_leader_dies(s: ClusterStory) -> Iterator[None]:
    t = filled(s, (1, 2, 3), 8)
    m = joined(s, t, 1, ON_2, ON_3)
    m.fetch("all, at node 1", t)
    m.acknowledge("some", {t: [(0, 1, ACCEPT), (3, 3, RELEASE), (5, 5, REJECT)]})
    m.fetch("the released one")
    yield
    s.await_leader(t, 2)
    old = m.session
    m.move(2)
    m.acknowledge("with the former session", {t: [(2, 2, ACCEPT)]}, share_session_epoch=old)
    m.nothing("with the former session", share_session_epoch=old)
    m.fetch("all, at node 2", t)
    m.acknowledge("some", {t: [(2, 2, ACCEPT)]})
    offsets(s, "node 1 is dead", m, t, 2)
    yield
    s.await_isr(t, {1, 2, 3})
    other = On(s, m.group, 1, 2, "other")
    other.nothing("at node 1, which is back", t)
    m.acknowledge("the rest", {t: [(3, 4, ACCEPT), (6, 7, ACCEPT)]})
    offsets(s, "at the end", m, t, 2)


@story("share-groups", "share-killed")
def the_share_coordinator_dies(s: ClusterStory) -> Iterator[None]:
    """Acknowledgements wait until there is a share coordinator again."""
    t = filled(s, (2, 3), 6)
    m = joined(s, t, 2, ON_3, [(1, 2, 3)])
    m.fetch("all", t)
    m.acknowledge("some", {t: [(0, 1, ACCEPT)]})
    yield
    m.acknowledge("node 1 is dead", {t: [(2, 3, ACCEPT)]})
    found = s.quiet("find_coordinator", 6, at=3, key_type=2, coordinator_keys=[key_of(m.group, t, 0)])
    s.put("share coordinator", [[row["node_id"], row["error_code"]] for row in found["coordinators"]])
    offsets(s, "by the next share coordinator", m, t, 3)
    m.end_session()
    m.until_acquired("released", t)
    yield
    m.acknowledge("node 1 is back", {t: [(4, 5, ACCEPT)]})
    offsets(s, "at the end", m, t, 3)


@story("share-groups", "share-killed")
def the_group_coordinator_dies(s: ClusterStory) -> Iterator[None]:
    t = filled(s, (2, 3), 6)
    m = joined(s, t, 2, [(1, 2, 3)], ON_3)
    m.fetch("all", t)
    m.acknowledge("some", {t: [(0, 1, ACCEPT)]})
    yield
    s.await_coordinator(m.group, 0, 2)
    m.coordinator = "2 m"
    for at in (2, 3):
        s.ask("share_group_heartbeat", 1, at=at, **m.body())
        s.ask("share_group_describe", 1, at=at, group_ids=[m.group])
    m.acknowledge("its session is not changed", {t: [(2, 3, ACCEPT)]})
    offsets(s, "by the next coordinator", m, t, 2)
    m.leave()
    yield
    s.ask("share_group_describe", 1, at=1, group_ids=[m.group])
    s.ask("share_group_describe", 1, at=2, group_ids=[m.group])


@story("share-groups", "share-stopped")
def the_leader_stops(s: ClusterStory) -> Iterator[None]:
    """A controlled shutdown moves the leader first."""
    t = filled(s, (1, 2, 3), 4)
    m = joined(s, t, 1, ON_2, ON_3)
    m.fetch("all, at node 1", t)
    m.acknowledge("some", {t: [(0, 0, ACCEPT)]})
    yield
    s.await_leader(t, 2)
    m.move(2)
    m.fetch("all, at node 2", t)
    offsets(s, "node 1 has stopped", m, t, 2)
    yield
    m.acknowledge("all", {t: [(1, 3, ACCEPT)]})


@story("share-groups", "share-stopped")
def both_coordinators_stop(s: ClusterStory) -> Iterator[None]:
    t = filled(s, (2, 3), 4)
    m = joined(s, t, 2, [(1, 2, 3)], ON_1)
    m.fetch("all", t)
    m.acknowledge("some", {t: [(0, 0, ACCEPT)]})
    yield
    s.await_coordinator(m.group, 0, 2)
    m.acknowledge("node 1 has stopped", {t: [(1, 1, ACCEPT)]})
    m.coordinator = "2 m"
    m.beat("at the next coordinator")
    offsets(s, "at the next coordinator", m, t, 2)
    yield
    m.acknowledge("node 1 is back", {t: [(2, 3, ACCEPT)]})
    deadline = Deadline()
    while m.s.quiet("share_group_heartbeat", 1, on=m.coordinator, **m.body())["error_code"]:
        deadline.check("the coordinator answers")
    m.leave()
