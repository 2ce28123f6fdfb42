"""What happens to a query, drawn from a seed: who is killed, where, how often, and what has changed when it is back.

    python -m tests.spark.matrix.plan 7                 # show the plan of seed 7
    python -m tests.spark.matrix.plan 7 > plan.json     # keep it

A plan is of one query from an input topic to an output topic; several are carried out side by side (``company.py``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

WORKER, DRIVER, BOTH, ZOMBIE = "worker", "driver", "both", "zombie"
VICTIMS = (WORKER, DRIVER, BOTH, ZOMBIE)
"""The Python process that takes the step; the JVM, so that the process is left alone with its next step; all of it; the JVM,
and the process sleeps until its successors have got on."""
LATE = ("detach", "lose-answer")
TRANSACTIONAL = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
AGAIN = 0.4
FAULTY = 0.3
FAULTS = (
    *(f"{each} transactional_id={{q}}-* nth=# -> {late}" for each in TRANSACTIONAL for late in LATE),
    *(f"Produce topic={{out}} nth=# -> {late}" for late in (*LATE, "error NOT_LEADER_OR_FOLLOWER")),
    "InitProducerId transactional_id={q}-driver nth=# -> detach",
    "EndTxn transactional_id={q}-driver nth=# -> detach",
    "EndTxn transactional_id={q}-driver nth=# -> lose-answer",
    "OffsetFetch group={q} nth=# -> error COORDINATOR_LOAD_IN_PROGRESS",
    "* transactional_id={q}-* every=7 times=# -> error NOT_COORDINATOR",
)
"""What the network may do besides; # is drawn."""
COMMITTING = ("commit.started", "commit.checked", "decision.written")
MOMENT = "moment"
"""In place of a point: when so much of the output is written, wherever the processes are."""


@dataclass(frozen=True)
class Kill:
    """One kill. With several, each is armed once the one before it was done."""

    point: str
    victim: str
    batch: int = 0
    """At the first batch from this one on."""
    nth: int = 1
    """The so many-th time that the step is taken then, by whichever process."""
    written: float = 0.0
    """Of a moment: the share of the input's number that the output must have at least, aborted records and all."""
    sleeps: int = 0
    """Of a zombie: until so many batches more are written, or all of it is."""

    def __str__(self) -> str:
        where = (
            f"{self.written:.0%} written" if self.point == MOMENT else f"batch {self.batch}, nth {self.nth}"
        )
        return f"{self.victim} at {self.point} ({where})"


