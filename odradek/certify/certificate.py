"""The results of a certification so far: the matrix of requests and faults, the failures, and the verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek.certify.judging.findings import Finding, kinds_of
from odradek.certify.judging.mechanisms import Mechanism
from odradek.certify.judging.rows import Fields
from odradek.certify.lints import Lint
from odradek.certify.outcome import Verdict
from odradek.certify.plans import requirements
from odradek.certify.plans.exploration import Coverage, Exploration
from odradek.certify.plans.plan import Cell, Plan
from odradek.certify.plans.requirements import Requirement
from odradek.certify.runs.run import Run
from odradek.certify.workload import Delivery, Workload


@dataclass(slots=True)
class Failure:
    """A plan (the faults of one run) under which the job's outputs are wrong or the job does not finish."""

    plan: Plan
    findings: list[Finding]
    run: Run
    diagnosis: list[Lint]
    """Causes of the failure that the evidence of the failed run shows; empty if unknown."""
    came_back: int = 0
    tried: int = 0

    @property
    def is_seldom(self) -> bool:
        return self.came_back < self.tried

    @property
    def kinds(self) -> tuple[str, ...]:
        return kinds_of(self.findings)

    @property
    def certainty(self) -> tuple[float, int]:
        """Sort key, greater for a more certain failure.

        First the fraction of tries in which the failure came back, then the negative number of faults.
        """
        return self.came_back / max(1, self.tried), -len(self.plan)


@dataclass(slots=True)
class Certificate:
    """The results of a certification so far."""

    workload: Workload
    seed: int
    profile: str = "full"
    exploration: Exploration | None = None
    reference_s: float = 0.0
    ignored: Fields = frozenset()
    lints: list[Lint] = field(default_factory=list)
    """Warnings from the traces of the runs without faults. They do not influence the verdict."""
    mechanisms: list[Mechanism] = field(default_factory=list)
    """Mechanisms seen in the runs without faults that can make the job exactly once."""
    caps: list[Lint] = field(default_factory=list)
    """Lints (dangerous requests in the traces) that defeat all of ``mechanisms``: the verdict is then "no promise"."""
    failures: list[Failure] = field(default_factory=list)
    unfinished: list[Failure] = field(default_factory=list)
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """The promise that is examined."""
    redelivered: int = 0
    """Number of runs with duplicates that the comparison or the promise allows."""
    remarks: list[str] = field(default_factory=list)
    """Remarks on how the runs were judged: the condition for their end, fields that were not compared."""
    not_judged: str = ""
    """Why the job cannot be judged, for the verdict "not judged"; empty if the job can be judged."""
    interrupted: bool = False
    runs: int = 0
    began: float = field(default_factory=time.monotonic)
    plans_began: float | None = None
    took_s: float = 0.0
    clients: dict[str, str] = field(default_factory=dict)
    """Client libraries and their versions, as announced in ApiVersions requests."""

    @property
    def promise(self) -> str:
        """The promise that is examined, as words: ``exactly once`` or ``at least once``."""
        return self.delivery.value.replace("-", " ")

    @property
    def is_at_least_once(self) -> bool:
        return self.delivery is Delivery.AT_LEAST_ONCE

    @property
    def verdict(self) -> Verdict:
        """The verdict so far, by the precedence in `odradek.certify.outcome`."""
        if self.failures:
            return Verdict.FAILED
        if self.not_judged:
            return Verdict.NOT_JUDGED
        if self.interrupted:
            return Verdict.INTERRUPTED
        if self.exploration is not None and (self.caps or not self.mechanisms):
            return Verdict.NO_PROMISE
        return Verdict.CLEAN if self._has_ground else Verdict.INCOMPLETE

    @property
    def _has_ground(self) -> bool:
        was_killed = any(fault in requirements.KILLS for _, fault in self._clean)
        return bool(self.needed) and was_killed and not self.unmet and not self.unfinished

    @property
    def _clean(self) -> list[Cell]:
        return [cell for cell, state in self.cells.items() if state is Coverage.CLEAN]

    @property
    def needed(self) -> Sequence[Requirement]:
        """The (API, fault) pairs that must be tried for a certificate; empty until the reference runs have ended."""
        return self.exploration.needed if self.exploration is not None else ()

    @property
    def unmet(self) -> Sequence[Requirement]:
        return self.exploration.unmet if self.exploration is not None else ()

    def why_unmet(self, requirement: Requirement) -> str:
        """Why the last run that tried this fault at this API did not meet the requirement; empty without such a run."""
        return self.exploration.reasons.get(requirement, "") if self.exploration is not None else ""

    @property
    def met(self) -> int:
        return len(self.needed) - len(self.unmet)

    @property
    def cells(self) -> Mapping[Cell, Coverage]:
        """State of each cell (class of requests, fault) of the matrix; empty until the reference runs have ended."""
        return self.exploration.cells if self.exploration is not None else {}

    def covered(self) -> Counter[Coverage]:
        return Counter(self.cells.values())

    @property
    def wait_s(self) -> float:
        """Estimated duration of a run in which a response never arrives, in seconds."""
        return requirements.wait_s(self.clients) + self.reference_s

    def missing_s(self) -> float:
        """Estimated time in seconds to meet the remaining requirements (API, fault), at the pace of the runs so far.

        Runs in which a response never arrives count less, because several of them run in parallel.
        """
        fast = [each for each in self.unmet if not requirements.is_slow(each)]
        slow = len(self.unmet) - len(fast)
        tried = max(1, self.runs - 2)
        passed_s = time.monotonic() - self.plans_began if self.plans_began is not None else 0.0
        pace_s = max(self.reference_s, min(passed_s / tried, 10 * self.reference_s))
        return max(len(fast) * pace_s, -(-slow // requirements.SIDE_BY_SIDE) * self.wait_s)
