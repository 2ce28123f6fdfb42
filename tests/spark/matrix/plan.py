"""Plans, drawn from a seed: which processes of a query are killed, at which points, and what changes in the next run.

    python -m tests.spark.matrix.plan 7                 # show the plan of seed 7
    python -m tests.spark.matrix.plan 7 > plan.json     # save it

A plan is for one query from an input topic to an output topic. Several plans run side by side (``company.py``).
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
"""The processes that a kill ends. ``worker``: the Python process that reaches the point. ``driver``: the JVM, so that
the Python process continues without it. ``both``: these two. ``zombie``: the JVM, while the Python process sleeps until
its successors have made progress."""
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
"""Rules for network faults that a plan may add, in which a random number replaces #."""
COMMITTING = ("commit.started", "commit.checked", "decision.written")
MOMENT = "moment"
"""In place of a point's name: the kill happens when a given share of the output is written, at a random step."""


@dataclass(frozen=True)
class Kill:
    """One kill. If a plan has several, each becomes active after the one before it."""

    point: str
    victim: str
    batch: int = 0
    """The kill happens in this batch or a later one."""
    nth: int = 1
    """The kill happens when a process of the query takes the step for the nth time."""
    written: float = 0.0
    """For ``MOMENT``: number of offsets in the output at the kill, as a share of the input's records."""
    sleeps: int = 0
    """For a zombie: the number of further batches that are written before it wakes."""

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
    """The sink of the query: ``exactly_once``, or ``stock``, which is Spark's own Kafka sink."""
    partitions: int = 3
    records: int = 600
    batches: int = 6
    shuffle: bool = False
    """Whether rows are repartitioned in front of the sink, differently in each run."""
    split: bool = False
    """Whether the number of tasks that read differs in each run."""
    node: str = ""
    """On three nodes: the node that is killed with the victim, ``leader`` or ``coordinator``. It restarts a little later."""
    fault: str = ""
    """A rule of docs/faults.md from the first run on. {q} is replaced by the sink's name, {out} by its topic.

    Requests that the rule detaches arrive once one more batch is written.
    """

    @property
    def per_batch(self) -> int:
        return -(-self.records // self.batches)

    def tasks(self, run: int) -> int:
        """Number of tasks of this run: those that read, if the input is split, or those that write, if rows are shuffled."""
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


# ---- drawing plans


def draw(seed: int, point: str, victim: str, *, calm: bool = False, **features: Any) -> Plan:
    """Draw the plan of a seed for a kill at this point. The seed determines everything that the arguments leave open.

    A calm plan has no second kill and no network fault.
    """
    rng = Random(f"{seed} {point} {victim} {features.get('node', '')}")
    plan = Plan(seed, partitions=rng.choice([2, 3, 4]), shuffle=rng.random() < 0.5, split=rng.random() < 0.5)
    plan = replace(plan, **features)
    kills = [*_before(rng, plan, point), _kill(rng, plan, point, victim, 0.0)]
    if not calm and rng.random() < AGAIN:
        # The second kill meets the recovery from the first.
        kills.append(_kill(rng, plan, MOMENT, rng.choice(VICTIMS), kills[-1].written))
    fault = rng.choice(FAULTS).replace("#", str(rng.randint(1, 12)))
    faulty = not calm and rng.random() < FAULTY
    return replace(plan, kills=tuple(kills), fault=fault if faulty else "")


def _before(rng: Random, plan: Plan, point: str) -> list[Kill]:
    """A kill that makes the commit of a batch fail, if the point is in an abort. For other points an empty list.

    Without this kill Spark aborts no batch, and no process reaches a point in an abort.
    """
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
    """Adapt a kill to a point that has no batch number. For other points return ``kill``.

    The steps ``plan.*`` are counted over all batches, and the steps ``abort.*`` happen once.
    """
    if kill.point.startswith("plan."):
        return replace(kill, batch=0, nth=kill.batch + kill.nth)
    return replace(kill, batch=0, nth=1) if kill.point.startswith("abort.") else kill


def column(points: Iterable[str], seed: int, victim: str, node: str = "") -> list[Plan]:
    """The plans of one column of the matrix: one for each point, with this victim and node."""
    return [draw(seed, point, victim, node=node) for point in points]


FEATURES = {"shuffle": (False, True), "split": (False, True)}
NODES = ("leader", "coordinator")
EACH_NODE = 6


def pairwise(seed: int, points: Iterable[str], nodes: Sequence[str] = ("",)) -> list[Plan]:
    """Plans in which any two values of point, victim, node and features occur together. The seed decides which plans."""
    choices = {"point": (*points, MOMENT), "victim": VICTIMS, "node": nodes, **FEATURES}
    return [draw(seed + number, **row) for number, row in enumerate(covering(choices, Random(seed)))]


def sample(seed: int, points: Iterable[str]) -> list[Plan]:
    """A smaller sample: any two values of phase, victim and features occur together. A phase's points alternate.

    A phase is the first part of a point's name. The features are ``shuffle`` and ``split``.

    All plans are calm. In each sixth plan a node is killed too, the leader or the coordinator in turn. No kill is at a
    random moment: the kill for one query hits the processes of other queries at a random step anyway.
    """
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
    """A small subset of these plans (by greedy search) that contains each of their phases, victims, features and nodes."""
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
    """Rows with one value for each name, in which every pair of values occurs. A greedy search keeps their number small."""
    missing = {((a, x), (b, y)) for a, b in combinations(choices, 2) for x in choices[a] for y in choices[b]}
    rows: list[dict[str, Any]] = []
    while missing:
        drawn = (_row(choices, missing, rng) for _ in range(tries))
        best = max(drawn, key=lambda row: len(missing.intersection(_pairs(row))))
        missing -= _pairs(best)
        rows.append(best)
    return rows


def _row(choices: dict[str, Sequence[Any]], missing: set[Pair], rng: Random) -> dict[str, Any]:
    """A row that contains a missing pair and otherwise random values."""
    row = {name: rng.choice(list(values)) for name, values in choices.items()}
    row.update(dict(rng.choice(sorted(missing, key=repr))))
    return row


def _pairs(row: dict[str, Any]) -> set[Pair]:
    return set(combinations(row.items(), 2))


if __name__ == "__main__":
    from odradek.spark.sink.points import POINTS

    seed = int(sys.argv[1])
    print(draw(seed, Random(seed).choice([*POINTS, MOMENT]), Random(seed).choice(VICTIMS)).to_json())
