"""ACLs, with an authorizer that allows everyone to use resources without ACLs, so that other stories need no principal.

For ACLs with a host, a client connects from another address of this machine.
"""

from __future__ import annotations

from typing import Any

from tests.differential.story import Body, Story, Unanswered, story
from tests.support import raw
from tests.support.deadlines import Deadline

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL, READ, WRITE, CREATE, ALTER, DESCRIBE = 2, 3, 4, 5, 7, 8
DENY, ALLOW = 2, 3
UNKNOWN_CODE = 99
OTHER = "127.0.0.2"
NO_NETWORKS = """
    10.0.0.0/33 10.0.256.0/8 10.0.0/8 10.0.0.0/255.0.0.0 10.0.0.0/ / a/b
    ::/129 ::/ ::/-1 12345::/16 ::ffff:10.0.0.0/104 [::1/64
"""
NETWORKS = """
    10.1.2.3/8 10.0.0.0/8 010.0.0.0/08 0.0.0.0/0 2001:DB8::/32 2001:db8::/32 [::1]/128 fe80::1%1/64 ::/0
"""
HOSTS = """
    127.0.0.3/31 127.0.0.0/31 127.0.0.0/30 127.1.2.3/8 0.0.0.0/0 128.0.0.0/8 127.0.0.2/32 ::/0 garbage 127.0.0.0
"""


def acl(name: str, **changes: Any) -> Body:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    } | changes


def wanted(**changes: Any) -> Body:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    } | changes


def create(s: Story, note: str, *acls: Body, v: int = 3, on: str = "main") -> None:
    s.try_ask("create_acls", v, creations=list(acls), note=note, on=on)


def caught_up(s: Story) -> None:
    """Wait until the broker has read all changes, as Kafka's controller responds before that.

    The function creates and deletes an ACL: records are read in order, so earlier changes are visible when this ACL is.
    """
    mark = acl(s.name("mark"), resource_type=USER)
    found = wanted(resource_name_filter=mark["resource_name"])
    s.quiet("create_acls", 3, creations=[mark])
    _await(s, found, 1)
    s.quiet("delete_acls", 3, filters=[found])
    _await(s, found, 0)


def _await(s: Story, found: Body, count: int) -> None:
    deadline = Deadline()
    while len(s.quiet("describe_acls", 3, retry=(), **found)["resources"]) != count:
        if deadline.is_over:
            raise Unanswered("the broker does not read the ACLs")


def describe(s: Story, note: str, v: int = 3, **changes: Any) -> None:
    """Send DescribeAcls, and omit the ACLs of other stories."""
    caught_up(s)
    answer = s.quiet("describe_acls", v, retry=(), **wanted(**changes))
    answer["resources"].sort(
        key=lambda each: (each["resource_type"], each["resource_name"], each["pattern_type"])
    )
    for each in answer["resources"]:
        each["acls"].sort(key=str)
    s.put(f"describe_acls v{v} ({note})", s.normal.value(answer, "", False))


def delete(s: Story, note: str, *filters: Body, v: int = 3) -> None:
    """Send DeleteAcls. Results keep the order of the filters; the ACLs that one filter has deleted are sorted."""
    answer = s.quiet("delete_acls", v, retry=(), filters=list(filters))
    for result in answer["filter_results"]:
        result["matching_acls"].sort(key=str)
    s.put(f"delete_acls v{v} ({note})", s.normal.value(answer, "", False))


def clear(s: Story) -> None:
    s.quiet("delete_acls", 3, filters=[wanted()])
    caught_up(s)


@story("acls", profile="acls")
def created_described_deleted(s: Story) -> None:
    for v in (1, 2, 3):
        name = s.name(f"v{v}")
        both = [acl(name), acl(name, host="h"), acl(name, operation=ALL, permission_type=DENY)]
        create(s, "three and one of them again", *both, acl(name), v=v)
        create(s, "again", acl(name), v=v)
        create(s, "none", v=v)
        describe(s, "by name", v, resource_name_filter=name)
        delete(s, "one", wanted(resource_name_filter=name, host_filter="h"), v=v)
        delete(s, "by two filters", wanted(resource_name_filter=name), wanted(operation=READ), v=v)
        delete(s, "none are left", wanted(resource_name_filter=name), v=v)
        delete(s, "no filter", v=v)
        describe(s, "none are left", v)
    clear(s)


