"""Spring for Apache Kafka: a listener container with a transaction manager, whose listener fails sometimes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.clients.jvm.kills import GROUP_DEATHS, SETTINGS, TRANSACTION_DEATHS, Kill, Loop, run, send
from tests.support.broker import StartBroker
from tests.support.clients import values
from tests.support.foreign import Running
from tests.support.jvm import jvm_program

pytestmark = [pytest.mark.foreign, pytest.mark.client("Spring Kafka")]


def is_dead(number: int) -> bool:
    return str(number).endswith("13")


class SpringLoop(Loop):
    """A loop with a transaction per record. Some transactions are retried, some records go to the dead-letter topic."""

    name = "spring"
    topics = ("in:2", "out:2", "in-dlt:2")
    output = "out"
    portion = 50
    protocol: ClassVar[str] = "classic"
    deaths = (*TRANSACTION_DEATHS, "txn.offset.commit.after", *GROUP_DEATHS)

    def member(self, number: int) -> Running:
        return jvm_program("spring", "Application").start(self.broker.bootstrap, self.protocol)

    def feed(self, first: int, count: int) -> None:
        send(self.broker.bootstrap, "in", [str(number) for number in range(first, first + count)])

    def is_done(self, count: int) -> bool:
        return sum(len(values(self.broker.bootstrap, topic)) for topic in ("out", "in-dlt")) >= count

    def check(self, count: int) -> None:
        numbers = range(count)
        processed = sorted(str(each) for each in values(self.broker.bootstrap, "out"))
        assert processed == sorted(f"<{number}>" for number in numbers if not is_dead(number))
        dead = sorted(str(each) for each in values(self.broker.bootstrap, "in-dlt"))
        assert dead == sorted(str(number) for number in numbers if is_dead(number))


class SpringConsumerLoop(SpringLoop):
    """The loop of `SpringLoop`, in a consumer group (KIP-848)."""

    name = "spring-consumer"
    protocol = "consumer"
    settings = dict(SETTINGS) | {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "0",
    }


@pytest.mark.feature(
    "exactly-once loop",
    "exactly-once loop, members killed",
    "exactly-once loop, broker killed",
    "exactly-once loop in a consumer group",
)
def test_a_listener_processes_once_whatever_is_killed(start_broker: StartBroker, tmp_path: Path):
    loop = SpringConsumerLoop
    broker = start_broker(topics=loop.topics, settings=loop.settings)
    run(loop(broker, tmp_path), [Kill("broker", "txn.prepare.after:9"), Kill("member", after=30)])
