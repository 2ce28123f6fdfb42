"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.story import Story, Topic, story

UNKNOWN_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")
INTERNAL_SETTINGS = {
    "group.consumer.regex.refresh.interval.ms": "60000",
    "group.share.persister.class.name": "org.apache.kafka.server.share.persister.DefaultStatePersister",
    "internal.metadata.delete.delay.millis": "60000",
    "log.initial.task.delay.ms": "500",
    "producer.id.expiration.check.interval.ms": "60000",
    "remote.log.manager.task.retry.jitter": "0.20",
    "unstable.api.versions.enable": "TRUE",
    "unstable.feature.versions.enable": "True",
}
"""Settings that Kafka defines as internal, with which the broker of the profile ``noauto`` is started."""
BAD_NAMES = ["", ".", "..", "a b", "a/b", "a\x00b", "ü", "x" * 250]


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def shown(name: str) -> str:
    return repr(name) if len(name) < 20 else f"{len(name)} chars"


# -- Metadata ------------------------------------------------------------------------------------------------------


@story("metadata")
def all_topics(s: Story) -> None:
    """In Metadata v0 an empty list means all topics. From v1 on null means all, and an empty list none."""
    s.topic()
    s.topic(3)
    s.ask("metadata", 0, topics=[], note="empty")
    for v in (1, 4, 9, 12, 13):
        s.ask("metadata", v, topics=None, note="null")
        s.ask("metadata", v, topics=[], note="empty")


@story("metadata")
def unknown_names(s: Story) -> None:
    for v in (4, 8, 9, 12, 13):
        s.ask("metadata", v, topics=named(s.name("missing")), allow_auto_topic_creation=False)


@story("metadata")
def invalid_names(s: Story) -> None:
    """Metadata with an invalid name returns INVALID_TOPIC_EXCEPTION, with and without auto-creation."""
    for name in BAD_NAMES:
        for allow in (False, True):
            note = f"{shown(name)}, creation {'on' if allow else 'off'}"
            s.ask("metadata", 9, topics=named(name), allow_auto_topic_creation=allow, note=note)
    s.ask("metadata", 9, topics=named("x" * 249), allow_auto_topic_creation=False, note="249 chars")


@story("metadata")
def auto_creation(s: Story) -> None:
    """The first Metadata returns UNKNOWN_TOPIC_OR_PARTITION and no partitions; the topic is created in the background."""
    name = s.name("auto")
    s.ask("metadata", 9, topics=named(name), allow_auto_topic_creation=True, note="first")
    s.ask("metadata", 9, retry=(3, 5), topics=named(name), allow_auto_topic_creation=True, note="at last")
    for v in (0, 1, 3):
        old = s.name(f"auto{v}")
        s.ask("metadata", v, retry=(3, 5), topics=named(old), note="versions below 4 always create")


@story("metadata")
def auto_creation_of_colliding_names(s: Story) -> None:
    """A name that differs from an existing one only by . and _ is never created: it gets UNKNOWN_TOPIC_OR_PARTITION."""
    first, second = s.name("a.b"), s.name("a_b")
    s.quiet("metadata", 9, topics=named(first), allow_auto_topic_creation=True)
    s.ask("metadata", 9, topics=named(second), allow_auto_topic_creation=True, note="first")
    s.ask("metadata", 9, topics=named(second), allow_auto_topic_creation=True, note="second")


@story("metadata", "noauto")
def no_auto_creation(s: Story) -> None:
    for v in (1, 4, 12):
        s.ask("metadata", v, topics=named(s.name("x")), allow_auto_topic_creation=True)


