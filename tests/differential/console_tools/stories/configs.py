"""Stories of kafka-configs, for every type of entity, and of kafka-client-metrics."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

SORTED = Shown(sorted=True)
BROKER_1 = ("--entity-type", "brokers", "--entity-name", 1)
ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")


def alter(s: ToolStory, entity: Sequence[object], add: str = "", delete: str = "") -> None:
    options = [*(("--add-config", add) if add else ()), *(("--delete-config", delete) if delete else ())]
    s.run("--alter", *entity, *options)


@story("kafka-configs")
def of_topics(s: ToolStory) -> None:
    orders = ("--entity-type", "topics", "--entity-name", s.orders(retention__ms="7"))
    s.run("--describe", *orders)
    s.run("--describe", *orders, "--all", show=SORTED)
    alter(s, orders, "retention.ms=1000,cleanup.policy=[compact,delete]")
    s.run("--describe", *orders, show=SORTED)
    alter(s, orders, "max.message.bytes=1000", "cleanup.policy")
    s.run(f"--describe --topic {s.name('orders')}", show=SORTED)
    s.run(
        f"--alter --topic {s.name('orders')} --add-config-file",
        s.file("more.properties", "segment.ms=60000\nflush.messages=9\n"),
    )
    alter(s, orders, delete="retention.ms,max.message.bytes")
    s.run("--describe", *orders, show=SORTED)
    s.run("--describe --entity-type topics", show=Shown(only=f"{s.prefix}|segment.ms", sorted=True))


@story("kafka-configs")
def refused_of_topics(s: ToolStory) -> None:
    orders = ("--entity-type", "topics", "--entity-name", s.orders())
    for add in (
        "retention.ms=soon",
        "retention.ms=-2",
        "cleanup.policy=tidy",
        "retention.m=1",
        "segment.bytes=10",
        "compression.type=rar",
        "min.insync.replicas=0",
        "message.timestamp.type=",
        "leader.replication.throttled.replicas=x",
        "remote.storage.enable=true",
        "min.cleanable.dirty.ratio=2",
        "max.compaction.lag.ms=1,min.compaction.lag.ms=2",
        "local.retention.ms=2000,retention.ms=1000",
        "unclean.leader.election.enable=maybe",
        "preallocate",
        "compression.gzip.level=77",
    ):
        alter(s, orders, add)
    alter(s, orders, delete="retention.ms")
    alter(s, orders, delete="no.such.config")
    nowhere = ("--entity-type", "topics", "--entity-name", s.name("nowhere"))
    s.run("--describe", *nowhere)
    s.run("--describe", *nowhere, "--all")
    alter(s, nowhere, "retention.ms=1000")
    s.run("--describe --entity-type topics --entity-name", quote("not a topic"))
    s.run("--alter --entity-type topics --add-config retention.ms=1")
    s.run("--describe", *orders)


@story("kafka-configs")
def of_brokers(s: ToolStory) -> None:
    s.run("--describe", *BROKER_1)
    s.run("--describe", *ALL_BROKERS)
    alter(s, ALL_BROKERS, "log.retention.ms=5000000,log.cleaner.threads=2")
    alter(s, BROKER_1, "log.cleaner.threads=3,max.connections.per.ip=1000")
    s.run("--describe", *BROKER_1, show=SORTED, until=" max.connections.per.ip=1000 ")
    s.run("--describe", *ALL_BROKERS, show=SORTED)
    s.run("--describe --entity-type brokers", show=SORTED)
    changed = Shown(only="log.cleaner.threads|log.retention.ms|connections.per.ip", sorted=True)
    s.run("--describe --broker 1 --all", show=changed)
    alter(s, BROKER_1, delete="log.cleaner.threads,max.connections.per.ip")
    alter(s, ALL_BROKERS, delete="log.retention.ms,log.cleaner.threads")
    s.run("--describe --broker-defaults", until_gone="log.retention.ms")
    s.run("--describe --broker 1")


@story("kafka-configs")
def refused_of_brokers(s: ToolStory) -> None:
    for add in (
        "log.dirs=/elsewhere",
        "node.id=7",
        "log.cleaner.threads=none",
        "log.cleaner.threads=0",
        "log.cleaner.threads=500",
        "no.such.config=1",
        "num.io.threads=1000",
        "log.retention.ms=0",
        "message.max.bytes=-5",
        "listeners=PLAINTEXT://127.0.0.1:1",
        "advertised.listeners=PLAINTEXT://:1",
        "unclean.leader.election.enable=1",
        "metric.reporters=no.such.Class",
    ):
        alter(s, BROKER_1, add)
    for add in (
        "log.dirs=/elsewhere",
        "max.connections=0",
        "listeners=PLAINTEXT://:1",
        "ssl.keystore.location=/x",
        "log.segment.bytes=1",
    ):
        alter(s, ALL_BROKERS, add)
    alter(s, BROKER_1, delete="log.cleaner.threads")
    alter(s, BROKER_1, delete="log.dirs")
    s.run("--describe", *BROKER_1, until="no.such.config")
    alter(s, BROKER_1, delete="no.such.config")
    other = ("--entity-type", "brokers", "--entity-name", 7)
    s.run("--describe", *other)
    s.run("--describe", *other, "--all", *s.impatient)
    alter(s, ("--entity-type", "brokers", "--entity-name", "one"), "log.cleaner.threads=2")
    s.run("--describe --broker one")
    s.run("--describe", *BROKER_1, until_gone="no.such.config")
    s.run("--describe", *ALL_BROKERS)


@story("kafka-configs")
def of_in_sync_replicas_of_all_topics(s: ToolStory) -> None:
    alter(s, BROKER_1, "min.insync.replicas=1")
    s.run("--describe", *BROKER_1)
    alter(s, BROKER_1, delete="min.insync.replicas")


@story("kafka-configs")
def of_loggers(s: ToolStory) -> None:
    """kafka-configs shows and changes loggers. Each broker has its own loggers: only the root logger is compared."""
    loggers = ("--entity-type", "broker-loggers", "--entity-name", 1)
    root = Shown(only="root=|configs for")
    alter(s, loggers, "root=WARN")
    s.run("--describe", *loggers, show=root)
    alter(s, loggers, "root=ERROR")
    s.run("--describe --broker-logger 1", show=root)
    alter(s, loggers, delete="root")
    alter(s, loggers, "root=LOUD")
    alter(s, loggers, "no.such.logger=INFO")
    alter(s, ("--entity-type", "broker-loggers", "--entity-name", 7, *s.impatient), "root=INFO")
    s.run("--describe --entity-type broker-loggers --entity-name 7")


@story("kafka-configs")
def of_users_and_clients(s: ToolStory) -> None:
    alice, batch = s.name("alice"), s.name("batch")
    user = ("--entity-type", "users", "--entity-name", alice)
    client = ("--entity-type", "clients", "--entity-name", batch)
    everyone = ("--entity-type", "users", "--entity-default")
    alter(s, user, "producer_byte_rate=1024,consumer_byte_rate=2048.5")
    alter(s, client, "request_percentage=50,controller_mutation_rate=3")
    alter(s, (*user, *client), "producer_byte_rate=99")
    alter(s, (*user, "--entity-type", "clients", "--entity-default"), "consumer_byte_rate=7")
    alter(s, everyone, "consumer_byte_rate=123456789")
    for entity in (user, client, (*user, *client), everyone, ("--user", alice), ("--client", batch)):
        s.run("--describe", *entity, show=SORTED)
    s.run("--describe --entity-type users", show=SORTED)
    s.run("--describe --entity-type clients", show=SORTED)
    s.run("--describe", *user, "--entity-type clients", show=SORTED)
    s.run("--describe --user-defaults")
    s.run("--describe --client-defaults")
    alter(s, user, delete="producer_byte_rate")
    s.run("--describe", *user)
    alter(s, user, delete="consumer_byte_rate")
    alter(s, client, delete="request_percentage,controller_mutation_rate")
    alter(s, (*user, *client), delete="producer_byte_rate")
    alter(s, (*user, "--entity-type", "clients", "--entity-default"), delete="consumer_byte_rate")
    alter(s, everyone, delete="consumer_byte_rate")
    s.run("--describe --entity-type users", show=SORTED)


@story("kafka-configs")
def refused_quotas(s: ToolStory) -> None:
    user = ("--entity-type", "users", "--entity-name", s.name("alice"))
    for add in (
        "producer_byte_rate=fast",
        "producer_byte_rate=0",
        "producer_byte_rate=-1",
        "request_percentage=0.5",
        "no_such_rate=1",
        "connection_creation_rate=5",
        "consumer_byte_rate=0.5",
    ):
        alter(s, user, add)
    alter(s, user, delete="producer_byte_rate")
    alter(s, ("--entity-type", "clients", "--entity-name", s.name("batch")), "SCRAM-SHA-256=[password=x]")
    unnamed = ("--entity-type", "users", "--entity-name", "")
    alter(s, unnamed, "producer_byte_rate=500000000")
    s.run("--describe --user-defaults")
    alter(s, unnamed, delete="producer_byte_rate")
    s.run("--describe", *user)
    s.run("--describe --entity-type users --entity-type ips")


@story("kafka-configs")
def of_ips(s: ToolStory) -> None:
    ip = ("--entity-type", "ips", "--entity-name", "10.20.30.40")
    every = ("--entity-type", "ips", "--entity-default")
    alter(s, ip, "connection_creation_rate=5")
    alter(s, every, "connection_creation_rate=100000")
    for entity in (ip, every, ("--ip", "10.20.30.40"), ("--ip-defaults",), ("--entity-type", "ips")):
        s.run("--describe", *entity, show=SORTED)
    alter(s, ip, "connection_creation_rate=0.5")
    alter(s, ip, "connection_creation_rate=-5")
    alter(s, ip, "producer_byte_rate=5")
    alter(s, ip, delete="connection_creation_rate")
    alter(s, ip, delete="connection_creation_rate")
    alter(s, every, delete="connection_creation_rate")
    s.run("--describe --entity-type ips")


@story("kafka-configs")
def of_scram_credentials(s: ToolStory) -> None:
    alice = ("--entity-type", "users", "--entity-name", s.name("alice"))
    alter(s, alice, "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]")
    s.run("--describe", *alice, show=SORTED)
    s.run("--describe --entity-type users", show=SORTED)
    alter(s, alice, "producer_byte_rate=5")
    s.run("--describe", *alice, show=SORTED)
    alter(s, alice, delete="SCRAM-SHA-512")
    s.run("--describe", *alice, show=SORTED)
    for add in (
        "SCRAM-SHA-256=[iterations=100,password=x]",
        "SCRAM-SHA-256=[iterations=999999,password=x]",
        "SCRAM-SHA-256=secret",
        "SCRAM-SHA-1=[password=x]",
        "SCRAM-SHA-256=[password=x],producer_byte_rate=5",
    ):
        alter(s, alice, add)
    alter(s, alice, delete="SCRAM-SHA-512")
    alter(s, ("--entity-type", "users", "--entity-default"), "SCRAM-SHA-256=[password=x]")
    alter(s, alice, delete="producer_byte_rate")
    alter(s, alice, delete="SCRAM-SHA-256")
    s.run("--describe", *alice)


@story("kafka-configs")
def of_groups(s: ToolStory) -> None:
    group = ("--entity-type", "groups", "--entity-name", s.name("workers"))
    s.run("--describe", *group)
    alter(s, group, "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000")
    s.run("--describe", *group, show=SORTED)
    s.run(f"--describe --group {s.name('workers')} --all", show=SORTED)
    s.run(
        "--describe --entity-type groups",
        show=Shown(only=f"{s.prefix}|timeout.ms=50000|interval.ms=6000", sorted=True),
    )
    for add in (
        "consumer.session.timeout.ms=1",
        "consumer.session.timeout.ms=x",
        "no.such.config=1",
        "consumer.heartbeat.interval.ms=50001",
        "share.isolation.level=none",
    ):
        alter(s, group, add)
    alter(s, group, "share.isolation.level=read_committed,streams.num.standby.replicas=1")
    s.run("--describe", *group, show=SORTED)
    alter(
        s, group, delete="share.isolation.level,streams.num.standby.replicas,consumer.heartbeat.interval.ms"
    )
    alter(s, group, delete="consumer.session.timeout.ms")
    s.run("--describe", *group)
    alter(s, ("--entity-type", "groups", "--entity-name", ""), "consumer.session.timeout.ms=50000")


@story("kafka-configs")
def of_client_metrics(s: ToolStory) -> None:
    metrics = ("--entity-type", "client-metrics", "--entity-name", s.name("all"))
    s.run("--describe", *metrics)
    alter(
        s,
        metrics,
        "interval.ms=60000,metrics=[org.apache.kafka.producer,org.apache.kafka.consumer],match=[client_id=a.*]",
    )
    s.run("--describe", *metrics, show=SORTED)
    s.run(f"--describe --client-metrics {s.name('all')} --all", show=SORTED)
    for add in (
        "interval.ms=1",
        "interval.ms=99999999",
        "interval.ms=often",
        "match=[nonsense=a]",
        "match=[client_id=(]",
        "no.such.config=1",
    ):
        alter(s, metrics, add)
    alter(s, metrics, delete="interval.ms,metrics,match")
    s.run("--describe", *metrics)
    s.run("--describe --entity-type client-metrics", show=Shown(only=s.prefix))


@story("kafka-configs")
def of_nothing(s: ToolStory) -> None:
    s.run("--describe --entity-type planets --entity-name earth")
    s.run(f"--alter --entity-type topics --entity-name {s.name('orders')}")
    s.run(f"--alter --entity-type topics --entity-name {s.name('orders')} --add-config retention.ms")
    s.run("--describe", *BROKER_1, at=("--bootstrap-server", "127.0.0.1:1", *s.impatient))


@story("kafka-client-metrics")
def from_creation_to_deletion(s: ToolStory) -> None:
    name = ("--name", s.name("all"))
    s.run(
        "--alter",
        *name,
        "--metrics org.apache.kafka.producer,org.apache.kafka.consumer --interval 60000",
        "--match client_id=a.*,client_software_name=apache-kafka-java",
    )
    s.run("--describe", *name, show=SORTED)
    s.run("--list", show=Shown(only=s.prefix))
    s.run("--alter", *name, "--interval 1")
    s.run("--alter", *name, "--match planet=earth")
    s.run("--alter", *name, "--interval", "")
    s.run("--describe", *name, show=SORTED)
    s.run("--delete", *name)
    s.run("--describe", *name)
    s.run("--list", show=Shown(only=s.prefix))
    s.run(f"--delete --name {s.name('nothing')}")
    s.run(f"--describe --name {s.name('nothing')}")
    s.run("--describe", show=Shown(only=s.prefix))
    s.run("--alter --generate-name --metrics org.apache.kafka", show=Shown(hidden=(r"[\w-]{22}",)))
