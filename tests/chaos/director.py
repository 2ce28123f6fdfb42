"""Carries out a plan while clients run: each step when its number of requests has arrived at the broker."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from typing import Any

from odradek import Broker
from odradek.deadlines import stretched
from odradek.errors import ControlRefused
from odradek.remote import Rule
from tests.chaos.actors import Stage
from tests.chaos.history import Place
from tests.chaos.plan import NODES, Plan, Step
from tests.chaos.storm import Storm, move
from tests.support.deadlines import Deadline, Stopwatch

COUNTER = "* p=0 -> delay 0ms"
"""A rule that matches every request and never acts, to count requests."""
POLL_S = 0.02
PATIENCE_S = stretched(4.0)
"""Seconds after which a fault ends even if its number of requests has not arrived: blocked clients send none."""

STEPS_MIN = 8
STARTS_MAX = 20
"""Maximum attempts to start one node: a fault rule may kill the node during its start."""
GUST_S = 0.1
"""Seconds for which clients connect before a node is killed."""


class Director:
    def __init__(self, broker: Broker, plan: Plan, stage: Stage) -> None:
        self._broker = broker
        self._stage = stage
        self._steps = list(plan.steps)
        self._behind = 0
        """Requests that arrived while steps of the plan were carried out. Later steps are delayed by this number."""
        self._rules: defaultdict[str, list[Rule]] = defaultdict(list)
        self._counter = broker.faults.add(COUNTER)
        self._moved: set[Place] = set()
        self._ports = {node_id: _port(broker.nodes[node_id].show()) for node_id in broker.nodes}
        self.storm = Storm(self._ports)
        self.storm.start()
        self.done = 0

    def requests(self) -> int:
        """Number of requests that have arrived so far."""
        return self._counter.matches

    def direct(self, seconds: float) -> None:
        """Carry out steps for this many seconds, and at least ``STEPS_MIN`` steps, however slow the machine is."""
        run = Deadline(seconds)
        since_the_last = Stopwatch()
        while self._steps and (not run.is_over or self.done < STEPS_MIN):
            step = self._steps[0]
            stuck = step.do in ("unrule", "start") and since_the_last.has_run_s(PATIENCE_S)
            if stuck or self.requests() >= step.at + self._behind:
                self._carry_out(self._steps.pop(0))
                self._behind = max(self._behind, self.requests() - step.at)
                self.done += 1
                since_the_last = Stopwatch()
            else:
                time.sleep(POLL_S)
        time.sleep(run.left_s)

    def end(self) -> None:
        """Undo all faults."""
        for text in list(self._rules):
            self._unrule(text)
        self._broker.faults.clear()
        self._start_all()
        for place in self._moved:
            self._move(place, list(NODES))

    def _carry_out(self, step: Step) -> None:
        self._stage.note("director", f"{self.requests()}: {step}")
        match step.do:
            case "rule":
                self._rules[step.rule].append(self._broker.faults.add(step.rule))
            case "unrule":
                self._unrule(step.rule)
            case "kill" | "stop":
                # A rule may have killed the node already.
                if self._broker.nodes[step.node].state == "running":
                    self._take_away(step)
            case "move":
                topic, _, partition = step.place.rpartition("-")
                self._move(Place(topic, int(partition)), list(step.replicas))
            case "start":
                self._start_all()
            case "advance":
                self._broker.clock.advance(step.by, step.only or ())
            case other:
                raise ValueError(f"unknown action in the plan: {other!r}")

    def _unrule(self, text: str) -> None:
        for rule in self._rules.pop(text, ()):
            self._stage.note("director", f"{rule}: {rule.matches} matches, {rule.hits} hits")
            rule.release()
            rule.remove()

    def _take_away(self, step: Step) -> None:
        node = self._broker.nodes[step.node]
        with self.storm.gust(step.node):
            time.sleep(GUST_S)
            # A rule may have killed the node already, or kill it during the stop.
            with contextlib.suppress(ControlRefused):
                node.kill() if step.do == "kill" else node.stop()
        if node.state != "running":
            self.storm.examine(step.node)

    def _move(self, place: Place, replicas: list[int]) -> None:
        """Reassign a partition. Any running node forwards the request to the controller."""
        self._moved.add(place)
        for node_id in NODES:
            if self._broker.nodes[node_id].state == "running":
                move(self._ports[node_id], place, replicas)
                return

    def _start_all(self) -> None:
        for node_id in list(self._broker.nodes):
            node = self._broker.nodes[node_id]
            if node.state == "running":
                continue
            self.storm.examine(node_id)
            for _ in range(STARTS_MAX):
                try:
                    node.start()
                    break
                except ControlRefused as refusal:
                    self._stage.note("director", f"node {node_id} does not start: {refusal}")


def _port(node: dict[str, Any]) -> int:
    return int(node["listeners"][0]["address"].rpartition(":")[2])
