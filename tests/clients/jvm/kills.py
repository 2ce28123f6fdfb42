"""The exactly-once loop of a framework, whose members and whose broker are killed according to a plan.

    run(StreamsLoop(broker, directory), [Kill("broker", "txn.marker.after:5"), Kill("member")])

A loop feeds its framework with numbered inputs and checks the results. The inputs are sent in portions, one before each kill
and one at the end; each kill happens while its portion is being processed. `draw` makes a plan from a seed.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Consumer, TopicPartition

from odradek.demo.doomed import restart_doomed
from tests.support.broker import Broker
from tests.support.clients import DEADLINE_S, PATIENCE, ConfluentProducer, eventually
from tests.support.deadlines import HANG_S, Deadline
from tests.support.foreign import Running

# Broker settings: short session timeouts, so that killed members are removed soon, and short transaction timeouts.
SETTINGS: Mapping[str, str] = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

# Crash points of the broker that a loop reaches: with transactions, and with a group or plain appends.
TRANSACTION_DEATHS = (
    "txn.begin.append",
    "txn.prepare.before",
    "txn.prepare.after",
    "txn.marker.before",
    "txn.marker.after",
    "txn.complete.before",
    "txn.complete.after",
)
GROUP_DEATHS = ("group.append.before", "group.append.after", "file.write")

TRICKLE = 10
"""Number of inputs that are sent at a time to a broker that is to die at a crash point."""
PAUSE_S = 0.05


@dataclass(frozen=True)
class Kill:
    who: str
    """The process to kill: "member" or "broker"."""
    point: str = ""
    """Crash point at which the broker dies; if empty, the process is killed after a number of results."""
    after: int = 1


class Loop:
    """Base class of the exactly-once loops, with a subclass for each framework (Kafka Streams, Flink, ...)."""

    name: ClassVar[str]
    topics: ClassVar[tuple[str, ...]]
    output: ClassVar[str]
    """Topic of the results."""
    deaths: ClassVar[tuple[str, ...]]
    """Crash points of the broker that the loop reaches."""
    members: ClassVar[int] = 1
    portion: ClassVar[int] = 200
    settings: ClassVar[Mapping[str, str]] = SETTINGS

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.started = 0

    def open(self) -> None:
        """Called before the first member starts."""

    def close(self) -> None:
        """Called after the last member has ended, also after a failure."""

    def member(self, number: int) -> Running:
        """Start a member of the loop. ``number`` counts all members that were started so far, from 0 on."""
        raise NotImplementedError

    def feed(self, first: int, count: int) -> None:
        """Send the inputs with the numbers ``first`` to ``first + count - 1`` to the framework."""
        raise NotImplementedError

    def is_done(self, count: int) -> bool:
        """Whether the results of ``count`` inputs are committed."""
        raise NotImplementedError

    def check(self, count: int) -> None:
        """Check that each of ``count`` inputs was processed exactly once."""
        raise NotImplementedError


def send(bootstrap: str, topic: str, texts: Sequence[str]) -> None:
    """Produce records with equal key and value. The key determines the partition."""
    producer = ConfluentProducer(bootstrap)
    producer.send(topic, texts, keys=texts, partition=None)
    producer.close()


def written(bootstrap: str, topic: str) -> int:
    """Sum of the log end offsets of a topic, which includes open and aborted transactions, and markers."""
    consumer = Consumer({**PATIENCE, "bootstrap.servers": bootstrap, "group.id": "watch"})
    try:
        found = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
        places = [TopicPartition(topic, partition) for partition in found]
        return sum(consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[1] for place in places)
    finally:
        consumer.close()


class Run:
    """One run of a plan of kills."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._broker = loop.broker
        self._members: list[Running] = []
        self._numbers = 0
        self._fed = 0

    def __call__(self, plan: Sequence[Kill]) -> list[dict[str, Any]]:
        """Run the plan; return the events (JSON lines) that all members have printed."""
        said: list[dict[str, Any]] = []
        try:
            self._loop.open()
            for _ in range(self._loop.members):
                self._start()
            for kill in plan:
                self._broker_dies(kill) if kill.who == "broker" else self._member_dies(kill, said)
            self._feed()
            self._wait(lambda: self._loop.is_done(self._fed), "all inputs are processed")
            for member in self._members:
                said += member.finish()
            self._loop.check(self._fed)
        finally:
            for member in self._members:
                member.close()
            self._loop.close()
        return said

    def _start(self) -> None:
        self._members.append(self._loop.member(self._numbers))
        self._numbers += 1

    def _feed(self) -> None:
        self._loop.feed(self._fed, self._loop.portion)
        self._fed += self._loop.portion

    def _wait(self, look: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            self._all_live()
            return look()

        try:
            eventually(looked, what)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self._told()}") from None

    def _all_live(self) -> None:
        for member in self._members:
            assert member.is_alive, f"ended by itself: {member.seen}\n{member.complaints}"

    def _told(self) -> str:
        return "\n".join(f"{member.seen}\n{member.complaints}" for member in self._members)

    def _some_results(self, count: int) -> None:
        before = written(self._broker.bootstrap, self._loop.output)
        self._feed()
        self._wait(
            lambda: written(self._broker.bootstrap, self._loop.output) >= before + count,
            f"{count} results",
        )

    def _member_dies(self, kill: Kill, said: list[dict[str, Any]]) -> None:
        self._some_results(kill.after)
        with self._members.pop(0) as victim:
            said += victim.kill()
        self._start()

    def _broker_dies(self, kill: Kill) -> None:
        if kill.point:
            self._reaches(kill.point)
        else:
            self._some_results(kill.after)
            self._broker.kill()
            self._broker.restart(environment={})

    def _reaches(self, point: str) -> None:
        """Start the broker with this crash point, and send inputs until the broker dies there."""
        restart_doomed(self._broker, point)
        deadline = Deadline()
        with ThreadPoolExecutor(1) as thread:
            feeding: Future[None] | None = None
            while self._broker.is_running:
                deadline.check(f"the broker dies at {point}; {self._told()}")
                self._all_live()
                if feeding is None or feeding.done():
                    feeding = self._trickle(feeding, thread)
                time.sleep(PAUSE_S)
            assert self._broker.wait() == -signal.SIGKILL
            self._broker.restart(environment={})
            if feeding is not None:
                feeding.result(HANG_S)

    def _trickle(self, before: Future[None] | None, thread: ThreadPoolExecutor) -> Future[None]:
        """Submit the sending of ``TRICKLE`` more inputs to ``thread``, and return the future.

        ``before`` is the future of the previous call; if that call failed, its error is raised.
        """
        if before is not None:
            before.result()
        first, self._fed = self._fed, self._fed + TRICKLE
        return thread.submit(self._loop.feed, first, TRICKLE)


def run(loop: Loop, plan: Sequence[Kill]) -> list[dict[str, Any]]:
    return Run(loop)(plan)


def draw(loop: type[Loop], seed: int, kills: int) -> list[Kill]:
    """A plan with this many kills, which depends only on the seed."""
    chance = random.Random(seed)
    plan = []
    for _ in range(kills):
        if chance.random() < 0.4:
            plan.append(Kill("member", after=chance.randint(1, loop.portion)))
        elif chance.random() < 0.25:
            plan.append(Kill("broker", after=chance.randint(1, loop.portion)))
        else:
            plan.append(Kill("broker", f"{chance.choice(loop.deaths)}:{chance.randint(1, 12)}"))
    return plan
