"""Tests of Kafka Streams: words are counted exactly once while instances and the broker are killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.jvm.kills import GROUP_DEATHS, SETTINGS, TRANSACTION_DEATHS, Kill, Loop, run, send
from tests.support.broker import StartBroker
from tests.support.clients import DEADLINE_S, PATIENCE, eventually, read, topic_settings
from tests.support.foreign import Running
from tests.support.jvm import jvm_program

pytestmark = [pytest.mark.foreign, pytest.mark.client("Kafka Streams")]

EXACTLY, AT_LEAST = "exactly_once_v2", "at_least_once"
WORDS = [f"word-{number}" for number in range(17)]
WORDS_A_LINE = 3


def line(number: int) -> str:
    return " ".join(WORDS[(number * (step + 1)) % len(WORDS)] for step in range(WORDS_A_LINE))


class StreamsLoop(Loop):
    """A loop of two Streams instances. Each start gets a new state directory, so changelogs restore the tasks."""

    name = "streams"
    topics = ("lines:2", f"counts-{EXACTLY}:2", f"counts-{AT_LEAST}:2")
    output = f"counts-{EXACTLY}"
    members = 2
    portion = 100
    deaths = (*TRANSACTION_DEATHS, "txn.offset.commit.after", *GROUP_DEATHS)
    guarantees: ClassVar[tuple[str, ...]] = (EXACTLY,)

    def member(self, number: int) -> Running:
        program = jvm_program("streams", "WordCount")
        return program.start(self.broker.bootstrap, self.directory / f"state-{number}", *self.guarantees)

    def feed(self, first: int, count: int) -> None:
        send(self.broker.bootstrap, "lines", [line(number) for number in range(first, first + count)])

    def is_done(self, count: int) -> bool:
        return len(read(self.broker.bootstrap, self.output)) >= count * WORDS_A_LINE

    def check(self, count: int) -> None:
        counts = defaultdict(list)
        for each in read(self.broker.bootstrap, self.output):
            counts[each.key].append(int(each.value or 0))
        expected = Counter(word for number in range(count) for word in line(number).split())
        assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}


def has_purged(bootstrap: str, topic: str) -> bool:
    return any(log_start(bootstrap, topic))


def log_start(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({**PATIENCE, "bootstrap.servers": bootstrap, "group.id": "watch"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)[0]
            for partition in range(2)
        ]
    finally:
        consumer.close()


@pytest.mark.feature(
    "exactly-once loop", "exactly-once loop, members killed", "exactly-once loop, broker killed"
)
def test_words_are_counted_once_whatever_is_killed(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=StreamsLoop.topics, settings=SETTINGS)
    # Both members are killed, so that tasks move and their stores are restored.
    members = [Kill("member", after=50)] * StreamsLoop.members
    said = run(StreamsLoop(broker, tmp_path), [Kill("broker", "txn.marker.after:5"), *members])
    restored = [int(each["restored"]) for each in said if "restored" in each]
    assert any(restored), "no store was restored from its changelog"


@pytest.mark.feature("state stores and internal topics")
def test_internal_topics_are_set_up_compacted_and_purged(start_broker: StartBroker, tmp_path: Path):
    """Kafka Streams creates, compacts and purges its internal topics, with at-least-once and exactly-once processing."""
    broker = start_broker(topics=StreamsLoop.topics, settings=SETTINGS)
    loop = StreamsLoop(broker, tmp_path)
    program = jvm_program("streams", "WordCount")
    with program.start(broker.bootstrap, tmp_path / "state", EXACTLY, AT_LEAST) as member:
        loop.feed(0, loop.portion)
        eventually(lambda: loop.is_done(loop.portion), "all words are counted")
        for guarantee in (EXACTLY, AT_LEAST):
            purged = f"app-{guarantee}-words-repartition"
            eventually(partial(has_purged, broker.bootstrap, purged), f"{purged} is purged")
        member.finish()
    loop.check(loop.portion)
    for guarantee in (EXACTLY, AT_LEAST):
        counts = {each.key: int(each.value or 0) for each in read(broker.bootstrap, f"counts-{guarantee}")}
        assert sum(counts.values()) == loop.portion * WORDS_A_LINE
        changelog = topic_settings(broker.bootstrap, f"app-{guarantee}-store-changelog")
        assert changelog["cleanup.policy"] == "compact"
        repartition = topic_settings(broker.bootstrap, f"app-{guarantee}-words-repartition")
        assert (repartition["cleanup.policy"], repartition["retention.ms"]) == ("delete", "-1")
        assert repartition["segment.bytes"] == "52428800"
