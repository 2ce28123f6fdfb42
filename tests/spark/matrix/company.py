"""Several plans that run at the same time on one broker and one driver.

A driver takes ten seconds to start, so each kill of the driver serves many queries: a query whose plan kills the driver
at a point (a step of the sink) stops there until all other such queries have stopped at their points (``stage.py``).
Then the driver is killed for all of them. For every other running query this is a kill at a random step.

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
"""How often a query may be started: a query that needs more starts makes no progress."""
POLL_S = 0.05
GATHER_S = stretched(90.0)
"""How long a kill of the driver waits until other queries reach their points; later queries wait for the next kill."""
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
    """The errors of a run, and the directory with its plans, logs and data."""


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
        """Killed drivers, whose Python workers may still run."""
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

    # ---- running the plans

    def play(self) -> list[Outcome]:
        """Start, kill and restart the queries until each has finished, and return their outcomes."""
        self.until(lambda: all(each.finished for each in self.stories), "all queries have finished")
        self._start_node()
        self._release_late()
        zombies = [pid for each in self.stories for pid in each.woken]
        # Zombies end when they write to Spark, because nothing reads their output.
        eventually(lambda: not any(map(state_of, zombies)), "zombies have ended")
        return [each.outcome() for each in self.stories]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Continue all plans until ``condition`` is true. Raises ``MatrixFailed`` after ``PLAY_S`` seconds.

        ``what``: the condition in words, for the error message.
        """
        if self.driver is None:
            self.start_driver()
        deadline = Deadline(PLAY_S)
        while not condition():
            if deadline.is_over:
                raise self._failed(f"not within {PLAY_S:.0f} s: {what}")
            self._read_events()
            self._kill_workers()
            self._restart_node()
            self._release_late()
            due = self._due()
            if due:
                self.kill_driver(due)
                self.start_driver()
            time.sleep(POLL_S)

    def start_driver(self) -> None:
        """Start a driver, and in it every query that is not finished."""
        self.drivers += 1
        environment = {**self.stage.environment, **sinks.environment(self._directory)}
        # A task that stops at a point occupies a core.
        standing = sum(kill.point.startswith("task.") for each in self.stories for kill in each.plan.kills)
        self.driver = DriverProcess(self._directory / "driver.log", CORES + standing, environment)
        self.driver.until_ready()
        for each in self.stories:
            if not each.finished:
                self._start(each)

    def _start(self, story: Story) -> None:
        if story.runs == RUNS_MAX:
            raise self._failed(
                f"{story.name} was started {RUNS_MAX} times without finishing:\n{story.errors[-1]}"
            )
        assert self.driver is not None
        # If a kill of other queries hit this one on its way to its point, the count of its steps continues.
        if not self.stage.is_set(story.name):
            self._set_stage(story)
        self.say(f"{story.name}: run {story.runs}, next {story.next_kill}")
        self.driver.order(start=story.query(str(self._directory / "checkpoints" / story.name)))
        story.runs += 1

    def _set_stage(self, story: Story) -> None:
        kill = story.next_kill
        if kill is not None and not story.waits_for_a_moment and story.standing is None:
            self.stage.set(story.name, kill.point, kill.batch, kill.nth)

    def _read_events(self) -> None:
        """Handle the driver's events, and notice queries that have stopped at their points."""
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
        """The audit's findings in the broker's files. The broker must have stopped."""
        assert self.driver is not None
        self.driver.order(
            audit={"data": str(self._directory / "data"), "out": str(self._directory / "audit")}
        )
        said = self.driver.events.get(timeout=TEST_S)
        if said is None:
            raise self._failed("the driver died while it audited")
        return [str(each) for each in said["violations"]]

    # ---- kills

    def _kill_workers(self) -> None:
        for story in self.stories:
            if story.victim != WORKER:
                continue
            if story.its_moment_has_come:
                # A process that has stopped at a point stays for the kill that is planned there.
                standing = {self.stage.standing(each.name) for each in self.stories}
                workers = self.driver.workers() if self.driver else []
                free = [each.pid for each in workers if each.pid not in standing]
                if free:
                    self._kill_worker(story, self._rng.choice(free))
            elif story.standing is not None:
                self._kill_worker(story, story.standing)

    def _kill_worker(self, story: Story, pid: int) -> None:
        self._kill_node(story)
        self.say(f"{story.name}: {story.record_kill()}")
        # The next kill may be at a step that results from this one.
        self._set_stage(story)
        signal_to(pid, signal.SIGKILL)

    def _due(self) -> list[Story]:
        """The stories for which the driver is killed now, as they have stopped at their points.

        Empty while other stories have yet to reach their points, for at most ``GATHER_S`` seconds. Stories with a
        kill at a ``MOMENT`` are included if their output has the planned share of records.
        """
        waiting = [each for each in self.stories if each.waits_for_the_driver]
        there = [each for each in waiting if each.standing is not None]
        if not there:
            self._gathering = Stopwatch()
        if len(there) < len(waiting) and not self._gathering.has_run_s(GATHER_S):
            return []
        return there + [each for each in self.stories if each.victim != WORKER and each.its_moment_has_come]

    def kill_driver(self, due: Sequence[Story] = ()) -> None:
        """Kill the driver: for the stories in ``due`` as their plans say, for all other stories at a random step.

        The Python workers survive if the victim of a story in ``due`` is only the driver, or a zombie.
        """
        assert self.driver is not None
        alone = [each.standing for each in due if each.victim == DRIVER and each.standing is not None]
        for each in due:
            self._kill_node(each)
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
                self._record_kill(each)
            elif not each.finished:
                if each.record_random_kill():
                    self.stage.clear(each.name)
                # A process that stopped for another kill is gone.
                if each.standing is not None:
                    signal_to(each.standing, signal.SIGKILL)
                    each.standing = None
        for pid in alone:
            signal_to(pid, signal.SIGCONT)

    def _record_kill(self, story: Story) -> None:
        pid = story.standing
        kill = story.record_kill()
        if kill.victim == ZOMBIE and pid is not None:
            story.put_to_sleep(pid, kill)
        elif kill.victim == DRIVER and pid is not None:
            story.woken.append(pid)
        self.say(f"{story.name}: {kill}")

    def _release_late(self) -> None:
        for story in self.stories:
            for pid in story.wake():
                self.say(f"{story.name}: zombie {pid} wakes")
            if late := story.late():
                self.say(f"{story.name}: {late} of {story.plan.fault} arrive late")

    # ---- nodes

    def _kill_node(self, story: Story) -> None:
        """Kill a leader or coordinator, whichever the story's plan names, unless a node is down already.

        Writes need two of the three nodes.
        """
        if not story.plan.node or self._node_down is not None:
            return
        topic = story.output if story.plan.node == "leader" else "__transaction_state"
        known = self._admin.list_topics(topic, timeout=HANG_S).topics[topic].partitions
        led = [int(each.leader) for each in known.values() if each.leader > 0]
        if led:
            self._node_down = (self._rng.choice(led), story, story.written())
            self.broker.nodes[self._node_down[0]].kill()
            self.say(f"{story.name}: node {self._node_down[0]} dies with it")

    def _restart_node(self) -> None:
        """Restart the killed node when the story for which it was killed has made progress without it."""
        if self._node_down is not None:
            _, story, before = self._node_down
            if story.finished or story.written() > before:
                self._start_node()

    def _start_node(self) -> None:
        if self._node_down is not None:
            self.broker.nodes[self._node_down[0]].start()
            self.say(f"node {self._node_down[0]} is back")
            self._node_down = None

    # ---- log and errors

    def say(self, what: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {what}")

    def _failed(self, what: str) -> MatrixFailed:
        state = [
            f"{each.name}: {each.plan}; run {each.runs}, finished {each.finished}, stands {each.standing}"
            for each in self.stories
        ]
        return MatrixFailed("\n".join([what, *state, *self.log[-40:]]))
