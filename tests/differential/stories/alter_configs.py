"""IncrementalAlterConfigs, AlterConfigs and ListConfigResources, and DescribeConfigs afterwards."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.topics import describe
from tests.differential.story import Story, story

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NAMES = {TOPIC: "topic", BROKER: "broker", LOGGER: "logger", METRICS: "metrics", GROUP: "group"}


def resource(kind: int, name: str, *entries: tuple[Any, ...]) -> dict[str, Any]:
    """A resource of an IncrementalAlterConfigs request. Each entry is (setting, operation, value)."""
    configs = [{"name": one, "config_operation": what, "value": value} for one, what, value in entries]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def change(
    s: Story, note: str, kind: int, name: str, *entries: tuple[Any, ...], v: int = 1, dry: bool = False
) -> None:
    row = resource(kind, name, *entries)
    s.ask("incremental_alter_configs", v, resources=[row], validate_only=dry, note=note)


def replace(
    s: Story, note: str, kind: int, name: str, v: int = 2, dry: bool = False, **values: str | None
) -> None:
    configs = [{"name": one.replace("__", "."), "value": value} for one, value in values.items()]
    row = {"resource_type": kind, "resource_name": name, "configs": configs}
    s.ask("alter_configs", v, resources=[row], validate_only=dry, note=note)


def told(s: Story, note: str, kind: int, name: str, *keys: str) -> None:
    """Send DescribeConfigs. Call `settled` first, as Kafka's controller responds before its broker has read the records."""
    describe(s, note, kind, name, list(keys), include_synonyms=True)


def settled(s: Story, kind: int, name: str, key: str, value: str | None) -> None:
    """Wait until DescribeConfigs returns this value of the setting ``key``; None if the setting must be absent."""
    for _ in range(200):
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        answer = s.quiet("describe_configs", 4, resources=[row])
        shown = {one["name"]: one["value"] for one in answer["results"][0]["configs"]}
        if shown.get(key) == value:
            return
    raise AssertionError(f"DescribeConfigs does not return the new value of {key}: {value}")


@story("alter-configs")
def of_topics(s: Story) -> None:
    t = s.topic().name
    for v in (0, 1):
        change(s, "set", TOPIC, t, ("retention.ms", SET, f"10{v}"), ("segment.bytes", SET, "1048576"), v=v)
        settled(s, TOPIC, t, "retention.ms", f"10{v}")
        told(s, f"after v{v}", TOPIC, t, "retention.ms", "segment.bytes")
    change(s, "as it is", TOPIC, t, ("retention.ms", SET, "101"))
    change(s, "checked only", TOPIC, t, ("retention.ms", SET, "9"), dry=True)
    told(s, "nothing was done", TOPIC, t, "retention.ms")
    change(s, "unset", TOPIC, t, ("retention.ms", DELETE, None), ("segment.bytes", DELETE, "x"))
    settled(s, TOPIC, t, "segment.bytes", "1073741824")
    told(s, "after that", TOPIC, t, "retention.ms", "segment.bytes")
    change(s, "unset what is not set", TOPIC, t, ("retention.ms", DELETE, None))
    change(s, "nothing", TOPIC, t)


@story("alter-configs")
def lists_of_topics(s: Story) -> None:
    t = s.topic().name
    change(s, "more", TOPIC, t, ("cleanup.policy", APPEND, "compact"))
    settled(s, TOPIC, t, "cleanup.policy", "delete,compact")
    told(s, "after that", TOPIC, t, "cleanup.policy")
    change(s, "what is there", TOPIC, t, ("cleanup.policy", APPEND, "compact,delete"))
    change(s, "less", TOPIC, t, ("cleanup.policy", SUBTRACT, "delete"))
    settled(s, TOPIC, t, "cleanup.policy", "compact")
    told(s, "after that", TOPIC, t, "cleanup.policy")
    change(s, "less of what is not there", TOPIC, t, ("cleanup.policy", SUBTRACT, "delete"))
    change(s, "unknown", TOPIC, t, ("cleanup.policy", APPEND, "shred"))
    change(s, "no list", TOPIC, t, ("retention.ms", APPEND, "1"))
    change(s, "no list", TOPIC, t, ("retention.ms", SUBTRACT, "1"))
    change(s, "no such", TOPIC, t, ("no.such", APPEND, "1"))


