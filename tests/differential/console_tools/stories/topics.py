"""kafka-topics, kafka-get-offsets, kafka-delete-records."""

from __future__ import annotations

from shlex import quote

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

CREATED = Shown(hidden=(r"TopicId: (\S+)",))


@story("kafka-topics")
def from_creation_to_deletion(s: ToolStory) -> None:
    orders = ("--topic", s.name("orders"))
    options = ("--config", "segment.bytes=1048576", "--config", "retention.ms=1234567")
    s.run("--create", *orders, "--partitions 2 --replication-factor 1", *options)
    s.run("--list", show=Shown(only=s.prefix))
    s.run("--describe", *orders)
    s.run("--alter", *orders, "--partitions 5")
    s.run("--describe", *orders)
    s.run("--delete", *orders)
    s.run("--list", show=Shown(only=s.prefix))


@story("kafka-topics")
def created_in_other_ways(s: ToolStory) -> None:
    s.run(f"--create --topic {s.name('assigned')} --replica-assignment 1,1,1")
    s.run(f"--create --topic {s.name('of-defaults')}")
    s.run(f"--create --topic {s.name('with_under.score')} --config cleanup.policy=compact,delete")
    s.run(f"--create --topic {s.name('of-defaults')} --if-not-exists")
    s.run(f"--describe --topic {s.name('.*')}", show=Shown(sorted=True))
    s.run(f"--list --exclude-internal --topic {s.name('(of|as).*')}")
    s.run(f"--delete --topic {s.name('.*')}")
    s.run(f"--list --topic {s.name('.*')}")


@story("kafka-topics")
def refused_creations(s: ToolStory) -> None:
    orders = s.orders()
    s.run(f"--create --topic {orders}")
    s.run(f"--create --topic {s.name('wide')} --replication-factor 3")
    s.run(f"--create --topic {s.name('elsewhere')} --replica-assignment 1,7")
    s.run("--create --topic", quote(s.name("no name")))
    s.run(f"--create --topic {s.name('x' * 250)}")
    s.run(f"--create --topic {s.name('none')} --partitions 0")
    s.run(f"--create --topic {s.name('huge')} --partitions 20000")
    s.run(f"--create --topic {s.name('other.name_')} --config retention.ms=soon")
    s.run(f"--create --topic {s.name('misspelled')} --config retention.m=1")
    s.run(f"--create --topic {s.name('compact')} --config cleanup.policy=tidy")
    s.run("--create --topic __consumer_offsets")
    s.run(f"--create --topic {s.name('alike.a')}")
    s.run(f"--create --topic {s.name('alike_a')}")
    s.run("--list", show=Shown(only=s.prefix, sorted=True))


@story("kafka-topics")
def refused_changes(s: ToolStory) -> None:
    orders = ("--topic", s.orders(3))
    for partitions in (2, 3, 0):
        s.run("--alter", *orders, f"--partitions {partitions}")
    s.run("--alter", *orders, "--partitions 4 --replica-assignment 1,1,1,9")
    nowhere = ("--topic", s.name("nowhere"))
    s.run("--alter", *nowhere, "--partitions 4")
    s.run("--alter", *nowhere, "--partitions 4 --if-exists")
    s.run("--describe", *nowhere)
    s.run("--describe", *nowhere, "--if-exists")
    s.run("--describe --topic-id AAAAAAAAAAAAAAAAAAAABQ")
    s.run("--delete", *nowhere)
    s.run("--delete", *nowhere, "--if-exists")
    s.run("--describe", *orders)


@story("kafka-topics")
def descriptions(s: ToolStory) -> None:
    s.orders(12, name="wide", min__insync__replicas="1")
    s.orders(1, name="narrow", min__insync__replicas="2")
    every = ("--topic", s.name(".*"))
    s.run(f"--describe --topic {s.name('wide')} --partition-size-limit-per-response 5")
    for filter in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        s.run("--describe", *every, f"--{filter}-partitions", show=Shown(sorted=True))
    s.run("--describe", *every, "--topics-with-overrides", show=Shown(sorted=True))
    s.run("--describe --topic __consumer_offsets", show=Shown(only="PartitionCount"))
    s.run("--describe --topic __transaction_state", show=Shown(only="PartitionCount"))


@story("kafka-get-offsets")
def of_partitions(s: ToolStory) -> None:
    orders, audit = s.orders(3), s.orders(1, name="audit")
    s.write(orders, "a", "b", "c")
    s.write(orders, "d", partition=1)
    s.write(audit, "e")
    s.quiet("delete_records", 2, timeout=10_000, topics=[delete(orders, 0, 2)])
    s.run(f"--topic {orders}")
    for time in (
        "earliest",
        "latest",
        "max-timestamp",
        "earliest-local",
        "latest-tiered",
        -1,
        -2,
        -3,
        s.t0,
        s.t0 + 90_000,
    ):
        s.run(f"--topic {orders} --time {time}")
    s.run(f"--topic {orders} --partitions 0,2")
    s.run(f"--topic-partitions {orders}:1-,{audit}")
    s.run(show=Shown(only=s.prefix, sorted=True))
    s.run(f"--exclude-internal-topics --topic {s.name('.*')}")


@story("kafka-get-offsets")
def of_what_is_not_there(s: ToolStory) -> None:
    orders = s.orders()
    s.run(f"--topic {s.name('nowhere')}")
    s.run(f"--topic {orders} --partitions 0,7")
    s.run(f"--topic {orders} --partitions 7")
    s.run(f"--topic {orders} --time yesterday")
    s.run(f"--topic-partitions {orders}:x")
    s.run(f"--topic {orders} --time earliest-pending-upload")


def delete(topic: str, partition: int, offset: int) -> dict[str, object]:
    return {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}


@story("kafka-delete-records")
def up_to_offsets(s: ToolStory) -> None:
    orders = s.orders(2)
    s.write(orders, *(str(number) for number in range(10)))

    def deleted(*rows: tuple[str, int, int], version: int = 1) -> None:
        partitions = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
        file = s.file("delete.json", {"version": version, "partitions": partitions})
        s.run(f"--offset-json-file {file}", *s.impatient, show=Shown(sorted=True))

    deleted((orders, 0, 4), (orders, 1, 0))
    deleted((orders, 0, 2))
    deleted((orders, 0, -1))
    deleted((orders, 0, 11), (orders, 1, 0))
    deleted((orders, 2, 0))
    deleted((s.name("nowhere"), 0, 1))
    deleted((orders, 0, -2))
    deleted((orders, 0, 5), (orders, 0, 6))
    deleted((orders, 0, 5), version=2)
    s.run(f"--topic {orders} --time earliest", tool="kafka-get-offsets")


@story("kafka-delete-records")
def where_records_are_not_deleted(s: ToolStory) -> None:
    compacted = s.orders(name="compacted", cleanup__policy="compact")
    s.write(compacted, "value")
    for topic in (compacted, "__consumer_offsets"):
        row = {"topic": topic, "partition": 0, "offset": 0}
        s.run("--offset-json-file", s.file("delete.json", {"version": 1, "partitions": [row]}))
    s.run("--offset-json-file", s.file("delete.json", "{broken"))
    s.run("--offset-json-file", s.file("delete.json", {"version": 1}))
