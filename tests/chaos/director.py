"""Carries a plan out while clients work: each step once so many requests have arrived at the broker."""

from __future__ import annotations

import time
from collections import defaultdict

from odradek import Broker
from tests.chaos.actors import Stage
from tests.chaos.plan import Plan, Step

COUNTER = "* p=0 -> delay 0ms"
"""A rule that takes hold of nothing, and counts everything."""
POLL_S = 0.02
PATIENCE_S = 4.0
"""So long the end of a trouble waits for its requests: what stands still asks for nothing."""

STEPS_MIN = 8


class Director:
    def __init__(self, broker: Broker, plan: Plan, stage: Stage) -> None:
        self._broker = broker
        self._stage = stage
        self._steps = list(plan.steps)
        self._behind = 0
        """Requests that came in while steps were carried out: what follows is later by as much, and lasts as long."""
        self._rules: defaultdict[str, list[object]] = defaultdict(list)
        self._counter = broker.faults.add(COUNTER)
        self.done = 0

    def requests(self) -> int:
        """How many have arrived so far."""
        return self._counter.matches

    def direct(self, seconds: float) -> None:
        """Return when the time is over; on a machine that is slow not before a few things went wrong."""
        over = time.monotonic() + seconds
        last = time.monotonic()
        while self._steps and (time.monotonic() < over or self.done < STEPS_MIN):
            step, now = self._steps[0], time.monotonic()
            stuck = step.do in ("unrule", "start") and now - last > PATIENCE_S
            if stuck or self.requests() >= step.at + self._behind:
                self._carry_out(self._steps.pop(0))
                self._behind = max(self._behind, self.requests() - step.at)
                self.done += 1
                last = time.monotonic()
            else:
                time.sleep(POLL_S)
        time.sleep(max(0.0, over - time.monotonic()))

    def end(self) -> None:
        """Everything that was done to the broker is undone."""
        for text in list(self._rules):
            self._unrule(text)
        self._broker.faults.clear()
        self._start_all()

    def _carry_out(self, step: Step) -> None:
        self._stage.note("director", f"{self.requests()}: {step}")
        match step.do:
            case "rule":
                self._rules[step.rule].append(self._broker.faults.add(step.rule))
            case "unrule":
                self._unrule(step.rule)
            case "kill" | "stop":
                # It may be down already: a rule kills nodes too.
                if self._broker.nodes[step.node].state == "running":
                    getattr(self._broker.nodes[step.node], step.do)()
            case "start":
                self._start_all()
            case "advance":
                self._broker.clock.advance(step.by, step.only or ())
            case other:
                raise ValueError(f"a plan has no {other!r}")

    def _unrule(self, text: str) -> None:
        for rule in self._rules.pop(text, ()):
            self._stage.note("director", f"{rule}: {rule.matches} matches, {rule.hits} hits")
            rule.release()
            rule.remove()

    def _start_all(self) -> None:
        for node in [self._broker.nodes[node_id] for node_id in self._broker.nodes]:
            if node.state != "running":
                node.start()