@story("alter-configs")
def what_topics_cannot_have(s: Story) -> None:
    t = s.topic().name
    for name, value in (
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("segment.bytes", "1"),
        ("no.such", "1"),
        ("compression.type", "bzip"),
        ("min.compaction.lag.ms", "9223372036854775807"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "a"),
    ):
        change(s, f"{name}={value}", TOPIC, t, (name, SET, value))
    change(s, "one good, one bad", TOPIC, t, ("retention.ms", SET, "5"), ("segment.bytes", SET, "x"))
    change(s, "null", TOPIC, t, ("retention.ms", SET, None))
    change(s, "null to append", TOPIC, t, ("cleanup.policy", APPEND, None))
    change(s, "twice", TOPIC, t, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    long = "1:1," * 8191
    change(s, "long", TOPIC, t, ("leader.replication.throttled.replicas", SET, long + "1:1"))
    change(s, "longer", TOPIC, t, ("leader.replication.throttled.replicas", APPEND, "22:22"), dry=True)
    change(s, "no such operation", TOPIC, t, ("retention.ms", 9, "1"))
    change(s, "no topic", TOPIC, s.name("missing"), ("retention.ms", SET, "1"))
    change(s, "no topic, bad value", TOPIC, s.name("missing"), ("retention.ms", SET, "x"))
    change(s, "no name", TOPIC, "", ("retention.ms", SET, "1"))
    change(s, "bad name", TOPIC, "a/b", ("retention.ms", SET, "1"))
    told(s, "nothing was done", TOPIC, t, "retention.ms", "segment.bytes")


@story("alter-configs")
def several_resources(s: Story) -> None:
    one, other = s.topic().name, s.topic().name
    rows = [
        resource(TOPIC, one, ("retention.ms", SET, "11")),
        resource(TOPIC, s.name("missing"), ("retention.ms", SET, "12")),
        resource(TOPIC, other, ("retention.ms", SET, "13")),
    ]
    s.ask("incremental_alter_configs", 1, resources=rows, validate_only=False, note="one is missing")
    settled(s, TOPIC, other, "retention.ms", "13")
    told(s, "the first", TOPIC, one, "retention.ms")
    again = [rows[0], rows[2], rows[0]]
    s.ask("incremental_alter_configs", 1, resources=again, validate_only=False, note="one comes twice")
    s.ask("incremental_alter_configs", 1, resources=[], validate_only=False, note="none")
    for kind in (0, 1, 3, 99, -1):
        change(s, f"type {kind}", kind, "x", ("retention.ms", SET, "1"))
    bad = [resource(TOPIC, one, ("retention.ms", 9, "1")), rows[2]]
    s.ask(
        "incremental_alter_configs", 1, resources=bad, validate_only=False, note="one has no such operation"
    )


@story("alter-configs")
def all_settings_of_a_topic(s: Story) -> None:
    t = s.topic(retention__ms="1000", segment__bytes="1048576").name
    replace(s, "checked only", TOPIC, t, dry=True, flush__ms="5")
    for v in range(3):
        replace(s, "others", TOPIC, t, v=v, flush__ms=str(v), retention__ms="77")
        settled(s, TOPIC, t, "flush.ms", str(v))
        told(s, f"after v{v}", TOPIC, t, "retention.ms", "segment.bytes", "flush.ms")
    replace(s, "a bad one", TOPIC, t, flush__ms="x")
    replace(s, "unknown", TOPIC, t, no__such="x")
    replace(s, "null", TOPIC, t, flush__ms=None)
    replace(s, "no topic", TOPIC, s.name("missing"), flush__ms="1")
    replace(s, "none", TOPIC, t)
    settled(s, TOPIC, t, "flush.ms", "9223372036854775807")
    told(s, "after that", TOPIC, t, "retention.ms", "segment.bytes", "flush.ms")
    replace(s, "a logger", LOGGER, "1", root="INFO")
    replace(s, "type 99", 99, "x", root="INFO")


@story("alter-configs")
def of_brokers(s: Story) -> None:
    keys = ("log.cleaner.delete.retention.ms", "log.cleaner.threads")
    change(s, "this broker", BROKER, "1", ("log.cleaner.delete.retention.ms", SET, "14000"))
    settled(s, BROKER, "1", "log.cleaner.delete.retention.ms", "14000")
    told(s, "after that", BROKER, "1", *keys)
    change(s, "all brokers", BROKER, "", ("log.cleaner.delete.retention.ms", SET, "13000"))
    settled(s, BROKER, "", "log.cleaner.delete.retention.ms", "13000")
    told(s, "this broker", BROKER, "1", *keys)
    told(s, "all brokers", BROKER, "", *keys)
    change(s, "this broker: unset", BROKER, "1", ("log.cleaner.delete.retention.ms", DELETE, None))
    settled(s, BROKER, "1", "log.cleaner.delete.retention.ms", "13000")
    told(s, "after that", BROKER, "1", *keys)
    change(s, "all brokers: unset", BROKER, "", ("log.cleaner.delete.retention.ms", DELETE, None))
    settled(s, BROKER, "1", "log.cleaner.delete.retention.ms", "86400000")
    told(s, "after that", BROKER, "1", *keys)


@story("alter-configs")
def replication_quotas(s: Story) -> None:
    """Replication quotas can only be set dynamically."""
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    change(s, "set", BROKER, "1", *((rate, SET, "1000") for rate in rates))
    settled(s, BROKER, "1", rates[0], "1000")
    told(s, "after that", BROKER, "1", *rates, "replica.alter.log.dirs.io.max.bytes.per.second")
    for value in ("-1", "soon", ""):
        change(s, f"to {value!r}", BROKER, "1", (rates[0], SET, value))
    change(s, "to a list", BROKER, "1", (rates[0], APPEND, "1"))
    change(s, "of all", BROKER, "", ("replica.alter.log.dirs.io.max.bytes.per.second", SET, "0"))
    settled(s, BROKER, "", "replica.alter.log.dirs.io.max.bytes.per.second", "0")
    told(s, "of all, after that", BROKER, "", "replica.alter.log.dirs.io.max.bytes.per.second")
    change(s, "unset", BROKER, "1", *((rate, DELETE, None) for rate in rates))
    change(s, "of all, unset", BROKER, "", ("replica.alter.log.dirs.io.max.bytes.per.second", DELETE, None))


@story("alter-configs")
def all_settings_of_a_broker(s: Story) -> None:
    """AlterConfigs replaces all settings of one broker.

    The story does not replace the cluster-wide settings: they include ``min.insync.replicas``, which Kafka stores as a
    cluster-wide setting (KIP-966) and refuses to remove.
    """
    for v in range(3):
        replace(s, "one", BROKER, "1", v=v, log__cleaner__threads="2")
        settled(s, BROKER, "1", "log.cleaner.threads", "2")
        told(s, f"after v{v}", BROKER, "1", "log.cleaner.threads")
    replace(s, "none", BROKER, "1")
    settled(s, BROKER, "1", "log.cleaner.threads", "1")
    told(s, "after that", BROKER, "1", "log.cleaner.threads")
    replace(s, "read-only", BROKER, "1", node__id="1")
    replace(s, "a bad one", BROKER, "1", log__cleaner__threads="x")
    replace(s, "another broker", BROKER, "2", log__cleaner__threads="2")


@story("alter-configs")
def what_brokers_cannot_have(s: Story) -> None:
    for name, value in (
        ("node.id", "2"),
        ("num.partitions", "3"),
        ("log.retention.hours", "3"),
        ("log.cleaner.backoff.ms", "x"),
        ("num.io.threads", "100"),
        ("num.io.threads", "1"),
        ("num.io.threads", "0"),
        ("ssl.keystore.type", "PEM"),
        ("log.roll.ms", "0"),
        ("max.connections", "0"),
        ("max.connection.creation.rate", "0"),
        ("log.cleaner.threads", "0"),
        ("log.cleaner.threads", "500"),
        ("listeners", "PLAINTEXT://:1"),
        ("metric.reporters", "no.such.Class"),
    ):
        for broker in ("1", ""):
            change(s, f"{name}={value} of {broker or 'all'}", BROKER, broker, (name, SET, value), dry=True)
    change(s, "one broker's", BROKER, "", ("listener.name.x.ssl.keystore.type", SET, "PEM"), dry=True)
    change(s, "unknown", BROKER, "1", ("no.such", SET, "1"), dry=True)
    change(s, "another broker", BROKER, "2", ("log.cleaner.backoff.ms", SET, "1"))
    change(s, "no number", BROKER, "x", ("log.cleaner.backoff.ms", SET, "1"))
    change(s, "no list", BROKER, "1", ("log.cleaner.backoff.ms", APPEND, "1"))
    change(s, "unknown, appended", BROKER, "1", ("no.such", APPEND, "1"))
    change(s, "no such operation", BROKER, "1", ("log.cleaner.backoff.ms", 9, "1"))


@story("alter-configs")
def of_groups(s: Story) -> None:
    g = s.name("group")
    change(s, "set", GROUP, g, ("consumer.session.timeout.ms", SET, "50000"))
    settled(s, GROUP, g, "consumer.session.timeout.ms", "50000")
    told(s, "after that", GROUP, g, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    for name, value in (
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "1000000"),
        ("consumer.heartbeat.interval.ms", "1"),
        ("consumer.heartbeat.interval.ms", "100000"),
        ("consumer.assignment.interval.ms", "20000"),
        ("share.auto.offset.reset", "never"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.isolation.level", "x"),
        ("streams.num.standby.replicas", "3"),
        ("no.such", "3"),
        ("consumer.session.timeout.ms", "x"),
    ):
        change(s, f"{name}={value}", GROUP, g, (name, SET, value), dry=True)
    change(s, "no name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    replace(s, "none", GROUP, g)


@story("alter-configs")
def of_client_metrics(s: Story) -> None:
    m = s.name("metrics")
    change(s, "set", METRICS, m, ("interval.ms", SET, "1000"), ("metrics", SET, "*"))
    settled(s, METRICS, m, "interval.ms", "1000")
    told(s, "after that", METRICS, m)
    for name, value in (
        ("interval.ms", "99"),
        ("interval.ms", "3600001"),
        ("interval.ms", "x"),
        ("no.such", "x"),
        ("match", "client_id=a.*"),
        ("match", "client_id"),
        ("match", "client_id="),
        ("match", "client=a"),
        ("match", "client_id=["),
        ("metrics", "a,a"),
    ):
        change(s, f"{name}={value}", METRICS, m, (name, SET, value), dry=True)
    change(s, "no name", METRICS, "", ("interval.ms", SET, "1000"))
    s.ask("list_config_resources", 0, note="v0: client metrics")
    change(s, "unset", METRICS, m, ("interval.ms", DELETE, None), ("metrics", DELETE, None))


@story("alter-configs")
def of_loggers(s: Story) -> None:
    change(s, "set", LOGGER, "1", ("root", SET, "INFO"))
    change(s, "checked only", LOGGER, "1", ("root", SET, "DEBUG"), dry=True)
    for what in (APPEND, SUBTRACT, 9):
        change(s, f"operation {what}", LOGGER, "1", ("root", what, "INFO"))
    change(s, "no such level", LOGGER, "1", ("root", SET, "LOUD"))
    change(s, "unset the root", LOGGER, "1", ("root", DELETE, None))
    change(s, "no such logger", LOGGER, "1", ("no.such.logger", SET, "INFO"))
    change(s, "another broker", LOGGER, "2", ("root", SET, "INFO"))
    change(s, "no number", LOGGER, "x", ("root", SET, "INFO"))
    change(s, "no name", LOGGER, "", ("root", SET, "INFO"))


@story("alter-configs")
def listed_resources(s: Story) -> None:
    s.ask("list_config_resources", 1, resource_types=[BROKER], note="brokers")
    s.ask("list_config_resources", 1, resource_types=[LOGGER], note="loggers")
    s.ask("list_config_resources", 1, resource_types=[1], note="no such kind")
    s.ask("list_config_resources", 1, resource_types=[BROKER, 99], note="one of no such kind")
