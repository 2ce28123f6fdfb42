"""Select the next plan, which is the faults of one run: breadth before depth.

First, each fault that a certificate needs is tried once at each decisive request (`requirements`), and again if it was not
reached or had no effect. Then follow the rest of the matrix, pairs of faults, and random plans from a seed. Plans in which a
client waits for a response that never arrives form a separate sequence (`slow`), which runs in parallel.

Plans are generated one at a time, because the result of one run influences the next: a fault that makes the job fail
alone is not combined with others, and if the request of a plan was not reached, the next plan uses another request of
the same class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from random import Random
from typing import Final

from odradek.certify.plans import at_services, requirements
from odradek.certify.plans.faults import BY_NAME, DELAYS_MS, FAULTS, Fault, Reach, applicable, pointless
from odradek.certify.plans.moments import Moment, MomentClass, classes
from odradek.certify.plans.plan import Cell, Injection, Plan, single
from odradek.certify.plans.requirements import DECISIVE, Requirement

TRIES: Final = 3
"""Maximum number of requests of one class at which a fault is tried until the fault is injected and has an effect."""
RANDOM_FAULTS_MAX: Final = 3
INSTANTS: Final = frozenset(
    {*("Fetch", "Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn"), "ShareFetch", "ShareAcknowledge"}
)
"""APIs after whose response a job computes, writes to a database, or commits."""
OF_ONE_MORE: Final = frozenset({"add-instance", "second-copy", "remove-instance"})
OF_TWO: Final = OF_ONE_MORE | {"freeze"}
"""Faults after which two instances work at the same time."""
DRAWS: Final = 1
DRAWS_ELSEWHERE: Final = 4
"""Number of random delays tried per cell for a job that stores its offsets outside Kafka: its decisive instant is
between two database statements.
"""


class Coverage(Enum):
    """State of a cell of the matrix: the result of trying one fault at one class of requests."""

    UNTRIED = "untried"
    NOT_REACHED = "not reached"
    NO_EFFECT = "no effect"
    """The fault was injected but changed nothing, so the run does not show whether the job survives the fault."""
    CLEAN = "clean"
    UNFINISHED = "unfinished"
    FAILED = "failed"


_RANK: Final = list(Coverage)


@dataclass(slots=True)
class Exploration:
    """The plans for one job, derived from the moments (requests and broker steps) of its reference run."""

    moments: Sequence[Moment]
    nodes: int = 1
    seed: int = 1
    reaches: tuple[Reach, ...] = tuple(Reach)
    left_out: frozenset[str] = frozenset()
    """Faults that the user has excluded."""
    is_elsewhere: bool = False
    """Whether the job stores its offsets outside Kafka."""
    cells: dict[Cell, Coverage] = field(default_factory=dict)
    needed: list[Requirement] = field(default_factory=list)
    reasons: dict[Requirement, str] = field(default_factory=dict)
    """Why the latest run that tried a requirement (API, fault) did not meet it."""
    _tries: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))
    _members: Mapping[MomentClass, list[Moment]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._members = classes(self.moments)
        self.left_out |= pointless(self.moments)
        for members in self._members.values():
            for fault in applicable(members[0], self.nodes, self.reaches):
                if fault.name not in self.left_out:
                    self.cells[members[0].kind, fault.name] = Coverage.UNTRIED
        self.needed = requirements.required(
            self.moments, self.nodes, self.reaches, self.left_out, is_elsewhere=self.is_elsewhere
        )

    def learned(self, plan: Plan, state: Coverage, reason: str = "") -> None:
        """Record a run's result in the cell (class of requests, fault) of its plan, if the plan has only one fault."""
        cell = plan.injections[0].cell if len(plan) == 1 else None
        if cell is not None and state is not Coverage.CLEAN:
            self.reasons[Requirement(cell[0].on, cell[1])] = (
                f"{state.value}: {reason}" if reason else state.value
            )
        if cell in self.cells and _RANK.index(state) > _RANK.index(self.cells[cell]):
            self.cells[cell] = state

    @property
    def unmet(self) -> list[Requirement]:
        """The requirements of a certificate that no run has met yet."""
        clean = (cell for cell, state in self.cells.items() if state is Coverage.CLEAN)
        return requirements.unmet(self.needed, clean)

    @property
    def has_slow(self) -> bool:
        """Whether there are plans in whose runs a response never arrives."""
        return any(BY_NAME[fault].is_slow for _, fault in self.cells)

    # -- what is tried -------------------------------------------------------------------------------------------

    def plans(self, *, is_full: bool = True) -> Iterator[Plan]:
        """Yield the plans that a certificate needs, and with ``is_full`` more plans, indefinitely.

        The plans of `slow` are not among them.
        """
        yield from self._needed(is_slow=False)
        if not is_full:
            return
        yield from self._instants()
        yield from self._elsewhere_too()
        yield from self._rest(is_slow=False)
        yield from self._again()
        yield from self._pairs()
        yield from self._random()

    def slow(self, *, is_full: bool = True) -> Iterator[Plan]:
        """Yield plans in whose runs a response never arrives."""
        yield from self._needed(is_slow=True)
        if is_full:
            yield from self._rest(is_slow=True)

    def _needed(self, *, is_slow: bool) -> Iterator[Plan]:
        for _ in range(TRIES):
            for each in self.unmet:
                if requirements.is_slow(each) is is_slow and (cell := self._best(each)) is not None:
                    yield self._at(cell)

    def _instants(self) -> Iterator[Plan]:
        """Yield plans with a kill or a freeze between two requests: a random delay after a response (`INSTANTS`)."""
        draws = DRAWS_ELSEWHERE if self.is_elsewhere else DRAWS
        for _ in range(draws):
            for cell, state in list(self.cells.items()):
                kind, name = cell
                is_busy = _is_decisive(kind) if at_services.service_of(kind.on) else kind.on in INSTANTS
                is_busy = is_busy and kind.phase != "nothing"
                if is_busy and BY_NAME[name].is_between and state is not Coverage.FAILED:
                    yield self._at(cell)

    def _elsewhere_too(self) -> Iterator[Plan]:
        """Yield plans that try a fault of `OF_TWO` at more requests of a class where it has caused no failure.

        After such a fault two instances work at the same time, so the effect depends on what the first one is
        doing.
        """
        for _ in range(TRIES - 1):
            for cell, state in list(self.cells.items()):
                is_meant = cell[1] in OF_TWO and any(each.is_met_by(cell) for each in self.needed)
                if is_meant and state is Coverage.CLEAN and self._tries[cell] < len(self._members[cell[0]]):
                    yield self._at(cell)

    def _best(self, requirement: Requirement) -> Cell | None:
        """The cell (class of requests, fault) of a requirement that was tried least often.

        None if a cell of the requirement is already in state FAILED or UNFINISHED, or if there is no cell.
        """
        cells = list(requirements.cells_of(requirement, self.cells))
        if any(self.cells[each] in (Coverage.FAILED, Coverage.UNFINISHED) for each in cells):
            return None
        return min(cells, key=lambda each: (self._tries[each], -len(self._members[each[0]])), default=None)

    def _rest(self, *, is_slow: bool) -> Iterator[Plan]:
        """Yield plans for untried cells (class of requests, fault): decisive requests first, then fault by fault."""
        for is_decisive in (True, False):
            for fault in FAULTS:
                for kind in self._members if fault.is_slow is is_slow else ():
                    is_open = self.cells.get((kind, fault.name)) is Coverage.UNTRIED
                    if is_open and _is_decisive(kind) is is_decisive:
                        yield self._at((kind, fault.name))

    def _again(self) -> Iterator[Plan]:
        """Try a fault that was not reached or had no effect again, at another request of the same class."""
        for _ in range(TRIES - 1):
            for cell, state in list(self.cells.items()):
                is_open = state in (Coverage.NOT_REACHED, Coverage.NO_EFFECT)
                if is_open and self._tries[cell] < TRIES and not BY_NAME[cell[1]].is_slow:
                    yield self._at(cell)

    def _at(self, cell: Cell) -> Plan:
        """A plan with the fault of the cell at one moment (request or broker step) of the cell's class.

        The first plan uses the second moment of the class, as the job has work before and after it. A fault that starts
        or replaces an instance uses the first moment, where the new instance has most to take over.
        """
        kind, name = cell
        members = self._members[kind]
        is_second = len(members) > 2 and name not in OF_ONE_MORE
        order = [members[1], members[0], *members[2:]] if is_second else list(members)
        chosen = order[self._tries[cell] % len(order)]
        self._tries[cell] += 1
        return self._drawn(chosen, BY_NAME[name], self._tries[cell])

    def _drawn(self, moment: Moment, fault: Fault, number: int) -> Plan:
        """A plan with one fault. A fault between two requests gets a random delay."""
        random = Random(f"{self.seed}/{moment}/{fault.name}/{number}")
        return single(moment, fault, random.choice(DELAYS_MS) if fault.is_between else 0)

    def _pairs(self) -> Iterator[Plan]:
        """Yield plans with two faults that did no harm alone: each pair of faults and of moment classes once."""
        clean = self._fast_and_clean()
        random = Random(f"{self.seed}/pairs")
        random.shuffle(clean)
        covered: set[frozenset[object]] = set()
        pairs = sorted(product(clean, clean), key=lambda each: not _are_of_two_ends(*each))
        for one, two in pairs:
            together: set[frozenset[object]] = {frozenset({one[0], two[0]}), frozenset({one[1], two[1]})}
            if one[0] != two[0] and not together <= covered:
                covered |= together
                yield self._together(random, [one, two])

    def _random(self) -> Iterator[Plan]:
        random = Random(f"{self.seed}/random")
        while clean := self._fast_and_clean():
            count = random.randint(1, min(RANDOM_FAULTS_MAX, len(clean)))
            yield self._together(random, random.sample(clean, count))

    def _fast_and_clean(self) -> list[Cell]:
        return [
            cell
            for cell, state in self.cells.items()
            if state is Coverage.CLEAN and not BY_NAME[cell[1]].is_slow
        ]

    def _together(self, random: Random, cells: Iterable[Cell]) -> Plan:
        return Plan(
            tuple(
                Injection(
                    random.choice(self._members[kind]),
                    BY_NAME[name],
                    random.choice(DELAYS_MS) if BY_NAME[name].is_between else 0,
                )
                for kind, name in cells
            )
        )


def _is_decisive(kind: MomentClass) -> bool:
    """Whether the request fetches offsets, writes or commits: at Kafka, or at another service."""
    if at_services.service_of(kind.on):
        return at_services.is_decisive(kind.on, kind.phase)
    return kind.on in DECISIVE


def _are_of_two_ends(one: Cell, two: Cell) -> bool:
    """Whether the requests of the two cells go to different services, or one of them to Kafka."""
    return at_services.service_of(one[0].on) != at_services.service_of(two[0].on)
