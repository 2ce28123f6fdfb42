"""The objects of one run that the certifier's actions use, and the fault that calls for an action."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from odradek.certify.jobs.instance import Instance
from odradek.certify.jobs.job import Job, wait_until
from odradek.certify.plans.plan import Injection
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.observation import Entry, Observation
from odradek.certify.runs.timekeeping import Timekeeping
from odradek.certify.services.calls import Call, ServiceRule
from odradek.certify.services.service import Services
from odradek.certify.workload import Seed
from odradek.remote import Rule

_LOOK_S: Final = 0.03


@dataclass(slots=True)
class Scene:
    """The objects of one run that the certifier's actions use."""

    cluster: Cluster
    services: Services
    job: Job
    time: Timekeeping
    seeds: Sequence[Seed]
    is_done: Callable[[], bool]
    """Function that returns whether the job has done its work."""
    note: Callable[[str], object]
    """Function that is called with a sentence about each action."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Event that is set at the end of the run."""
    observation: Observation = field(init=False)

    def __post_init__(self) -> None:
        self.observation = Observation(self.cluster.handle)

    def sender(self, strike: Strike) -> Instance | None:
        """The instance that sent the request which the rule has hit; None if it has ended."""
        alive = self.job.alive
        if len(alive) < 2:
            return alive[0] if alive else None
        if strike.call is not None:
            return self.job.owner(strike.call.peer)
        exchange = self.observation.struck(strike.injection)
        return self.job.owner(exchange["peer"]) if exchange else alive[0]

    def is_handled(self, strike: Strike) -> bool:
        """Whether the broker, or the service, has handled the request whose response is lost."""
        if strike.call is not None:
            return strike.call.is_over
        found = self.observation.struck(strike.injection)
        return found is not None and found["outcome"] == "answer_lost"

    def released(self, strike: Strike) -> Callable[[], bool]:
        """Release the held request, and return a function that tells whether it is over."""
        held: Entry | None = None if strike.call is not None else self.observation.struck(strike.injection)
        strike.rule.release()
        call = strike.call
        if call is not None:
            return lambda: call.is_over
        return (lambda: True) if held is None else partial(self.observation.is_over, held)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition is met, the timeout passes, or the run ends."""
        wait_until(lambda: holds() or self.ended.wait(_LOOK_S), timeout_s)


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault of the plan whose rule has been hit, with the rule."""

    injection: Injection
    rule: Rule | ServiceRule

    @property
    def call(self) -> Call | None:
        """The request that was hit, if it is one of a service besides Kafka."""
        return self.rule.call if isinstance(self.rule, ServiceRule) else None

    @property
    def matchers(self) -> Mapping[str, str]:
        return dict(self.injection.moment.matchers)
