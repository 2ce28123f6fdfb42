"""Which plan is tried next: each class with each fault once, then pairs of these, then plans drawn from a seed.

The plans come one by one, since what was learned from one run decides about the next: what fails alone is not tried in
company, and a class whose moment was not reached is tried at another of its members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from random import Random
from typing import Final

from odradek.certify.faults import BY_NAME, FAULTS, Act, Reach, applicable
from odradek.certify.moments import READS, Moment, MomentClass, classes
from odradek.certify.plan import Cell, Injection, Plan, single

TRIES: Final = 3
"""Members of a class at which a fault is tried until one is reached."""
RANDOM_FAULTS_MAX: Final = 3


class Coverage(Enum):
    """Of a cell of the matrix."""

    UNTRIED = "untried"
    CLEAN = "clean"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    NO_EFFECT = "no effect"
    NOT_REACHED = "not reached"


@dataclass(slots=True)
class Exploration:
    """The plans for one job, by the moments of its reference run."""

    moments: Sequence[Moment]
    nodes: int = 1
    seed: int = 1
    reaches: tuple[Reach, ...] = tuple(Reach)
    cells: dict[Cell, Coverage] = field(default_factory=dict)
    _tries: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))
    _members: Mapping[MomentClass, list[Moment]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._members = classes(self.moments)
        for members in self._members.values():
            for fault in applicable(members[0], self.nodes, self.reaches):
                self.cells[members[0].kind, fault.name] = Coverage.UNTRIED

    def learned(self, plan: Plan, *, reached: bool, failed: bool) -> None:
        """What a run has shown of the cells of its plan."""
        cell = plan.injections[0].cell if len(plan) == 1 else None
        if cell is None or cell not in self.cells:
            return
        if failed:
            self.cells[cell] = Coverage.FAILED
        elif reached and self.cells[cell] is not Coverage.FAILED:
            self.cells[cell] = Coverage.CLEAN
        elif self.cells[cell] is Coverage.UNTRIED:
            self.cells[cell] = Coverage.NOT_REACHED

    def plans(self) -> Iterator[Plan]:
        """Without end."""
        yield from self._singles(is_slow=False, reads=False)
        yield from self._singles(is_slow=False, reads=True)
        yield from self._again()
        yield from self._pairs()
        yield from self._singles(is_slow=True, reads=False)
        yield from self._singles(is_slow=True, reads=True)
        yield from self._random()

    def _singles(self, *, is_slow: bool, reads: bool) -> Iterator[Plan]:
        """Fault by fault. What writes comes before what only reads: that is where records are lost and doubled."""
        for fault in FAULTS:
            for kind, members in self._members.items():
                cell = kind, fault.name
                is_read = kind.on in READS and fault.act is not Act.ABORT_INPUT
                if cell in self.cells and fault.is_slow is is_slow and is_read is reads:
                    yield single(self._member(members, cell), fault)

    def _again(self) -> Iterator[Plan]:
        """Cells that were not reached, at other members of their classes."""
        for _ in range(TRIES - 1):
            for cell, state in list(self.cells.items()):
                if state is Coverage.NOT_REACHED:
                    kind, name = cell
                    yield single(self._member(self._members[kind], cell), BY_NAME[name])

    def _member(self, members: Sequence[Moment], cell: Cell) -> Moment:
        """The second one first: there is something before it, and something behind it."""
        order = [members[1], members[0], *members[2:]] if len(members) > 2 else list(members)
        chosen = order[self._tries[cell] % len(order)]
        self._tries[cell] += 1
        return chosen

    def _pairs(self) -> Iterator[Plan]:
        """Each two faults together, and each two classes, at least once."""
        clean = [cell for cell, state in self.cells.items() if state is Coverage.CLEAN]
        random = Random(f"{self.seed}/pairs")
        random.shuffle(clean)
        covered: set[frozenset[object]] = set()
        for one, two in product(clean, clean):
            together: set[frozenset[object]] = {frozenset({one[0], two[0]}), frozenset({one[1], two[1]})}
            if one[0] != two[0] and not together <= covered:
                covered |= together
                yield self._together(random, [one, two])

    def _random(self) -> Iterator[Plan]:
        random = Random(f"{self.seed}/random")
        while True:
            clean = [cell for cell, state in self.cells.items() if state is Coverage.CLEAN]
            if not clean:
                return
            count = random.randint(1, min(RANDOM_FAULTS_MAX, len(clean)))
            yield self._together(random, random.sample(clean, count))

    def _together(self, random: Random, cells: Iterable[Cell]) -> Plan:
        return Plan(
            tuple(Injection(random.choice(self._members[kind]), BY_NAME[name]) for kind, name in cells)
        )
