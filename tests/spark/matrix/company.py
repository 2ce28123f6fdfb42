"""Several plans carried out side by side on one broker and one driver.

A driver takes ten seconds to start, so each of its deaths has to serve many: every query whose plan has it die at some point
waits there until all the others stand at theirs (``stage.py``), and then it dies for all of them. A query that is caught
by that somewhere else has had a death at random.

    with Company(plans, directory) as company:
        outcomes = company.play()
"""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient

from odradek import Broker
from odradek.deadlines import stretched
from tests.spark.matrix import sinks
from tests.spark.matrix.plan import BOTH, DRIVER, WORKER, ZOMBIE, Plan, save
from tests.spark.matrix.processes import DriverProcess, signal_to, state_of
from tests.spark.matrix.stage import Stage
from tests.spark.matrix.story import Outcome, Story, prepare
from tests.support.clients import PATIENCE, eventually
from tests.support.deadlines import HANG_S, LONG_TEST_S, TEST_S, Deadline, Stopwatch

CORES = 2
RUNS_MAX = 10
"""So often a query may be started: more means that it does not get on."""
POLL_S = 0.05
GATHER_S = stretched(90.0)
"""So long the driver waits for others to be at their points; those that are not yet there die in the next one."""
PLAY_S = LONG_TEST_S
NODES = 3
SETTINGS = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
REPLICATED = {
    **SETTINGS,
    "default.replication.factor": NODES,
    "min.insync.replicas": 2,
    "auto.leader.rebalance.enable": "false",
}


class MatrixFailed(AssertionError):
    """What was not right, and where all of it is kept."""