@story("metadata")
def topic_ids(s: Story) -> None:
    t, u = s.topic(), s.topic()
    for v in (10, 12, 13):
        null_name = "" if v < 12 else None
        s.ask("metadata", v, topics=[{"topic_id": t.id, "name": null_name}], note="id")
        s.ask("metadata", v, topics=[{"topic_id": UNKNOWN_ID, "name": null_name}], note="unknown id")
    s.try_ask("metadata", 12, topics=[{"topic_id": t.id, "name": t.name}], note="id and its name")
    s.try_ask("metadata", 12, topics=[{"topic_id": t.id, "name": u.name}], note="id and another name")
    s.try_ask("metadata", 12, topics=[{"topic_id": None, "name": None}], note="neither")
    mixed = [{"topic_id": t.id, "name": None}, {"topic_id": None, "name": u.name}]
    s.try_ask("metadata", 12, topics=mixed, allow_auto_topic_creation=False, note="one by id, one by name")
    s.try_ask("metadata", 11, topics=[{"topic_id": t.id, "name": None}], note="null name below v12")
    s.try_ask("metadata", 12, topics=[{"topic_id": t.id, "name": None}] * 2, note="the same id twice")


@story("metadata")
def duplicates(s: Story) -> None:
    t = s.topic()
    for v in (1, 9, 12):
        s.ask("metadata", v, topics=named(t.name, t.name), allow_auto_topic_creation=False)
    missing = named(s.name("x"), s.name("x"))
    s.ask("metadata", 9, topics=missing, allow_auto_topic_creation=False, note="unknown twice")


@story("metadata")
def authorized_operations(s: Story) -> None:
    """Without an authorizer all operations are allowed: 3576 for topics, 8096 for the cluster. The value is
    -2147483648 if a request does not ask for operations."""
    t = s.topic()
    for v in (8, 9, 10, 11, 12):
        flags: dict[str, Any] = {
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": v < 11,
        }
        s.ask("metadata", v, topics=named(t.name), **flags)


@story("metadata")
def internal_topics(s: Story) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        answer = s.quiet("metadata", 12, topics=named(name), allow_auto_topic_creation=False)
        topic = answer["topics"][0]
        s.put(f"metadata of {name}", [topic["error_code"], topic["is_internal"], len(topic["partitions"])])
    s.ask("metadata", 9, topics=named("__not_internal_but_unknown"), allow_auto_topic_creation=False)


@story("metadata")
def many_at_once(s: Story) -> None:
    t = s.topic()
    names = named(t.name, s.name("missing"), "a/b")
    s.ask("metadata", 9, topics=names, allow_auto_topic_creation=False)


@story("metadata")
def deleted_and_made_again(s: Story) -> None:
    """A topic that is deleted and created again has a new id."""
    t = s.topic()
    s.ask("delete_topics", 6, topics=[{"name": t.name}], timeout=10000)
    s.ask("metadata", 12, topics=named(t.name), allow_auto_topic_creation=False, note="deleted")
    s.ask("metadata", 12, topics=[{"topic_id": t.id, "name": None}], note="deleted, by id")
    row = {"name": t.name, "num_partitions": 1, "replication_factor": 1}
    s.quiet("create_topics", 7, retry=(36,), topics=[row])
    s.wait_for(t.name)
    s.ask("metadata", 12, topics=named(t.name), allow_auto_topic_creation=False, note="again")


# -- CreateTopics --------------------------------------------------------------------------------------------------


def create(s: Story, note: str, v: int = 7, validate_only: bool = False, **row: Any) -> None:
    """Create one topic; the settings in the response are compared in another story."""
    topic = {"name": s.name("x"), "num_partitions": 1, "replication_factor": 1} | row
    answer = s.quiet("create_topics", v, retry=(), topics=[topic], validate_only=validate_only)
    s.put(f"create_topics v{v} ({note})", brief(s, answer["topics"]))


def brief(s: Story, topics: list[dict[str, Any]]) -> Any:
    return s.normal.answer("create_topics", [{k: v for k, v in t.items() if k != "configs"} for t in topics])


@story("create-topics")
def names(s: Story) -> None:
    for name in BAD_NAMES:
        create(s, shown(name), name=name)
    create(s, "249 chars", name=(s.name("long") + "x" * 249)[:249])
    create(s, "dots", name=s.name("a.b.c"))
    create(s, "the same with underscores", name=s.name("a_b_c"))


