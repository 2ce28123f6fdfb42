"""Dead-letter queues of share groups (KIP-1191)."""

from __future__ import annotations

from typing import Any

from tests.differential.batches import read_batches
from tests.differential.stories.share_clients import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    Member,
    describe_offsets,
    filled,
    joined,
    state_log,
)
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline

PROFILE = "share-dead-letters"


def with_queue(s: Story, t: Topic, queue: str, group: str = "g", **configs: Any) -> Member:
    m = joined(s, t, group=group, errors__deadletterqueue__topic__name=queue, **configs)
    m.on = group
    return m


def queued(s: Story, note: str, queue: str, count: int, partition: int = 0) -> None:
    """Wait until a dead-letter queue has this number of records, and add them in the order of their offsets at the
    source. Kafka writes records of several offsets in any order."""
    deadline = Deadline()
    while len(found := records(s, queue, partition)) < count:
        deadline.check(f"{queue} has {count} records")
    found.sort(key=lambda row: str(row["headers"]))
    s.put(f"the queue {note}", s.normal.value(found, "", False))


def records(s: Story, queue: str, partition: int) -> list[Body]:
    """Records of a partition: key, value and headers."""
    row = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = s.quiet("fetch", 11, retry=(), **body, topics=[{"topic": queue, "partitions": [row]}])
    found = []
    for batch in read_batches(answer["responses"][0]["partitions"][0]["records"] or b""):
        for _, _, key, value, *headers in batch["records"]:
            row = {"key": key, "value": value, "headers": headers[0] if headers else []}
            fields = ("attributes", "producer_id", "epoch", "sequence", "base_timestamp")
            found.append({name: batch[name] for name in fields} | row)
    return found


def archived(s: Story, m: Member, t: Topic, start: int) -> None:
    """Wait until all records below an offset are done."""
    deadline = Deadline()
    topics = [{"topic_name": t.name, "partitions": [0]}]
    body: Body = {"groups": [{"group_id": m.group, "topics": topics}]}
    while True:
        row = s.quiet("describe_share_group_offsets", 1, **body)["groups"][0]["topics"][0]["partitions"][0]
        if row["lag"] == start:
            return
        deadline.check(f"the lag is {start}")


def topic_of(s: Story, note: str, queue: str) -> None:
    """The settings of a queue that the broker has created."""
    keys = ["errors.deadletterqueue.group.enable", "message.timestamp.type", "cleanup.policy", "retention.ms"]
    row = {"resource_type": 2, "resource_name": queue, "configuration_keys": keys}
    s.ask("describe_configs", 4, note=note, resources=[row])
    s.ask("metadata", 12, note=note, topics=[{"name": queue}], allow_auto_topic_creation=False)


def queue_name(s: Story, suffix: str = "q") -> str:
    return f"dlq.{s.name(suffix)}"