class Company:
    def __init__(self, plans: Sequence[Plan], directory: Path, *, seed: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        save(plans, directory / "plans.json")
        self._plans = plans
        self._directory = directory
        self._rng = Random(seed)
        many = any(each.node for each in plans)
        settings = REPLICATED if many else SETTINGS
        self._replicas = NODES if many else 1
        self.broker = Broker(self._replicas, settings=settings, data_dir=directory / "data")
        self.stage = Stage(directory / "stage")
        self.stories: list[Story] = []
        self.driver: DriverProcess | None = None
        self.drivers = 0
        self._past: list[DriverProcess] = []
        """Killed, with workers that may live on."""
        self._gathering = Stopwatch()
        self._node_down: tuple[int, Story, int] | None = None
        self.log: list[str] = []

    def __enter__(self) -> Company:
        self.broker.start()
        servers = self.broker.bootstrap_servers
        self._admin = AdminClient({**PATIENCE, "bootstrap.servers": servers})
        self.stories = [
            prepare(plan, f"q{number}", servers, self._admin, self._replicas)
            for number, plan in enumerate(self._plans)
        ]
        for each in self.stories:
            each.stage_fault(self.broker.faults)
        return self

    def __exit__(self, *exc_info: object) -> None:
        (self._directory / "log.txt").write_text("\n".join(self.log) + "\n")
        (self._directory / "broker.log").write_text("\n".join(self.broker.log) + "\n")
        with contextlib.ExitStack() as stack:
            stack.callback(self.broker.close)
            for each in [*self._past, *([self.driver] if self.driver else [])]:
                stack.callback(each.kill_all)

    # ---- the play

    def play(self) -> list[Outcome]:
        """Start, kill and restart until every query has come to its end; what came of each."""
        self.until(lambda: all(each.finished for each in self.stories), "all queries have come to their ends")
        self._start_node()
        self._late_ones_arrive()
        zombies = [pid for each in self.stories for pid in each.woken]
        # Their output to Spark has no reader: that ends them.
        eventually(lambda: not any(map(state_of, zombies)), "zombies have come to their ends")
        return [each.outcome() for each in self.stories]

    def until(self, come: Callable[[], object], what: str) -> None:
        """Let it go on, as it is planned, until this has come."""
        if self.driver is None:
            self.raise_curtain()
        deadline = Deadline(PLAY_S)
        while not come():
            if deadline.is_over:
                raise self._failed(f"not within {PLAY_S:.0f} s: {what}")
            self._hear()
            self._workers_die()
            self._node_comes_back()
            self._late_ones_arrive()
            due = self._due()
            if due:
                self.driver_dies(due)
                self.raise_curtain()
            time.sleep(POLL_S)

    def raise_curtain(self) -> None:
        """A driver, and every query that is not finished on it."""
        self.drivers += 1
        environment = {**self.stage.environment, **sinks.environment(self._directory)}
        # Who stands at a point of a task stands on a core.
        standing = sum(kill.point.startswith("task.") for each in self.stories for kill in each.plan.kills)
        self.driver = DriverProcess(self._directory / "driver.log", CORES + standing, environment)
        self.driver.until_ready()
        for each in self.stories:
            if not each.finished:
                self._start(each)

    def _start(self, story: Story) -> None:
        if story.runs == RUNS_MAX:
            raise self._failed(f"{story.name} was started {RUNS_MAX} times:\n{story.errors[-1]}")
        assert self.driver is not None
        # Where it was caught by a death of others on its way, what was counted counts on.
        if not self.stage.is_set(story.name):
            self._set_stage(story)
        self.say(f"{story.name}: run {story.runs}, next {story.next_kill}")
        self.driver.order(start=story.query(str(self._directory / "checkpoints" / story.name)))
        story.runs += 1

    def _set_stage(self, story: Story) -> None:
        kill = story.next_kill
        if kill is not None and not story.waits_for_a_moment and story.standing is None:
            self.stage.set(story.name, kill.point, kill.batch, kill.nth)

    def _hear(self) -> None:
        """What the driver says, and who stands at a point."""
        assert self.driver is not None
        with contextlib.suppress(queue.Empty):
            while True:
                said = self.driver.events.get_nowait()
                if said is None:
                    raise self._failed("the driver died without a kill")
                story = next(each for each in self.stories if each.name == said["query"])
                if said["event"] == "ended":
                    self._ended(story, said)
        for each in self.stories:
            if each.standing is None and each.next_kill is not None:
                each.standing = self.stage.standing(each.name)

    def _ended(self, story: Story, said: dict[str, str | None]) -> None:
        if said["error"] is None:
            story.finished = True
            self.stage.clear(story.name)
            self.say(f"{story.name}: finished")
        else:
            story.errors.append(str(said["trace"]))
            self.say(f"{story.name}: {said['error']}")
            self._start(story)

    def audit(self) -> list[str]:
        """What is wrong in the broker's files, by the audit; the broker has to be ended."""
        assert self.driver is not None
        self.driver.order(
            audit={"data": str(self._directory / "data"), "out": str(self._directory / "audit")}
        )
        said = self.driver.events.get(timeout=TEST_S)
        if said is None:
            raise self._failed("the driver died while it audited")
        return [str(each) for each in said["violations"]]

    # ---- who dies

    def _workers_die(self) -> None:
        for story in self.stories:
            if story.victim != WORKER:
                continue
            if story.its_moment_has_come:
                # Who stands somewhere is kept for the death that is planned there.
                standing = {self.stage.standing(each.name) for each in self.stories}
                workers = self.driver.workers() if self.driver else []
                free = [each.pid for each in workers if each.pid not in standing]
                if free:
                    self._worker_dies(story, self._rng.choice(free))
            elif story.standing is not None:
                self._worker_dies(story, story.standing)

    def _worker_dies(self, story: Story, pid: int) -> None:
        self._node_dies(story)
        self.say(f"{story.name}: {story.done()}")
        # The next one may be at what follows from this death.
        self._set_stage(story)
        signal_to(pid, signal.SIGKILL)

    def _due(self) -> list[Story]:
        """The stories for which the driver dies now: all have arrived at their points, and their time has come."""
        waiting = [each for each in self.stories if each.waits_for_the_driver]
        there = [each for each in waiting if each.standing is not None]
        if not there:
            self._gathering = Stopwatch()
        if len(there) < len(waiting) and not self._gathering.has_run_s(GATHER_S):
            return []
        return there + [each for each in self.stories if each.victim != WORKER and each.its_moment_has_come]

    def driver_dies(self, due: Sequence[Story] = ()) -> None:
        """For those who are due; it hits all the others where they are. With none due, all of it dies."""
        assert self.driver is not None
        alone = [each.standing for each in due if each.victim == DRIVER and each.standing is not None]
        for each in due:
            self._node_dies(each)
            if each.victim == BOTH and each.standing is not None:
                signal_to(each.standing, signal.SIGKILL)
        if any(each.victim in (DRIVER, ZOMBIE) for each in due):
            self.driver.kill()
            self._past.append(self.driver)
        else:
            self.driver.kill_all()
        self.driver = None
        for each in self.stories:
            if each in due:
                self._dead(each)
            elif not each.finished:
                if each.caught_by_others():
                    self.stage.clear(each.name)
                # Who stood there for another death stands there no more.
                if each.standing is not None:
                    signal_to(each.standing, signal.SIGKILL)
                    each.standing = None
        for pid in alone:
            signal_to(pid, signal.SIGCONT)

    def _dead(self, story: Story) -> None:
        pid = story.standing
        kill = story.done()
        if kill.victim == ZOMBIE and pid is not None:
            story.put_to_sleep(pid, kill)
        elif kill.victim == DRIVER and pid is not None:
            story.woken.append(pid)
        self.say(f"{story.name}: {kill}")

    def _late_ones_arrive(self) -> None:
        for story in self.stories:
            for pid in story.wake():
                self.say(f"{story.name}: zombie {pid} wakes")
            if late := story.late():
                self.say(f"{story.name}: {late} of {story.plan.fault} arrive late")

    # ---- nodes

    def _node_dies(self, story: Story) -> None:
        """One at a time: two of three are what a write needs."""
        if not story.plan.node or self._node_down is not None:
            return
        topic = story.output if story.plan.node == "leader" else "__transaction_state"
        known = self._admin.list_topics(topic, timeout=HANG_S).topics[topic].partitions
        led = [int(each.leader) for each in known.values() if each.leader > 0]
        if led:
            self._node_down = (self._rng.choice(led), story, story.written())
            self.broker.nodes[self._node_down[0]].kill()
            self.say(f"{story.name}: node {self._node_down[0]} dies with it")

    def _node_comes_back(self) -> None:
        """Once the story has got on without it."""
        if self._node_down is not None:
            _, story, before = self._node_down
            if story.finished or story.written() > before:
                self._start_node()

    def _start_node(self) -> None:
        if self._node_down is not None:
            self.broker.nodes[self._node_down[0]].start()
            self.say(f"node {self._node_down[0]} is back")
            self._node_down = None

    # ---- what is said

    def say(self, what: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {what}")

    def _failed(self, what: str) -> MatrixFailed:
        state = [
            f"{each.name}: {each.plan}; run {each.runs}, finished {each.finished}, stands {each.standing}"
            for each in self.stories
        ]
        return MatrixFailed("\n".join([what, *state, *self.log[-40:]]))
