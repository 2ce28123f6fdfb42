"""Inject the faults of one plan while the job runs: a rule at the broker, and an action when the rule is hit."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.plans.faults import Act
from odradek.certify.plans.plan import Injection, Plan
from odradek.certify.runs.acts import perform
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.holding import HeldMoment
from odradek.certify.runs.scene import Scene, Strike
from odradek.certify.runs.timekeeping import Timekeeping
from odradek.certify.services.calls import ServiceRule
from odradek.certify.services.service import Services
from odradek.certify.workload import Seed
from odradek.errors import FaultNotHit, OdradekError
from odradek.remote import Rule

HIT_PAUSE_S: Final = 0.2
"""Timeout of one call that waits for a hit; the end of a run may have to wait this long."""


class Staging:
    """Injects the faults of a plan into one run: adds their rules to the broker, and performs the actions (`Act`).

    With ``holds``, the broker first holds the request or step at which a fault is due, and `next_held` returns it. The fault
    is injected when `go_on` of that `HeldMoment` is called.
    """

    def __init__(
        self,
        cluster: Cluster,
        services: Services,
        job: Job,
        plan: Plan,
        is_done: Callable[[], bool],
        seeds: Sequence[Seed] = (),
        *,
        holds: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holds = holds
        self._held: queue.SimpleQueue[HeldMoment] = queue.SimpleQueue()
        self._cluster, self._broker, self._job, self._plan = cluster, cluster.handle, job, plan
        self._services = services
        self._rules: list[Rule | ServiceRule] = []
        self._acting: list[tuple[Rule | ServiceRule, threading.Thread]] = []
        self._missed: set[int] = set()
        """Indices of injections whose held request or step ended before the fault could be injected."""
        self.notes: list[str] = []
        """The actions of the certifier, in order."""
        self.noted: list[tuple[int, str]] = []
        """The actions while the job was running, with their times in us since the epoch, by the clock of the trace."""
        self.without_effect: dict[int, str] = {}
        """Faults that were hit without effect: index in the plan -> reason."""
        self.time = Timekeeping(cluster, job, self._expelled, self._note, now_s, services)
        self._scene = Scene(cluster, services, job, self.time, seeds, is_done, self._note)

    def _note(self, said: str) -> None:
        self.noted.append((self._services.now_us(), said))
        self.notes.append(said)

    def begin(self) -> None:
        for at, injection in enumerate(self._plan.injections):
            rule = self._add(injection, injection.holding_rule if self._holds else injection.rule)
            self._rules.append(rule)
            if self._holds or injection.fault.act is not Act.NOTHING:
                thread = threading.Thread(target=self._act, args=(injection, at), daemon=True)
                thread.start()
                self._acting.append((rule, thread))

    def _add(self, injection: Injection, rule: str) -> Rule | ServiceRule:
        if injection.moment.service:
            return self._services.add_rule(injection.moment.service, rule)
        return self._broker.faults.add(rule)

    def next_held(self) -> HeldMoment | None:
        """The next request or step that is held before its fault; None if there is none now."""
        with contextlib.suppress(queue.Empty):
            return self._held.get_nowait()
        return None

    @property
    def is_over(self) -> bool:
        """Whether no action is in progress: each has ended, or its rule has not been hit."""
        return not any(thread.is_alive() and rule.hits for rule, thread in self._acting)

    def hits(self) -> list[int]:
        return [0 if at in self._missed else rule.hits for at, rule in enumerate(self._rules)]

    def release(self) -> bool:
        """Release the requests that rules still hold, so that the broker handles them in this run.

        Returns False if no request was held.
        """
        held = False
        for rule in self._rules:
            if rule.held:
                held = True
                rule.release()
        return held

    def end(self) -> None:
        self._scene.ended.set()
        for _, thread in self._acting:
            thread.join()

    def _act(self, injection: Injection, at: int) -> None:
        with contextlib.suppress(OdradekError):
            is_hit = self._await_hit(self._rules[at])
            if is_hit and self._holds:
                is_hit = self._stand_still(injection, at)
            if is_hit and (why := perform(self._scene, Strike(injection, self._rules[at]))):
                self.without_effect[at] = why

    def _await_hit(self, rule: Rule | ServiceRule) -> bool:
        """Wait until the rule is hit. Returns False if the run ends first."""
        while not self._scene.ended.is_set():
            with contextlib.suppress(FaultNotHit):
                rule.wait(timeout_s=HIT_PAUSE_S)
                return not self._scene.ended.is_set()
        return False

    def _stand_still(self, injection: Injection, at: int) -> bool:
        """Wait for `go_on` of the held moment, then inject the fault.

        Returns False if the run or the held request ended before the injection.
        """
        holding = self._rules[at]
        held = self._seen(Strike(injection, holding))
        self._held.put(held)
        while not held.went_on.wait(HIT_PAUSE_S):
            if self._scene.ended.is_set():
                return False
        striking = self._add(injection, injection.striking_rule)
        holding.release(to=striking)  # type: ignore[arg-type]  # both are rules of the same service
        if not striking.hits:
            striking.remove()  # otherwise it would hit a later request
            self._missed.add(at)
            return False
        self._rules[at] = striking
        return True

    def _seen(self, strike: Strike) -> HeldMoment:
        owner = None if strike.injection.moment.is_step else self._scene.sender(strike)
        return HeldMoment(
            strike.injection,
            self._cluster.bootstrap_servers,
            self._cluster.control_url,
            [(each.number, each.processes()) for each in self._job.alive],
            owner.number if owner else None,
        )

    def _expelled(self) -> int:
        """Number of members that a rule has rejected with UNKNOWN_MEMBER_ID."""
        return sum(rule.hits for rule in self._rules if "UNKNOWN_MEMBER_ID" in rule.text)