@story("create-topics")
def counts(s: Story) -> None:
    """A number of partitions or replicas that is 0 or below -1 is an error; -1 means the default, in every version."""
    for partitions in (0, -2):
        create(s, f"{partitions} partitions", num_partitions=partitions)
    for replicas in (0, -2, 2, 3):
        create(s, f"{replicas} replicas", replication_factor=replicas)
    for v in (2, 3, 4, 5, 7):
        create(s, "-1 and -1", v, name=s.name(f"d{v}"), num_partitions=-1, replication_factor=-1)


@story("create-topics")
def exists(s: Story) -> None:
    t = s.topic()
    for v in (2, 4, 5, 6, 7):
        create(s, "exists", v, name=t.name)
        create(s, "exists, validate only", v, validate_only=True, name=t.name)
    create(s, "internal name", name="__consumer_offsets")


@story("create-topics")
def configs(s: Story) -> None:
    """CreateTopics with invalid, unknown or null values of settings returns INVALID_CONFIG."""
    for name, value in (
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("no.such.config", "1"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", None),
        ("compression.type", "rar"),
        ("segment.bytes", "1"),
        ("min.insync.replicas", "0"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "maybe"),
        ("max.message.bytes", "-1"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ):
        create(s, f"{name}={value}", configs=[{"name": name, "value": value}])
    twice = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    create(s, "a config twice", name=s.name("twice"), configs=twice)
    good = {
        "retention.ms": "-1",
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
    }
    rows = [{"name": k, "value": v} for k, v in good.items()]
    row = {"name": s.name("good"), "num_partitions": 1, "replication_factor": 1, "configs": rows}
    s.ask("create_topics", 7, topics=[row], note="good ones")


@story("create-topics")
def assignments(s: Story) -> None:
    """CreateTopics refuses assignments together with partition or replica counts, with ids that do not run from 0,
    with unknown, repeated or missing brokers."""

    def assign(
        note: str, parts: dict[int, list[int]], partitions: int = -1, replicas: int = -1, **row: Any
    ) -> None:
        rows = [{"partition_index": p, "broker_ids": b} for p, b in parts.items()]
        create(s, note, num_partitions=partitions, replication_factor=replicas, assignments=rows, **row)

    assign("with a number of partitions", {0: [1]}, partitions=1)
    assign("with a number of replicas", {0: [1]}, replicas=1)
    assign("unknown broker", {0: [7]})
    assign("from 1 on", {1: [1]})
    assign("with a gap", {0: [1], 2: [1]})
    assign("the same broker twice", {0: [1, 1]})
    assign("no broker", {0: []})
    assign("good", {0: [1], 1: [1]}, name=s.name("good"))


@story("create-topics")
def several(s: Story) -> None:
    """CreateTopics reports errors by topic. A duplicate name returns INVALID_REQUEST."""
    row = {"num_partitions": 1, "replication_factor": 1}
    rows = [row | {"name": s.name("a")}, row | {"name": "a/b"}, row | {"name": s.name("b")}]
    answer = s.quiet("create_topics", 7, retry=(), topics=rows)
    s.put("create_topics v7 (one of three is bad)", brief(s, answer["topics"]))
    rows = [row | {"name": s.name("c")}, row | {"name": s.name("c")}, row | {"name": s.name("d")}]
    answer = s.quiet("create_topics", 7, retry=(), topics=rows)
    s.put("create_topics v7 (a name twice)", brief(s, answer["topics"]))
    s.ask("create_topics", 7, topics=[], note="none")
    s.ask("create_topics", 2, topics=[], note="none")


@story("create-topics")
def too_many_partitions_of_topics(s: Story) -> None:
    """A request may create 10,000 partitions in all. What is not allowed is refused before anything else is checked."""
    for note, counts in (
        ("9,999", (9_999,)),
        ("10,000", (10_000,)),
        ("10,001", (10_001,)),
        ("10,001 of two", (5_000, 5_001)),
        ("many", (2**31 - 1, 2**31 - 1)),
        ("many, and invalid counts", (20_000, 0, -3)),
        ("a negative count", (9_999, -3)),
    ):
        rows = [
            {"name": s.name(f"t{number}"), "num_partitions": count, "replication_factor": 1}
            for number, count in enumerate(counts)
        ]
        row = {"name": "a/b", "num_partitions": 1, "replication_factor": 1}
        answer = s.quiet("create_topics", 7, retry=(), topics=[*rows, row], validate_only=True)
        s.put(f"create_topics v7 ({note})", brief(s, answer["topics"]))


@story("create-topics")
def validate_only(s: Story) -> None:
    """The broker makes all checks and creates nothing; the response has a topic id all the same."""
    name = s.name("x")
    row = {"name": name, "num_partitions": 3, "replication_factor": 1}
    for v in (2, 5, 7):
        s.ask("create_topics", v, topics=[row], validate_only=True)
    s.ask("metadata", 9, topics=named(name), allow_auto_topic_creation=False)


# -- DeleteTopics --------------------------------------------------------------------------------------------------


@story("delete-topics")
def by_name(s: Story) -> None:
    t, u = s.topic(), s.topic()
    for v in (1, 3, 4, 5):
        s.ask("delete_topics", v, topic_names=[s.name("missing")], timeout=10000, note="unknown")
        s.ask("delete_topics", v, topic_names=["a/b", ""], timeout=10000, note="invalid names")
    s.ask("delete_topics", 5, topic_names=[t.name, t.name, s.name("missing")], timeout=10000, note="twice")
    s.ask("delete_topics", 1, topic_names=[u.name], timeout=10000)
    s.ask("delete_topics", 5, topic_names=[u.name], timeout=10000, note="gone")
    s.ask("delete_topics", 5, topic_names=[], timeout=10000, note="none")


@story("delete-topics")
def by_id(s: Story) -> None:
    t, u = s.topic(), s.topic()

    def delete(note: str, *rows: dict[str, Any]) -> None:
        s.try_ask("delete_topics", 6, topics=rows, timeout=10000, note=note)

    delete("unknown id", {"topic_id": UNKNOWN_ID, "name": None})
    delete("unknown name", {"topic_id": None, "name": s.name("missing")})
    delete("name and id", {"topic_id": t.id, "name": t.name})
    delete("neither", {"topic_id": None, "name": None})
    delete("by id and by name", {"topic_id": t.id, "name": None}, {"topic_id": None, "name": t.name})
    delete("an id twice", {"topic_id": t.id, "name": None}, {"topic_id": t.id, "name": None})
    delete("id", {"topic_id": u.id, "name": None})
    delete("gone", {"topic_id": u.id, "name": None})


@story("delete-topics", "noauto")
def switched_off(s: Story) -> None:
    t = s.topic()
    for v in (1, 3, 5):
        s.try_ask("delete_topics", v, topic_names=[t.name], timeout=10000)
    s.try_ask("delete_topics", 6, topics=named(t.name), timeout=10000)


@story("delete-topics")
def what_others_say_then(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(1))
    s.quiet("delete_topics", 6, topics=named(t.name), timeout=10000)
    s.produce(t, s.batch(1), retry=(6,))
    s.produce(t, s.batch(1), v=13, retry=(6,))
    s.fetch(t, retry=(6,))
    s.fetch(t, v=13, retry=(6,))


# -- CreatePartitions ----------------------------------------------------------------------------------------------


@story("create-partitions")
def counts_of_partitions(s: Story) -> None:
    t = s.topic(2)

    def grow(note: str, v: int = 3, only: bool = False, **row: Any) -> None:
        topic = {"name": t.name, "count": 3, "assignments": None} | row
        s.ask("create_partitions", v, topics=[topic], timeout=10000, validate_only=only, note=note)

    for count in (2, 1, 0, -1):
        grow(f"to {count}", count=count)
    grow("unknown topic", name=s.name("missing"))
    grow("invalid name", name="a/b")
    grow("internal topic", name="__transaction_state", count=49)
    grow("too many assignments", assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
    grow("no assignments", assignments=[])
    grow("unknown broker", assignments=[{"broker_ids": [9]}])
    grow("a broker twice", assignments=[{"broker_ids": [1, 1]}])
    grow("no broker", assignments=[{"broker_ids": []}])
    grow("validate only", only=True)
    grow("assigned", assignments=[{"broker_ids": [1]}])
    grow("v0, the same again", v=0)
    s.ask("metadata", 9, topics=named(t.name))
    rows = [
        {"name": t.name, "count": 4, "assignments": None},
        {"name": t.name, "count": 5, "assignments": None},
    ]
    s.ask("create_partitions", 3, topics=rows, timeout=10000, validate_only=False, note="a name twice")
    s.ask("create_partitions", 3, topics=[], timeout=10000, validate_only=False, note="none")


@story("create-partitions")
def too_many_partitions(s: Story) -> None:
    """A request may add 10,000 partitions in all. What is not allowed is refused before anything else is checked."""
    t, u = s.topic(1).name, s.topic(1).name

    def grow(note: str, *counts: tuple[str, int], only: bool = True) -> None:
        rows = [{"name": name, "count": count, "assignments": None} for name, count in counts]
        s.ask("create_partitions", 3, topics=rows, timeout=10000, validate_only=only, note=note)

    grow("10,000", (t, 10_001))
    grow("10,001", (t, 10_002))
    grow("10,001, not only validated", (t, 10_002), only=False)
    grow("10,001 of two", (t, 5_001), (u, 5_002))
    grow("many", (t, 2**31 - 1), (u, 2**31 - 1))
    grow("many, and other mistakes", (t, 1), (u, 20_000), (s.name("missing"), 3), ("a/b", -1))
    grow("many of an unknown topic", (t, 2), (s.name("missing"), 20_000))
    grow("a negative count", (t, -20_000), (u, 10_001))
    grow("a name twice", (t, 2), (t, 20_000), (u, 2))
    grow("a name twice, and many", (t, 2), (t, 2), (u, 20_000))


@story("create-partitions")
def the_new_one_works(s: Story) -> None:
    t = s.topic()
    s.quiet("create_partitions", 3, topics=[{"name": t.name, "count": 2, "assignments": None}], timeout=9999)
    s.wait_for(t.name, 2)
    s.produce(t, s.batch(1), partition=1)
    s.fetch([(t, 1, 0)])


# -- DescribeConfigs -----------------------------------------------------------------------------------------------


def describe(
    s: Story, note: str, kind: int, name: str, keys: list[str] | None, v: int = 4, **more: Any
) -> None:
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    s.ask("describe_configs", v, resources=[row], note=note, **more)


@story("describe-configs")
def of_topics(s: Story) -> None:
    t = s.topic(retention__ms="1000", cleanup__policy="compact")
    describe(s, "all", 2, t.name, None)
    describe(s, "all, synonyms", 2, t.name, None, include_synonyms=True)
    describe(
        s, "two, documentation", 2, t.name, ["retention.ms", "cleanup.policy"], include_documentation=True
    )
    describe(s, "two, synonyms", 2, t.name, ["retention.ms", "segment.ms"], 1, include_synonyms=True)
    describe(s, "one unknown", 2, t.name, ["no.such.config", "retention.ms"])
    describe(s, "no keys", 2, t.name, [])
    describe(s, "unknown topic", 2, s.name("missing"), None)
    describe(s, "invalid name", 2, "a/b", None)
    describe(s, "no name", 2, "", None)
    describe(
        s, "internal topic", 2, "__transaction_state", ["cleanup.policy", "segment.bytes", "compression.type"]
    )
    describe(
        s, "internal topic", 2, "__consumer_offsets", ["cleanup.policy", "segment.bytes", "compression.type"]
    )


@story("describe-configs")
def of_brokers(s: Story) -> None:
    keys = [
        "message.max.bytes",
        "num.partitions",
        "transaction.max.timeout.ms",
        "log.retention.hours",
        "node.id",
    ]
    describe(s, "this broker", 4, "1", keys)
    describe(s, "this broker, synonyms", 4, "1", keys, include_synonyms=True)
    describe(s, "this broker", 4, "1", keys, 1)
    describe(s, "the cluster's default", 4, "", keys)
    describe(s, "another broker", 4, "2", keys)
    describe(s, "not a number", 4, "x", keys)


@story("describe-configs", "noauto")
def internal_settings_of_brokers(s: Story) -> None:
    """Internal settings are listed if the broker was started with them."""
    keys = [*INTERNAL_SETTINGS, "server.max.startup.time.ms"]
    for v in (1, 4):
        describe(s, "this broker, synonyms", 4, "1", keys, v, include_synonyms=True)
    describe(s, "this broker, documentation", 4, "1", keys, include_documentation=True)
    describe(s, "the cluster's default", 4, "", keys)
    describe(s, "not set", 4, "1", ["server.max.startup.time.ms"])


@story("describe-configs")
def documentation_of_brokers(s: Story) -> None:
    keys = ["num.partitions", "min.insync.replicas"]
    for v in (3, 4):
        describe(s, "this broker", 4, "1", keys, v, include_synonyms=True, include_documentation=True)
    describe(s, "the cluster's default", 4, "", keys, include_documentation=True)


@story("describe-configs")
def of_other_things(s: Story) -> None:
    for kind in (0, 1, 3, 99, -1):
        describe(s, f"type {kind}", kind, "x", None)
    t = s.topic()
    row = {"resource_type": 2, "resource_name": t.name, "configuration_keys": ["retention.ms"]}
    other = {"resource_type": 4, "resource_name": "9", "configuration_keys": None}
    s.ask("describe_configs", 4, resources=[row, other], note="one good, one bad")
    s.ask("describe_configs", 4, resources=[], note="none")


# -- DescribeCluster, DescribeTopicPartitions ----------------------------------------------------------------------


@story("describe-cluster")
def cluster(s: Story) -> None:
    """DescribeCluster with endpoint type 2 returns MISMATCHED_ENDPOINT_TYPE on a broker listener."""
    for v in (0, 1, 2):
        s.ask("describe_cluster", v, include_cluster_authorized_operations=True, note="operations")
    for kind in (0, 1, 2, 3):
        flags: dict[str, Any] = {"include_cluster_authorized_operations": False, "endpoint_type": kind}
        s.ask("describe_cluster", 1, note=f"endpoint type {kind}", **flags)
    flags = {"include_cluster_authorized_operations": False, "include_fenced_brokers": True}
    s.ask("describe_cluster", 2, note="fenced ones too", **flags)


@story("describe-topic-partitions")
def partitions(s: Story) -> None:
    """DescribeTopicPartitions sorts topics by name, and ends with a cursor after responsePartitionLimit partitions."""
    t, u = s.topic(3), s.topic(2)

    def ask(note: str, *topics: Topic | str, **more: Any) -> Any:
        names = [topic if isinstance(topic, str) else topic.name for topic in topics]
        return s.ask("describe_topic_partitions", 0, topics=named(*names), note=note, **more)

    ask("out of order", u, t)
    ask("twice", t, t)
    ask("unknown", s.name("missing"), t)
    ask("invalid", "a/b", "")
    ask("limit 2", t, u, response_partition_limit=2)
    ask("limit 3", t, u, response_partition_limit=3)
    ask("limit 4", t, u, response_partition_limit=4)
    for limit in (0, -1, 5000):
        ask(f"limit {limit}", t, response_partition_limit=limit)
    ask("cursor", t, u, cursor={"topic_name": t.name, "partition_index": 1})
    ask("cursor in the second", t, u, cursor={"topic_name": u.name, "partition_index": 1})
    ask("cursor before a partition that is not there", t, cursor={"topic_name": t.name, "partition_index": 9})
    s.try_ask(
        "describe_topic_partitions",
        0,
        topics=named(t.name),
        cursor={"topic_name": t.name, "partition_index": -1},
        note="cursor at -1",
    )
    ask("cursor on a topic not asked for", t, cursor={"topic_name": s.name("a"), "partition_index": 0})