@dataclass(frozen=True)
class Plan:
    seed: int
    kills: tuple[Kill, ...] = ()
    sink: str = "exactly_once"
    """Or ``stock``, Spark's own."""
    partitions: int = 3
    records: int = 600
    batches: int = 6
    shuffle: bool = False
    """Rows are dealt out anew before the sink, in each run in another way."""
    split: bool = False
    """Each run reads with another number of tasks."""
    node: str = ""
    """On three nodes: who dies together with the victim, ``leader`` or ``coordinator``, and is back a little later."""
    fault: str = ""
    """A rule of docs/faults.md from the first run on; {q} is the sink's name, {out} its topic. What it detaches arrives once
    a batch more is written."""

    @property
    def per_batch(self) -> int:
        return -(-self.records // self.batches)

    def tasks(self, run: int) -> int:
        """How many tasks are to read in this run, where it is split, and to write, where it is shuffled."""
        return (self.partitions + 1, 2, self.partitions + 2)[(self.seed + run) % 3]

    def __str__(self) -> str:
        features = [name for name in ("shuffle", "split") if getattr(self, name)]
        features += [f"with its {self.node}"] if self.node else []
        features += [self.fault] if self.fault else []
        told = ", ".join([*map(str, self.kills), *features])
        return f"seed {self.seed}, {self.sink}: {told or 'nothing happens'}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_dict(cls, read: dict[str, Any]) -> Plan:
        return cls(**{**read, "kills": tuple(Kill(**each) for each in read["kills"])})


def save(plans: Iterable[Plan], path: Path) -> None:
    path.write_text("[\n" + ",\n".join(each.to_json() for each in plans) + "\n]\n")


def load(path: Path) -> list[Plan]:
    return [Plan.from_dict(each) for each in json.loads(path.read_text())]


# ---- how they are drawn


def draw(seed: int, point: str, victim: str, *, calm: bool = False, **features: Any) -> Plan:
    """The plan of a seed for a kill at this point; what is not said, the seed decides. The same seed, the same plan.

    In a calm one nothing else happens: no second death, no fault of the network."""
    rng = Random(f"{seed} {point} {victim} {features.get('node', '')}")
    plan = Plan(seed, partitions=rng.choice([2, 3, 4]), shuffle=rng.random() < 0.5, split=rng.random() < 0.5)
    plan = replace(plan, **features)
    kills = [*_before(rng, plan, point), _kill(rng, plan, point, victim, 0.0)]
    if not calm and rng.random() < AGAIN:
        # What a second death does to what the first one left.
        kills.append(_kill(rng, plan, MOMENT, rng.choice(VICTIMS), kills[-1].written))
    fault = rng.choice(FAULTS).replace("#", str(rng.randint(1, 12)))
    faulty = not calm and rng.random() < FAULTY
    return replace(plan, kills=tuple(kills), fault=fault if faulty else "")


def _before(rng: Random, plan: Plan, point: str) -> list[Kill]:
    """Spark gives a batch up when its commit has failed: without that no process comes to these steps."""
    if not point.startswith("abort."):
        return []
    return [_kill(rng, plan, rng.choice(COMMITTING), WORKER, 0.0)]


def _kill(rng: Random, plan: Plan, point: str, victim: str, after: float) -> Kill:
    sleeps = rng.choice([1, 2, plan.batches]) if victim == ZOMBIE else 0
    if point == MOMENT:
        written = round(after + rng.uniform(0.05, 0.9) * (1.0 - after), 2)
        return Kill(point, victim, written=written, sleeps=sleeps)
    nth = rng.choice([1, 1, 2])
    batch = rng.randrange(plan.batches - nth + 1)
    return at(Kill(point, victim, batch, nth, sleeps=sleeps))


def at(kill: Kill) -> Kill:
    """Who plans does not know the batch: there it is counted. What is given up is given up once."""
    if kill.point.startswith("plan."):
        return replace(kill, batch=0, nth=kill.batch + kill.nth)
    return replace(kill, batch=0, nth=1) if kill.point.startswith("abort.") else kill


def column(points: Iterable[str], seed: int, victim: str, node: str = "") -> list[Plan]:
    """One of the matrix: every point with this victim."""
    return [draw(seed, point, victim, node=node) for point in points]


FEATURES = {"shuffle": (False, True), "split": (False, True)}
NODES = ("leader", "coordinator")
EACH_NODE = 6


def pairwise(seed: int, points: Iterable[str], nodes: Sequence[str] = ("",)) -> list[Plan]:
    """Plans in which any two values of point, victim, node and features meet. A new seed deals them anew."""
    choices = {"point": (*points, MOMENT), "victim": VICTIMS, "node": nodes, **FEATURES}
    return [draw(seed + number, **row) for number, row in enumerate(covering(choices, Random(seed)))]


def sample(seed: int, points: Iterable[str]) -> list[Plan]:
    """Fewer: any two values of phase, victim and features meet, and the points of a phase take turns. All are calm.

    With each sixth plan a node dies too, the leader and the coordinator in turns. Deaths at a moment are not among them: a
    process that is caught by the death of others has one."""
    rng = Random(seed)
    phases: dict[str, list[str]] = {}
    for point in rng.sample([*points], k=len([*points])):
        phases.setdefault(point.partition(".")[0], []).append(point)
    rows = covering({"phase": sorted(phases), "victim": VICTIMS, **FEATURES}, rng)
    plans = []
    for number, row in enumerate(rows):
        turns = phases[row.pop("phase")]
        turns.append(turns.pop(0))
        node = NODES[number // EACH_NODE % 2] if number % EACH_NODE == 0 else ""
        plans.append(draw(seed + number, turns[-1], calm=True, batches=2, records=160, node=node, **row))
    return plans


def fewest(plans: Sequence[Plan]) -> list[Plan]:
    """Some of these plans, so few as a greedy search finds, that have every phase, victim, feature and node of them."""
    missing = set().union(*map(_features, plans))
    chosen: list[Plan] = []
    while missing:
        chosen.append(max(plans, key=lambda plan: len(missing & _features(plan))))
        missing -= _features(chosen[-1])
    return chosen


def _features(plan: Plan) -> set[tuple[str, Any]]:
    kill = plan.kills[-1]
    values = {"phase": kill.point.partition(".")[0], "victim": kill.victim, "node": plan.node}
    return {*values.items(), *((name, getattr(plan, name)) for name in FEATURES)}


Pair = tuple[tuple[str, Any], tuple[str, Any]]


def covering(choices: dict[str, Sequence[Any]], rng: Random, tries: int = 30) -> list[dict[str, Any]]:
    """Rows with one value for each name, so few as a greedy search finds, with every pair of values in some row."""
    missing = {((a, x), (b, y)) for a, b in combinations(choices, 2) for x in choices[a] for y in choices[b]}
    rows: list[dict[str, Any]] = []
    while missing:
        drawn = (_row(choices, missing, rng) for _ in range(tries))
        best = max(drawn, key=lambda row: len(missing.intersection(_pairs(row))))
        missing -= _pairs(best)
        rows.append(best)
    return rows


def _row(choices: dict[str, Sequence[Any]], missing: set[Pair], rng: Random) -> dict[str, Any]:
    """Begins with a pair that is missing; the rest is chance."""
    row = {name: rng.choice(list(values)) for name, values in choices.items()}
    row.update(dict(rng.choice(sorted(missing, key=repr))))
    return row


def _pairs(row: dict[str, Any]) -> set[Pair]:
    return set(combinations(row.items(), 2))


if __name__ == "__main__":
    from odradek.spark.sink.points import POINTS

    seed = int(sys.argv[1])
    print(draw(seed, Random(seed).choice([*POINTS, MOMENT]), Random(seed).choice(VICTIMS)).to_json())
