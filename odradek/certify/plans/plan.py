"""A plan: the faults of one run with their moments. It can be saved as JSON and run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.certify.plans.faults import BY_NAME, Fault, holding_rule, striking_rule
from odradek.certify.plans.faults import rule as rule_text
from odradek.certify.plans.moments import Moment, MomentClass

Cell = tuple[MomentClass, str]
"""A class of moments (equivalent requests) and the name of a fault: one cell of the report's matrix."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault at one moment: a request of the job, or a step of the broker."""

    moment: Moment
    fault: Fault
    delay_ms: int = 0
    """Delay after the response, for a fault between two requests."""

    @property
    def cell(self) -> Cell:
        return self.moment.kind, self.fault.name

    @property
    def sentence(self) -> str:
        """What the fault does at this moment: at a service, the service handles the request and not the broker."""
        said = self.fault.sentence
        return said.replace("the broker", "the service") if self.moment.service else said

    @property
    def rule(self) -> str:
        return rule_text(self.fault, self.moment)

    @property
    def holding_rule(self) -> str:
        return holding_rule(self.moment)

    @property
    def striking_rule(self) -> str:
        return striking_rule(self.fault, self.moment)

    def __str__(self) -> str:
        later = f", {self.delay_ms} ms after the response" if self.fault.is_between else ""
        return f"{self.fault.name} at {self.moment}{later}"

    def as_dict(self) -> dict[str, Any]:
        moment = self.moment
        return {
            "fault": self.fault.name,
            "on": moment.on,
            "match": dict(moment.matchers),
            "ordinal": moment.ordinal,
            "phase": moment.phase,
            **({"delay_ms": self.delay_ms} if self.fault.is_between else {}),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The injections (a fault and its moment) of one run; none for a run without faults."""

    injections: tuple[Injection, ...] = ()

    @property
    def id(self) -> str:
        """Eight characters that identify the plan, derived from its content."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return "; ".join(map(str, self.injections)) or "no fault"

    def __len__(self) -> int:
        return len(self.injections)

    def as_json(self) -> str:
        return json.dumps([each.as_dict() for each in self.injections], sort_keys=True)


def single(moment: Moment, fault: Fault, delay_ms: int = 0) -> Plan:
    return Plan((Injection(moment, fault, delay_ms),))


def from_json(text: str) -> Plan:
    """Parse the output of ``as_json``. Raises ``ValueError`` for invalid text."""
    try:
        found = json.loads(text)
        if not isinstance(found, list):
            raise TypeError("a list is expected")
        return Plan(tuple(map(_injection, found)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a plan: {error!r} in {text[:200]!r}") from None


def _injection(view: Mapping[str, Any]) -> Injection:
    moment = Moment(
        on=str(view["on"]),
        matchers=tuple((str(name), str(value)) for name, value in view["match"].items()),
        ordinal=int(view["ordinal"]),
        phase=str(view.get("phase", "")),
    )
    if view["fault"] not in BY_NAME:
        raise ValueError(f"unknown fault: {view['fault']!r} (known: {', '.join(BY_NAME)})")
    return Injection(moment, BY_NAME[view["fault"]], int(view.get("delay_ms", 0)))