@story("acls", profile="acls")
def every_kind(s: Story) -> None:
    # Without this ACL, one on the cluster would deny the client, and Kafka's own broker.
    create(
        s, "all to everyone", acl("kafka-cluster", resource_type=CLUSTER, operation=ALL, principal="User:*")
    )
    for number in range(2, 8):
        name = "kafka-cluster" if number == CLUSTER else s.name(str(number))
        for pattern in (LITERAL, PREFIXED):
            create(
                s, f"type {number}", acl(name, resource_type=number, resource_pattern_type=pattern, host="h")
            )
    for operation in range(2, 16):
        create(s, f"operation {operation}", acl(s.name("all"), operation=operation, principal="Group:a:b"))
    create(s, "a user without a name", acl(s.name("a"), principal="User:"))
    create(s, "a principal without a type", acl(s.name("a"), principal=":a"))
    create(s, "no host", acl(s.name("a"), host=""))
    describe(s, "all")
    clear(s)


@story("acls", profile="acls")
def refused(s: Story) -> None:
    wrong = (
        {"resource_type": UNKNOWN_CODE},
        {"resource_pattern_type": UNKNOWN_CODE},
        {"operation": UNKNOWN_CODE},
        {"permission_type": UNKNOWN_CODE},
        {"resource_type": CLUSTER},
        {"resource_type": CLUSTER, "resource_name": ""},
        {"resource_name": ""},
        {"resource_name": "", "operation": UNKNOWN_CODE},
        {"principal": "alice"},
        {"principal": ""},
        {"principal": "alice", "operation": UNKNOWN_CODE},
    )
    for changes in wrong:
        create(s, f"{changes}", acl(s.name("t")) | changes)
    create(s, "one of two", acl(s.name("t"), principal="?"), acl(s.name("u")))
    for changes in (
        {"resource_type": ANY},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"permission_type": ANY},
    ):
        create(s, f"for filters: {changes}", acl(s.name("v")) | changes, acl(s.name("v")))
    create(s, "a name of 300 letters", acl("n" * 300, resource_type=GROUP))
    describe(s, "what is there")
    for changes in wrong[:2]:
        names = {
            "resource_type": "resource_type_filter",
            "resource_pattern_type": "pattern_type_filter",
        }
        delete(s, f"{changes}", wanted(**{names[name]: code for name, code in changes.items()}))
    delete(s, "unknown operation, and a good one", wanted(operation=UNKNOWN_CODE), wanted(operation=WRITE))
    delete(s, "unknown permission", wanted(permission_type=UNKNOWN_CODE))
    for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        describe(s, f"unknown {name}", **{name: UNKNOWN_CODE})
    clear(s)


@story("acls", profile="acls")
def code_unknown(s: Story) -> None:
    for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        create(s, f"{field} 0", acl(s.name("t")), acl(s.name("u"), **{field: 0}))
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        s.try_ask("describe_acls", 3, note=f"{field} 0", **wanted(**{field: 0}))
        s.try_ask("delete_acls", 3, note=f"{field} 0", filters=[wanted(**{field: 0})])
    describe(s, "none")


@story("acls", profile="acls")
def filters(s: Story) -> None:
    orders = s.name("orders")
    create(
        s,
        "several",
        acl(orders),
        acl(orders[:-2], resource_pattern_type=PREFIXED),
        acl(orders, resource_pattern_type=PREFIXED, permission_type=DENY),
        acl(f"{orders}-", resource_pattern_type=PREFIXED),
        acl("*", principal="User:*"),
        acl(orders, resource_type=GROUP, operation=DESCRIBE, host="h"),
    )
    chosen: tuple[Body, ...] = (
        {},
        {"resource_type_filter": GROUP},
        {"resource_name_filter": orders},
        {"resource_name_filter": orders, "pattern_type_filter": LITERAL},
        {"resource_name_filter": orders, "pattern_type_filter": PREFIXED},
        {"resource_name_filter": orders, "pattern_type_filter": MATCH},
        {"resource_name_filter": orders, "pattern_type_filter": MATCH, "resource_type_filter": TOPIC},
        {"pattern_type_filter": MATCH},
        {"resource_name_filter": "*"},
        {"resource_name_filter": "*", "pattern_type_filter": MATCH},
        {"resource_name_filter": ""},
        {"principal_filter": "User:*"},
        {"principal_filter": "User:bob"},
        {"principal_filter": ""},
        {"host_filter": "*"},
        {"host_filter": "h"},
        {"operation": ALL},
        {"operation": DESCRIBE},
        {"permission_type": DENY},
    )
    for changes in chosen:
        describe(s, f"{changes}".replace(s.prefix, "~"), **changes)
    for changes in reversed(chosen):
        delete(s, f"{changes}".replace(s.prefix, "~"), wanted(**changes))
    clear(s)


