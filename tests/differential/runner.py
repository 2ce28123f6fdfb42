"""Runs stories (scripted requests) on a broker, stores Kafka's responses as files, and compares ours with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential import stories
from tests.differential.stories.topics import INTERNAL_SETTINGS
from tests.differential.story import STORIES, Entry, Named, Story, Unanswered, java_hash
from tests.support import raw
from tests.support.java import KAFKA_VERSION, RECORDED_VERSION

RECORDED = Path(__file__).parent / "recorded"
# Each profile is one broker start with the same properties on both sides. `feature` is the level of transaction.version,
# `ours` are additional settings of our broker.
COMMON = {"node.id": "1", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
TIMEOUTS = COMMON | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
SWITCHED_OFF = (
    COMMON | INTERNAL_SETTINGS | {"auto.create.topics.enable": "false", "delete.topic.enable": "false"}
)
UNVERIFIED = COMMON | {"transaction.partition.verification.enable": "false"}
# Changes are assigned at once, and a session may time out within a story.
CONSUMER_GROUPS = TIMEOUTS | {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
SMALL_GROUPS = CONSUMER_GROUPS | {"group.consumer.max.size": "2"}
KAFKAS_ORDER = {"odradek.commit.order": "kafka", "odradek.commit.marker.delay.ms": "100"}
# With a metrics reporter plug-in of ours Kafka requests the metrics of clients.
WITH_METRICS_SINK = COMMON | {"telemetry.max.bytes": "1048576"}
METRICS_IN_THE_LOG = {"odradek.client.telemetry.exporter": "log"}
# Resources without an ACL are allowed to everyone.
WITH_ACLS = COMMON | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TWO_PHASE_COMMIT = TIMEOUTS | {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
# Locks and sessions may end within a story, and each share partition soon has a snapshot.
SHARE_GROUPS = CONSUMER_GROUPS | {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.session.timeout.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "4",
}
SMALL_SHARE_GROUPS = SHARE_GROUPS | {"group.share.max.size": "3", "group.share.max.share.sessions": "5"}
DEAD_LETTERS = SHARE_GROUPS | {"errors.deadletterqueue.auto.create.topics.enable": "true"}
PROFILES: dict[str, dict[str, Any]] = {
    "main": {"feature": 2, "properties": TIMEOUTS, "ours": {}},
    "order": {"feature": 2, "properties": COMMON, "ours": KAFKAS_ORDER},
    "tv1": {"feature": 1, "properties": TIMEOUTS, "ours": {}},
    "tv0": {"feature": 0, "properties": COMMON, "ours": {}},
    "unverified": {"feature": 1, "properties": UNVERIFIED, "ours": {}},
    "consumer-groups": {"feature": 2, "properties": CONSUMER_GROUPS, "ours": {}},
    "small-groups": {"feature": 2, "properties": SMALL_GROUPS, "ours": {}},
    "client-metrics": {
        "feature": 2,
        "properties": WITH_METRICS_SINK,
        "ours": METRICS_IN_THE_LOG,
        "kafka": {"metric.reporters": "MetricsSink"},
    },
    "acls": {"feature": 2, "properties": WITH_ACLS, "ours": {}},
    "share": {"feature": 2, "properties": SHARE_GROUPS, "ours": {}},
    "small-share-groups": {"feature": 2, "properties": SMALL_SHARE_GROUPS, "ours": {}},
    "share-dead-letters": {"feature": 2, "properties": DEAD_LETTERS, "ours": {}},
    "share-acls": {"feature": 2, "properties": SHARE_GROUPS | WITH_ACLS, "ours": {}},
    "share-features": {"feature": 2, "properties": SHARE_GROUPS, "ours": {}, "one_each": True},
    "noauto": {"feature": 2, "properties": SWITCHED_OFF, "ours": {}},
    "two-phase-commit": {"feature": 2, "properties": TWO_PHASE_COMMIT, "ours": {}},
    # Each story has a new broker of its own, and may restart it.
    "unused": {"feature": 2, "properties": COMMON, "ours": {}, "one_each": True},
}
Transcript = list[dict[str, Any]]

assert stories


def kafka_properties(profile: str) -> dict[str, str]:
    """Properties for Apache Kafka."""
    return PROFILES[profile]["properties"] | PROFILES[profile].get("kafka", {})


def has_own_broker(profile: str) -> bool:
    """Whether each story of the profile has a broker of its own."""
    return PROFILES[profile].get("one_each", False)


def entries(profile: str | None = None) -> list[Entry]:
    return [entry for entry in STORIES.values() if profile in (None, entry.profile)]


def run(
    entry: Entry,
    host: str,
    port: int,
    attempt: int = 0,
    hold_markers: Callable[[], AbstractContextManager[object]] = nullcontext,
    restart_broker: Callable[[], object] | None = None,
) -> Transcript:
    """Run one story and return its transcript.

    An error that ends the story early is its last entry. ``attempt`` makes the story's names unique on the same broker.
    """
    told = Story(entry, host, port, attempt, hold_markers, restart_broker)
    try:
        entry.run(told)
    except Unanswered as error:
        told.put("ended early", str(error))
    except (
        raw.Closed,
        raw.Silence,
        raw.Malformed,
        OSError,
        LookupError,
        TypeError,
        ValueError,
        AssertionError,
    ) as error:
        told.put("ended early", f"{type(error).__name__}: {error}")
    finally:
        told.close()
    return json.loads(json.dumps(told.transcript))


def warm_up(host: str, port: int) -> None:
    """Wait until every partition of both internal topics has a coordinator.

    After that no response has COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR (14 to 16).
    """
    told = Story(Entry("warm", "up", lambda s: None, ""), host, port)
    for kind in (0, 1):
        told.quiet("find_coordinator", 1, key="warm", key_type=kind)
    names: dict[int, str] = {}
    index = 0
    while len(names) < 50:
        names.setdefault(java_hash(f"warm{index}") % 50, f"warm{index}")
        index += 1
    for name in names.values():
        told.quiet("heartbeat", 0, group_id=name, generation_id=0, member_id="m")
        told.quiet("end_txn", 0, transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
    told.close()


# -- recordings ----------------------------------------------------------------------------------------------------


def load(area: str, folder: Path = RECORDED) -> dict[str, Transcript]:
    file = folder / f"{area}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def recorded(entry: Entry) -> Transcript | None:
    return load(entry.area).get(entry.name)


def save(area: str, answers: dict[str, Transcript], folder: Path = RECORDED) -> None:
    """Write the recordings, one exchange on each line, for readable diffs."""
    folder.mkdir(exist_ok=True)
    blocks = []
    for name in sorted(answers):
        lines = ",\n".join("  " + json.dumps(exchange, ensure_ascii=False) for exchange in answers[name])
        blocks.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    (folder / f"{area}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n")


Save = Callable[[str, dict[str, Transcript], Path], object]


def keep(area: str, name: str, transcript: Transcript, folder: Path = RECORDED, write: Save = save) -> None:
    """Write the recording of the story ``name``.

    If another release than `RECORDED_VERSION` was recorded and its responses differ, the former recording is kept in a
    subfolder with the name of its release: it holds for that release and those before it.
    """
    told = load(area, folder)
    former = told.get(name, transcript)
    if KAFKA_VERSION != RECORDED_VERSION and former != transcript:
        older = folder / RECORDED_VERSION
        write(area, {name: former} | load(area, older), older)
    write(area, told | {name: transcript}, folder)


# -- comparison ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    story: str
    number: int
    ask: str
    field: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        kafka, ours = (json.dumps(value, default=str) for value in (self.kafka, self.ours))
        return f"{self.story} #{self.number} {self.ask}: {self.field}: Kafka {kafka}, ours {ours}"


ABSENT = "(absent)"


def differences(entry: Named, kafka: Transcript, ours: Transcript) -> list[Difference]:
    found = []
    for number in range(max(len(kafka), len(ours))):
        theirs = kafka[number] if number < len(kafka) else {"ask": ABSENT, "answer": ABSENT}
        mine = ours[number] if number < len(ours) else {"ask": ABSENT, "answer": ABSENT}
        if theirs["ask"] != mine["ask"]:
            found.append(Difference(entry.id, number, theirs["ask"], "ask", theirs, mine))
            break
        for field, a, b in _walk("", theirs["answer"], mine["answer"]):
            found.append(Difference(entry.id, number, theirs["ask"], field, a, b))
    return found


def _walk(path: str, kafka: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in [*kafka, *(n for n in ours if n not in kafka)]:
            inner = f"{path}.{name}" if path else str(name)
            yield from _walk(inner, kafka.get(name, ABSENT), ours.get(name, ABSENT))
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, (a, b) in enumerate(zip(kafka, ours, strict=True)):
            yield from _walk(f"{path}.{index}" if path else str(index), a, b)
    elif kafka != ours or type(kafka) is not type(ours):
        yield path or "answer", kafka, ours