def create(s: Story, queue: str, partitions: int = 1, **configs: Any) -> None:
    settings = [{"name": k.replace("__", "."), "value": v} for k, v in configs.items()]
    row = {"name": queue, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
    s.quiet("create_topics", 7, retry=(), topics=[row])
    s.wait_for(queue, partitions)


FOR_GROUPS: Body = {"errors__deadletterqueue__group__enable": "true"}


@story("share-dead-letters", PROFILE)
def created_by_the_broker(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(5, headers=[(b"h", b"x")]), quiet=True)
    queue = queue_name(s)
    m = with_queue(s, t, queue)
    m.fetch("all", t)
    m.acknowledge("rejects 1-2", {t: [(1, 2, REJECT)]})
    queued(s, "of rejected records", queue, 2)
    topic_of(s, "created", queue)
    archived(s, m, t, 3)
    m.acknowledge("the rest", {t: [(0, 0, ACCEPT), (3, 4, [GAP, ACCEPT])]})
    describe_offsets(s, "all is done", (t.name, [0]))
    s.put("a gap is not queued", len(records(s, queue, 0)))


@story("share-dead-letters", PROFILE)
def with_copies(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(3, headers=[(b"h", b"x")]), quiet=True)
    s.produce(t, s.batch([b"a", None, b"c"], codec=1, keys=[None, b"k", b"l"]), quiet=True)
    queue = queue_name(s)
    create(s, queue, **FOR_GROUPS)
    m = with_queue(s, t, queue, errors__deadletterqueue__copy__record__enable="true")
    m.fetch("all", t)
    m.acknowledge("rejects all", {t: [(0, 5, REJECT)]})
    queued(s, "with copies", queue, 6)
    archived(s, m, t, 0)
    describe_offsets(s, "all is done", (t.name, [0]))


@story("share-dead-letters", PROFILE)
def too_often(s: Story) -> None:
    """Records that reach the limit of deliveries: released, lock ended, session ended."""
    t = filled(s, 1, 1, 1)
    queue = queue_name(s)
    create(s, queue, **FOR_GROUPS)
    limits: Body = {"share__delivery__count__limit": "2", "share__record__lock__duration__ms": "1000"}
    m, other = with_queue(s, t, queue, **limits), Member(s, "other")
    one = {"max_records": 1, "batch_size": 1}
    for number in range(3):
        m.fetch(f"record {number}", *(() if number else (t,)), **one)
    m.acknowledge("releases all", {t: [(0, 2, RELEASE)]})
    m.fetch("one again", **one)
    m.acknowledge("releases at the limit", {t: [(0, 0, RELEASE)]})
    queued(s, "of a released record", queue, 1)
    other.fetch("the next one", t, **one)
    other.end_session()
    queued(s, "of a session that ended", queue, 2)
    m.fetch("the last one", **one)
    queued(s, "of a lock that ended", queue, 3)
    archived(s, m, t, 0)


@story("share-dead-letters", PROFILE)
def several_partitions(s: Story) -> None:
    """A queue with fewer partitions than the source."""
    t = s.topic(3)
    for partition in range(3):
        filled(s, 1, topic=t, partition=partition)
    queue = queue_name(s)
    create(s, queue, 2, **FOR_GROUPS)
    configs = {"errors__deadletterqueue__topic__name": queue}
    m = joined(s, t, partitions=3, **configs)
    for partition in range(3):
        where = (t, partition)
        m.fetch(f"of partition {partition}", where)
        m.acknowledge("rejects it", {where: [(0, 0, REJECT)]})
    queued(s, "partition 0", queue, 2, 0)
    queued(s, "partition 1", queue, 1, 1)


@story("share-dead-letters", PROFILE)
def refused_queues(s: Story) -> None:
    """Records are archived all the same."""
    plain = s.topic().name
    create(s, queue_name(s, "plain"))
    for number, queue in enumerate((s.name("prefix"), plain, queue_name(s, "plain"), "dlq.bad name!")):
        t = filled(s, 1)
        m = with_queue(s, t, queue, f"g{number}")
        label = queue.replace(s.prefix, "~")
        m.fetch(label, t)
        m.acknowledge(f"rejects it, {label}", {t: [(0, 0, REJECT)]})
        archived(s, m, t, 0)
        state_log(s, label, f"g{number}", t)
        if "!" not in queue:
            s.ask("metadata", 12, note=label, topics=[{"name": queue}], allow_auto_topic_creation=False)


@story("share-dead-letters", "share")
def not_created_by_the_broker(s: Story) -> None:
    """errors.deadletterqueue.auto.create.topics.enable is false."""
    t = filled(s, 2)
    queue = queue_name(s)
    m = with_queue(s, t, queue)
    m.fetch("all", t)
    m.acknowledge("rejects one", {t: [(0, 0, REJECT)]})
    archived(s, m, t, 1)
    s.ask("metadata", 12, topics=[{"name": queue}], allow_auto_topic_creation=False)
    create(s, queue, **FOR_GROUPS)
    m.acknowledge("rejects the other one", {t: [(1, 1, REJECT)]})
    queued(s, "created by an operator", queue, 1)
    state_log(s, "", "g", t)


@story("share-dead-letters", "share")
def names_of_queues(s: Story) -> None:
    """Settings of a group, of a topic and of the broker."""
    t = s.topic(errors__deadletterqueue__group__enable="true")
    topic_of(s, "of a topic", t.name)
    rows = [
        {
            "resource_type": 4,
            "resource_name": "1",
            "configuration_keys": [
                "errors.deadletterqueue.topic.name.prefix",
                "errors.deadletterqueue.auto.create.topics.enable",
            ],
        }
    ]
    s.ask("describe_configs", 4, note="of the broker", resources=rows)