def from_another_host(s: Story) -> str:
    s.wires["other"] = raw.Wire(s.host, s.port, source=OTHER)
    return "other"


@story("acls", profile="acls")
def without_the_right(s: Story) -> None:
    other = from_another_host(s)
    mine: Body = {"principal": "User:ANONYMOUS"}
    of_cluster = mine | {"resource_type": CLUSTER}
    create(
        s,
        "all to everyone, nothing to another host",
        acl("kafka-cluster", operation=ALL, **of_cluster),
        acl("kafka-cluster", operation=ALL, permission_type=DENY, **of_cluster | {"host": OTHER}),
    )
    caught_up(s)
    create(s, "elsewhere", acl(s.name("t")), acl(""), on=other)
    s.ask("describe_acls", 3, on=other, **wanted())
    s.ask("delete_acls", 3, on=other, filters=[wanted(), wanted(operation=UNKNOWN_CODE)])
    s.ask("describe_cluster", 0, on=other, include_cluster_authorized_operations=True)
    s.ask("describe_cluster", 0, include_cluster_authorized_operations=True)
    clear(s)
    s.ask("describe_acls", 3, on=other, **wanted())


@story("acls", profile="acls")
def rights_of_a_topic(s: Story) -> None:
    """A created or deleted ACL applies to the next request."""
    other, topic, mine = from_another_host(s), s.topic(), "User:ANONYMOUS"
    body: Body = {
        "topics": [{"name": topic.name}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }

    def operations(note: str) -> None:
        caught_up(s)
        for on in ("main", other):
            row = s.quiet("metadata", 12, retry=(), on=on, **body)["topics"][0]
            s.put(f"metadata v12 ({note}, {on})", [row["error_code"], row["topic_authorized_operations"]])

    operations("no ACL")
    for note, changes in (
        ("of alice", {}),
        ("read", {"principal": mine}),
        ("alter configs by everyone", {"principal": "User:*", "operation": 11}),
        ("all by prefix, from elsewhere", {"principal": mine, "operation": ALL, "host": OTHER}),
        ("write is denied", {"principal": mine, "operation": WRITE, "permission_type": DENY}),
        ("describe is denied", {"principal": mine, "operation": DESCRIBE, "permission_type": DENY}),
    ):
        is_prefix = "prefix" in note
        name = s.name() if is_prefix else topic.name
        create(s, note, acl(name, resource_pattern_type=PREFIXED if is_prefix else LITERAL, **changes))
        operations(note)
    delete(s, "what denies", wanted(permission_type=DENY))
    operations("nothing is denied")
    clear(s)
    operations("no ACL")


@story("acls", profile="acls")
def networks(s: Story) -> None:
    """KIP-1276: a host in CIDR notation is stored as it is written."""
    name = s.name("t")
    for host in NO_NETWORKS.split():
        create(s, f"{host!r}", acl(name, host=host))
    create(s, "a bad principal, too", acl(name, host="a/b", principal="alice"))
    create(s, "no slash", acl(name, host="garbage"))
    for host in NETWORKS.split():
        create(s, f"{host!r}", acl(name, host=host))
    describe(s, "all")
    for host in ("10.0.0.1", "10.0.0.0/8", "2001:db8:0::/32"):
        describe(s, f"of host {host}", host_filter=host)
    delete(s, "by host", wanted(host_filter="10.0.0.0/8"), wanted(host_filter="10.0.0.0"))
    clear(s)


@story("acls", profile="acls")
def rights_of_a_network(s: Story) -> None:
    """The client has the address 127.0.0.1 or, on the other connection, 127.0.0.2."""
    other, topic, mine = from_another_host(s), s.topic(), "User:ANONYMOUS"
    body: Body = {
        "topics": [{"name": topic.name}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    for host in HOSTS.split():
        create(s, f"{host}", acl(topic.name, principal=mine, host=host))
        caught_up(s)
        for on in ("main", other):
            row = s.quiet("metadata", 12, retry=(), on=on, **body)["topics"][0]
            s.put(f"metadata v12 ({host}, {on})", [row["error_code"], row["topic_authorized_operations"]])
        s.quiet("delete_acls", 3, filters=[wanted(host_filter=host)])
    clear(s)
