"""One run: a broker of three nodes, its clients, a plan of faults, and the checks.

A failed run leaves its directory behind (with ``ODRADEK_CHAOS_KEEP=1`` every run does). The directory contains the
plan, the records of the clients, the trace of the last requests, the broker's log, and the data of every node. To
repeat the plan, set ``ODRADEK_CHAOS_PLAN`` to its path.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from odradek import Broker
from tests.chaos import aiokafka_actors, confluent_actors, end
from tests.chaos.actors import ACKNOWLEDGED, JOBS, PARTITIONS, SINK, TRANSFERS, Stage
from tests.chaos.checks import complaints
from tests.chaos.director import Director
from tests.chaos.history import History, to_json
from tests.chaos.plan import Plan
from tests.support.deadlines import HANG_S, Deadline

NODES = 3
SETTINGS = {
    "default.replication.factor": NODES,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1_500,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
FINISH_S = HANG_S
"""Seconds for clients to finish their work after the last fault has ended."""
GIVE_UP_S = HANG_S
EXCHANGES_KEPT = 10_000


class ChaosFailed(AssertionError):
    """Violations of a run, and the directory with its files."""


class Company:
    """All actors of a run, each in a thread. An exception of an actor counts as a violation."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._threads: list[threading.Thread] = []
        self.deaths: list[str] = []

    def play(self) -> None:
        stage = self._stage
        parts: dict[str, Callable[[], object]] = {
            "aiokafka": lambda: asyncio.run(aiokafka_actors.perform(stage)),
            "source": partial(confluent_actors.source, stage, "source"),
            "transfers": partial(confluent_actors.transfers, stage, "transfers"),
            "acknowledged": partial(confluent_actors.acknowledged, stage, "acknowledged"),
            "worker-1": partial(confluent_actors.worker, stage, "worker-1"),
            "worker-2": partial(confluent_actors.worker, stage, "worker-2"),
            "committed": partial(
                confluent_actors.reader, stage, "committed", [TRANSFERS, SINK], committed_only=True
            ),
            "everything": partial(
                confluent_actors.reader, stage, "everything", [TRANSFERS, ACKNOWLEDGED], committed_only=False
            ),
        }
        for who, part in parts.items():
            thread = threading.Thread(target=self._live, args=(who, part), name=who, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _live(self, who: str, part: Callable[[], object]) -> None:
        try:
            part()
        except Exception:
            self.deaths.append(f"{who} died:\n{traceback.format_exc()}")

    def finish(self) -> list[str]:
        """Make all actors end, and return their violations."""
        self._stage.ending.set()
        self._join(FINISH_S)
        late = [
            f"{thread.name}: still busy {FINISH_S} s after the last fault:\n{_stack(thread)}"
            for thread in self._threads
            if thread.is_alive()
        ]
        self._stage.given_up.set()
        self._join(GIVE_UP_S)
        return [*self.deaths, *late]

    def _join(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        for thread in self._threads:
            thread.join(deadline.left_s)


def _stack(thread: threading.Thread) -> str:
    """The last six frames of the thread's stack, as text."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)[-6:])


def run(plan: Plan, seconds: float, directory: Path) -> str:
    """Run a plan for at most ``seconds`` and return a summary line. Raises ``ChaosFailed`` if a check failed."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "plan.json").write_text(plan.to_json())
    history = History()
    found: list[str] = []
    said = ""
    try:
        said = _play(plan, seconds, directory, history, found)
    except Exception:
        found.append(traceback.format_exc())
    if not found:
        found += end.different_replicas(directory / "data", NODES)
    if found:
        (directory / "complaints.txt").write_text("\n".join(found))
        raise ChaosFailed(
            "\n".join([*found[:20], "", str(plan), "", f"The files of the run are in {directory}"])
        )
    if not os.environ.get("ODRADEK_CHAOS_KEEP"):
        shutil.rmtree(directory)
    return said


def _play(plan: Plan, seconds: float, directory: Path, history: History, found: list[str]) -> str:
    broker = Broker(NODES, PARTITIONS, SETTINGS, data_dir=directory / "data")
    at_the_end = None
    try:
        with broker:
            broker.trace.start()
            stage = Stage(broker.bootstrap_servers, history, plan.seed)
            company, director = Company(stage), Director(broker, plan, stage)
            company.play()
            director.direct(seconds)
            requests = director.requests()
            director.end()
            found += director.storm.end()
            found += company.finish()
            found += end.settled(broker.bootstrap_servers)
            if found:
                _keep_trace(broker, directory / "trace.jsonl")
            at_the_end = end.look(broker.bootstrap_servers)
            wrong = complaints(history, at_the_end, JOBS)
            if plan.is_gentle:
                wrong += [
                    f"fatal error of a producer, though no fault ends producers: {each}"
                    for each in history.fatal
                ]
            if wrong and not found:
                _keep_trace(broker, directory / "trace.jsonl")
            found += wrong
            (directory / "broker.log").write_text("\n".join(broker.log))
    finally:
        (directory / "history.json").write_text(to_json(history, at_the_end))
    return _said(history, director, requests)


def _keep_trace(broker: Broker, path: Path) -> None:
    with path.open("w") as file:
        for exchange in broker.trace.entries(limit=EXCHANGES_KEPT):
            file.write(json.dumps(exchange) + "\n")


def _said(history: History, director: Director, requests: int) -> str:
    outcomes = [each.outcome.value for each in history.transactions]
    counted = ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes)))
    return (
        f"{requests} requests, {director.done} steps, {director.storm.connects} connects; "
        f"transactions: {counted}; {len(history.sends)} sends"
    )
