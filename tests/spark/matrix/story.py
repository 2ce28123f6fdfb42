"""A story: one plan being carried out, with its topics, the runs of its query, its kills and its outcome."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.remote import Faults, Rule
from tests.spark.matrix import sinks
from tests.spark.matrix.plan import MOMENT, WORKER, Kill, Plan
from tests.spark.matrix.processes import signal_to
from tests.spark.matrix.verdict import Row, Verdict, judge, look, written
from tests.support.clients import PATIENCE
from tests.support.deadlines import HANG_S

KEYS = 37


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    verdict: Verdict
    runs: int
    kills: tuple[Kill, ...]
    caught: int
    missed: tuple[Kill, ...]
    """Planned kills that were not carried out."""
    written: int
    """Number of offsets of the output, including aborted records and markers."""

    def __str__(self) -> str:
        v = self.verdict
        return (
            f"{self.plan}\n    runs {self.runs}, kills {len(self.kills)}, caught {self.caught}, missed {len(self.missed)}, "
            f"{self.written} offsets; lost {v.lost}, duplicated {v.duplicated}, unexpected {v.unexpected}, "
            f"reordered {v.reordered}" + "".join(f"\n    {each}" for each in v.complaints)
        )


@dataclass(eq=False)
class Story:
    plan: Plan
    name: str
    servers: str
    admin: AdminClient
    sent: list[Row]
    runs: int = 0
    killed: list[Kill] = field(default_factory=list)
    caught: int = 0
    """Number of kills for other queries that hit this story."""
    finished: bool = False
    errors: list[str] = field(default_factory=list)
    standing: int | None = None
    """Id of the process that has stopped at the point of the next kill."""
    asleep: list[tuple[int, int]] = field(default_factory=list)
    """(process id, number of output offsets at which it wakes) of each zombie."""
    woken: list[int] = field(default_factory=list)
    fault: Rule | None = None
    late_at: int = 0
    """Number of output offsets at which the requests that the fault detached arrive; 0 if there are none."""

    @property
    def input(self) -> str:
        return f"{self.name}-in"

    @property
    def output(self) -> str:
        return f"{self.name}-out"

    # ---- the next kill

    @property
    def next_kill(self) -> Kill | None:
        done = len(self.killed)
        return None if self.finished or done == len(self.plan.kills) else self.plan.kills[done]

    @property
    def victim(self) -> str:
        return self.next_kill.victim if self.next_kill else ""

    @property
    def waits_for_a_moment(self) -> bool:
        return self.next_kill is not None and self.next_kill.point == MOMENT

    @property
    def waits_for_the_driver(self) -> bool:
        """Whether the story's next kill is a kill of the driver at a point, and not at a random step."""
        return self.victim not in ("", WORKER) and not self.waits_for_a_moment

    @property
    def its_moment_has_come(self) -> bool:
        kill = self.next_kill
        return (
            kill is not None
            and self.waits_for_a_moment
            and self.written() >= kill.written * self.plan.records
        )

    def written(self) -> int:
        return written(self.admin, self.output, self.plan.partitions)

    def record_kill(self) -> Kill:
        """Record that the story's next kill was carried out, and return it."""
        kill = self.next_kill
        assert kill is not None
        self.killed.append(kill)
        self.standing = None
        return kill

    def record_random_kill(self) -> bool:
        """Record that a kill for other queries hit this story. Returns whether its point has to be set again.

        If the next point is in an abort, the kill has ended that abort. So the kill that makes the commit fail, which
        must come first, is planned again.
        """
        self.caught += 1
        kill = self.next_kill
        if kill is None or not kill.point.startswith("abort.") or not self.killed:
            return False
        self.killed.pop()
        return True

    # ---- zombies

    def put_to_sleep(self, pid: int, kill: Kill) -> None:
        self.asleep.append((pid, self.written() + kill.sleeps * self.plan.per_batch))

    def wake(self) -> list[int]:
        """Wake the zombies whose time to sleep is over, and return their process ids."""
        if not self.asleep:
            return []
        now = self.written()
        due = [pid for pid, at in self.asleep if self.finished or now >= at]
        self.asleep = [each for each in self.asleep if each[0] not in due]
        for pid in due:
            signal_to(pid, signal.SIGCONT)
        self.woken += due
        return due

    # ---- its fault

    def stage_fault(self, faults: Faults) -> None:
        if self.plan.fault:
            self.fault = faults.add(self.plan.fault.format(q=self.name, out=self.output))

    def late(self) -> int:
        """Deliver the requests that the fault has detached, once one more batch is written; return how many."""
        if self.fault is None or not self.fault.held:
            return 0
        now = self.written()
        self.late_at = self.late_at or now + self.plan.per_batch
        if now < self.late_at and not self.finished:
            return 0
        self.late_at = 0
        return self.fault.release()

    # ---- its query

    def query(self, checkpoint: str) -> dict[str, Any]:
        """The order (for ``driver.py``) that starts the query, with the values that change from run to run."""
        tasks = self.plan.tasks(self.runs)
        own = {"kafka.bootstrap.servers": self.servers, "topic": self.output}
        return {
            "query": self.name,
            "servers": self.servers,
            "input": self.input,
            "per_batch": self.plan.per_batch,
            "split": tasks if self.plan.split else 0,
            "shuffle": tasks if self.plan.shuffle else 0,
            "salt": self.runs,
            "checkpoint": checkpoint,
            "format": sinks.form(self.plan.sink),
            "options": {**sinks.options(self.plan.sink, self.name), **own},
        }

    def outcome(self) -> Outcome:
        found = look(self.servers, self.output)
        # Rows of a key have no order if several tasks read one partition, or if rows are repartitioned.
        verdict = judge(self.sent, found, in_order=not (self.plan.shuffle or self.plan.split))
        missed = self.plan.kills[len(self.killed) :]
        return Outcome(self.plan, verdict, self.runs, tuple(self.killed), self.caught, missed, found.written)


def prepare(plan: Plan, name: str, servers: str, admin: AdminClient, replicas: int) -> Story:
    """Create the topics of a plan and write all of its input: a sequence of numbers for each key."""
    sent = [(b"k%d" % (number % KEYS), b"%d" % (number // KEYS)) for number in range(plan.records)]
    story = Story(plan, name, servers, admin, sent)
    topics = [NewTopic(each, plan.partitions, replicas) for each in (story.input, story.output)]
    for each in admin.create_topics(topics).values():
        each.result()
    producer = Producer({**PATIENCE, "bootstrap.servers": servers, "acks": "all", "linger.ms": 1})
    for key, value in sent:
        producer.produce(story.input, key=key, value=value)
    assert producer.flush(HANG_S) == 0
    return story
