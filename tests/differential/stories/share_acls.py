"""What a client of share groups needs (KIP-932): with an ACL that allows somebody else, or less than a request needs."""

from __future__ import annotations

from collections.abc import Sequence

from tests.differential.stories.acls import (
    ALL,
    CLUSTER,
    DENY,
    DESCRIBE,
    GROUP,
    OTHER,
    READ,
    TOPIC,
    acl,
    caught_up,
    clear,
    create,
    wanted,
)
from tests.differential.stories.share_clients import (
    ACCEPT,
    GROUP_RESOURCE,
    Member,
    alter_offsets,
    configured,
    delete_groups,
    delete_offsets,
    describe,
    describe_offsets,
    filled,
    joined,
    key_of,
)
from tests.differential.stories.share_state import APIS, NAMES, UNKNOWN, ask
from tests.differential.story import Story, Topic, story
from tests.support import raw

PROFILE = "share-acls"
DELETE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = 6, 9, 10, 11
ME = "User:ANONYMOUS"


def allowed(s: Story, name: str, resource_type: int, *operations: int) -> None:
    """Allow the client only these operations: the ACLs of a resource are those, and one of another principal."""
    found = wanted(resource_type_filter=resource_type, resource_name_filter=name, pattern_type_filter=3)
    s.quiet("delete_acls", 3, retry=(), filters=[found])
    rows = [acl(name, resource_type=resource_type, operation=each, principal=ME) for each in operations]
    rows.append(acl(name, resource_type=resource_type, operation=READ))
    s.quiet("create_acls", 3, retry=(), creations=rows)
    caught_up(s)


def of_members(s: Story, note: str, m: Member, t: Topic) -> None:
    s.ask("find_coordinator", 6, note=note, key_type=0, coordinator_keys=[m.group])
    Member(s, "new").join(f"joins, {note}", t)
    m.beat(f"subscribes, {note}", subscribed_topic_names=[t.name])
    m.beat(f"steady, {note}")
    m.nothing(f"opens a session, {note}", t, share_session_epoch=0)
    m.nothing(f"fetches, {note}", acks={t: [(0, 0, ACCEPT)]})
    m.acknowledge(note, {t: [(1, 1, ACCEPT)]})


def of_operators(s: Story, note: str, t: Topic) -> None:
    describe(s, note)
    describe(s, f"with operations, {note}", include_authorized_operations=True)
    describe_offsets(s, f"all, {note}")
    describe_offsets(s, f"named, {note}", (t.name, [0]), (s.name("none"), [0]))
    alter_offsets(s, note, (t.name, 0, 1), (s.name("none"), 0, 1))
    delete_offsets(s, note, t.name, s.name("none"))
    s.ask("list_groups", 5, note=note, types_filter=["share"])


@story("share-acls", PROFILE)
def rights_on_the_group(s: Story) -> None:
    t = filled(s, 4)
    m = joined(s, t)
    rights: dict[str, Sequence[int]] = {"nothing": (), "DESCRIBE": (DESCRIBE,), "READ": (READ,)}
    for note, operations in rights.items():
        allowed(s, m.group, GROUP, *operations)
        of_members(s, note, m, t)
        of_operators(s, note, t)
        delete_groups(s, note, "g")
        configured(s, note, share__delivery__count__limit="4")
        keys = {"configuration_keys": ["share.delivery.count.limit"]}
        row = {"resource_type": GROUP_RESOURCE, "resource_name": m.group} | keys
        s.ask("describe_configs", 4, note=note, resources=[row])
    Member(s, "new").leave()
    m.leave()
    rights = {
        "READ, empty": (READ,),
        "ALTER_CONFIGS and DESCRIBE_CONFIGS": (ALTER_CONFIGS, DESCRIBE_CONFIGS),
        "DELETE": (DELETE,),
    }
    for note, operations in rights.items():
        allowed(s, m.group, GROUP, *operations)
        of_operators(s, note, t)
        configured(s, note, share__delivery__count__limit="5")
        s.ask("describe_configs", 4, note=note, resources=[row])
    delete_groups(s, "DELETE", "g")
    clear(s)


@story("share-acls", PROFILE)
def rights_on_the_topic(s: Story) -> None:
    t, u = filled(s, 4), filled(s, 1)
    m = joined(s, t, u)
    m.fetch("all", t)
    for note, operations in (("nothing", ()), ("DESCRIBE", (DESCRIBE,)), ("READ", (READ,)), ("WRITE", (4,))):
        allowed(s, t.name, TOPIC, *operations)
        of_members(s, note, m, t)
        m.nothing(f"with an unknown topic id, {note}", t, UNKNOWN, share_session_epoch=0)
        m.nothing(f"with another topic, {note}", t, u, share_session_epoch=0)
        m.acknowledge(f"an unknown topic id, {note}", {UNKNOWN: [(0, 0, ACCEPT)]})
        of_operators(s, note, t)
    Member(s, "new").leave()
    m.leave()
    for note, operations in (
        ("nothing, empty", ()),
        ("DESCRIBE, empty", (DESCRIBE,)),
        ("READ, empty", (READ,)),
    ):
        allowed(s, t.name, TOPIC, *operations)
        of_operators(s, note, t)
    clear(s)


@story("share-acls", PROFILE)
def rights_on_the_cluster(s: Story) -> None:
    t = filled(s, 1)
    joined(s, t)
    everyone = acl("kafka-cluster", resource_type=CLUSTER, operation=ALL, principal="User:*")
    denied = everyone | {"operation": CLUSTER_ACTION, "host": OTHER, "permission_type": DENY}
    create(s, "all to everyone", everyone)
    create(s, "no cluster action from another address", denied)
    caught_up(s)
    s.wires["main"].close()
    s.wires["main"] = raw.Wire(s.host, s.port, source=OTHER)
    for what in NAMES:
        ask(s, what, "denied", t)
        s.ask(APIS[what], 0, note="no topics, denied", group_id=s.name("g"), topics=[])
    answer = s.quiet("find_coordinator", 6, key_type=2, coordinator_keys=[key_of(s.name("g"), t, 0)])
    s.put("find_coordinator v6", [row["error_code"] for row in answer["coordinators"]])
    clear(s)
