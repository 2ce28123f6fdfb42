"""The faults of a run and their times: drawn from a seed, counted in requests, stored as JSON.

    python -m tests.chaos.plan 7 3000              # show the plan of seed 7 for a run of 3000 requests
    python -m tests.chaos.plan 7 3000 > plan.json  # save it

A step is due when its number of requests has arrived at the broker. Rules are in the language of docs/faults.md, and count
their own matches from their step on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Literal

from odradek.words import Domain

NODES = (1, 2, 3)
QUIET_REQUESTS = 150
"""Number of requests without faults at the beginning, so that clients start, and at the end."""
GAP_REQUESTS = (20, 120)
"""Range of the requests between the end of one fault and the beginning of the next. Sometimes faults overlap."""
LASTING_REQUESTS = (30, 200)


@dataclass(frozen=True)
class Step:
    """One step of a plan. ``do`` is rule, unrule, kill, stop, start (every node that is down), move or advance."""

    at: int
    do: str
    rule: str = ""
    """Text of the rule, for ``rule`` and ``unrule``. ``unrule`` releases the requests that it holds."""
    node: int = 0
    place: str = ""
    """Partition to reassign, for ``move``, as in ``transfers-0``."""
    replicas: tuple[int, ...] = ()
    """Node ids of the new replicas, for ``move``. At the end of the run all nodes are replicas again."""
    by: str = ""
    """Duration, for ``advance``, as in ``20s``."""
    only: Domain | Literal[""] = ""
    """Time domain, for ``advance``; if empty, the default domains: transactions and producer ids."""

    def __str__(self) -> str:
        what = self.rule or f"{self.by} {self.only}".strip() or (f"node {self.node}" if self.node else "")
        if self.place:
            what = f"{self.place} to {', '.join(map(str, self.replicas))}"
        return f"at {self.at}: {self.do} {what}".rstrip()


@dataclass(frozen=True)
class Plan:
    seed: int
    steps: tuple[Step, ...]

    @property
    def is_gentle(self) -> bool:
        """Whether the plan has no fault after which a client may need a new producer."""
        return not any(
            (step.do == "advance" and not step.only) or "-> detach" in step.rule for step in self.steps
        )

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *map(str, self.steps)])

    def to_json(self) -> str:
        steps = [{key: value for key, value in asdict(step).items() if value} for step in self.steps]
        return json.dumps({"seed": self.seed, "steps": steps}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        read = json.loads(text)
        steps = [step | {"replicas": tuple(step.get("replicas", ()))} for step in read["steps"]]
        return cls(read["seed"], tuple(Step(**step) for step in steps))

    @classmethod
    def load(cls, path: Path) -> Plan:
        return cls.from_json(path.read_text())


def draw(seed: int, requests: int) -> Plan:
    """Draw the plan of a seed for about ``requests`` requests. It depends only on these two. Every third plan is gentle."""
    rng = Random(seed)
    troubles = [each for each in TROUBLES if seed % 3 or each[0] not in (_late, _time_passes)]
    steps: list[Step] = []
    at = QUIET_REQUESTS
    while True:
        end = at + rng.randint(*LASTING_REQUESTS)
        if end > requests - QUIET_REQUESTS:
            break
        trouble = rng.choices([each for each, _ in troubles], [weight for _, weight in troubles])[0]
        steps += trouble(rng, at, end)
        at = rng.randint(at, end) if rng.random() < 0.2 else end
        at += rng.randint(*GAP_REQUESTS)
    return Plan(seed, tuple(sorted(steps, key=lambda step: step.at)))


# ---- faults

Trouble = Callable[[Random, int, int], list[Step]]

ANSWERED = (
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "FindCoordinator",
    "Heartbeat",
    "InitProducerId",
    "JoinGroup",
    "Metadata",
    "OffsetFetch",
    "Produce",
    "TxnOffsetCommit",
    "WriteTxnMarkers",
)
RESENT = ("EndTxn", "Produce", "TxnOffsetCommit", "WriteTxnMarkers")
"""Requests that a network may deliver twice, or late, without violating a guarantee."""
MOVED = (
    "NOT_COORDINATOR EndTxn",
    "NOT_LEADER_OR_FOLLOWER Produce",
    "COORDINATOR_LOAD_IN_PROGRESS InitProducerId",
)
MOVABLE = ("transfers-0", "transfers-1", "acknowledged-0", "source-0", "sink-1", "solo-sink-2")
POINTS = ("txn.prepare.append", "txn.marker", "txn.complete.append", "group.append")


def _ruled(rule: str, at: int, end: int) -> list[Step]:
    return [Step(at, "rule", rule=rule), Step(end, "unrule", rule=rule)]


def _lost_answer(rng: Random, at: int, end: int) -> list[Step]:
    return _ruled(f"{rng.choice(ANSWERED)} nth={rng.randint(1, 4)} -> lose-answer", at, end)


def _lost_request(rng: Random, at: int, end: int) -> list[Step]:
    action = rng.choice(["lose-request", "drop"])
    return _ruled(f"{rng.choice(ANSWERED)} nth={rng.randint(1, 4)} -> {action}", at, end)


def _twice(rng: Random, at: int, end: int) -> list[Step]:
    return _ruled(f"{rng.choice(RESENT)} nth={rng.randint(1, 4)} -> duplicate", at, end)


def _late(rng: Random, at: int, end: int) -> list[Step]:
    """Deliver a Produce late, after the client has sent it again.

    Only a Produce request is delivered late, as it has sequence numbers. In the transaction protocol of librdkafka and
    aiokafka (before KIP-890's second part) a late EndTxn or marker ends the transaction that is open then, in Kafka too
    (scenario D4 of tests/scenarios/README.md).
    """
    return _ruled(f"Produce nth={rng.randint(1, 4)} -> detach", at, end)


def _stands_still(rng: Random, at: int, end: int) -> list[Step]:
    api = rng.choice(["EndTxn", "TxnOffsetCommit", "WriteTxnMarkers", "SyncGroup", "OffsetFetch"])
    return _ruled(f"{api} nth={rng.randint(1, 4)} -> hold", at, end)


def _refused(rng: Random, at: int, end: int) -> list[Step]:
    code, api = rng.choice(MOVED).split()
    return _ruled(f"{api} times={rng.randint(1, 3)} -> error {code}", at, end)


def _slow(rng: Random, at: int, end: int) -> list[Step]:
    api = rng.choice(ANSWERED)
    return _ruled(f"{api} every=3 times=10 -> delay {rng.randint(5, 120)}ms", at, end)


def _node_lost(rng: Random, at: int, end: int) -> list[Step]:
    return [Step(at, "kill", node=rng.choice(NODES)), Step(end, "start")]


def _node_stopped(rng: Random, at: int, end: int) -> list[Step]:
    return [Step(at, "stop", node=rng.choice(NODES)), Step(end, "start")]


def _lost_at_a_request(rng: Random, at: int, end: int) -> list[Step]:
    """Kill the node that received a request before it responds."""
    api = rng.choice(["EndTxn", "Produce", "TxnOffsetCommit", "AddOffsetsToTxn", "JoinGroup"])
    return [*_ruled(f"{api} nth={rng.randint(1, 5)} -> kill", at, end), Step(end, "start")]


def _lost_inside(rng: Random, at: int, end: int) -> list[Step]:
    """Kill the node between two steps of a commit."""
    return [
        *_ruled(f"{rng.choice(POINTS)} nth={rng.randint(1, 6)} -> kill", at, end),
        Step(end, "start"),
    ]


def _lost_again(rng: Random, at: int, end: int) -> list[Step]:
    """Kill a node, and kill it again while it recovers."""
    point = rng.choice(["coordinator.load", "replica.append", "log.write", "txn.complete.append"])
    node = rng.choice(NODES)
    return [
        Step(at, "kill", node=node),
        *_ruled(f"{point} node={node} nth={rng.randint(1, 3)} -> kill", at, end),
        Step(max(at, end - 10), "start"),
        Step(end, "start"),
    ]


def _moved(rng: Random, at: int, end: int) -> list[Step]:
    """Reassign a partition to other nodes, or the same nodes in another order, and later back; perhaps kill a node."""
    place = rng.choice(MOVABLE)
    some = tuple(rng.sample(NODES, rng.choice([2, 2, 3])))
    steps = [
        Step(at, "move", place=place, replicas=some),
        Step(end, "move", place=place, replicas=tuple(rng.sample(NODES, 3))),
    ]
    if rng.random() < 0.4:
        steps += [Step(at, "kill", node=rng.choice(NODES)), Step(end, "start")]
    return steps


def _link_cut(rng: Random, at: int, end: int) -> list[Step]:
    one, other = rng.sample(NODES, 2)
    one_way = rng.choice(["", " one-way"])
    return _ruled(f"cut {one} {other}{one_way}", at, end)


def _link_slow(rng: Random, at: int, end: int) -> list[Step]:
    one, other = rng.sample(NODES, 2)
    return _ruled(f"slow-link {one} {other} delay={rng.randint(5, 60)}ms", at, end)


def _replica_paused(rng: Random, at: int, end: int) -> list[Step]:
    return _ruled(f"pause node={rng.choice(NODES)}", at, end)


def _lost_ahead_of_all(rng: Random, at: int, end: int) -> list[Step]:
    """Kill a node with records that no follower has: none of these records may have been acknowledged or consumed."""
    node = rng.choice(NODES)
    paused = [f"pause node={other}" for other in NODES if other != node]
    dies = min(at + rng.randint(20, 80), end - 1)
    return [
        *(Step(at, "rule", rule=rule) for rule in paused),
        Step(dies, "kill", node=node),
        *(Step(min(dies + 5, end), "unrule", rule=rule) for rule in paused),
        Step(end, "start"),
    ]


def _marker_held(rng: Random, at: int, end: int) -> list[Step]:
    return _ruled(f"txn.marker nth={rng.randint(1, 4)} -> hold", at, end)


def _time_passes(rng: Random, at: int, end: int) -> list[Step]:
    """Advance the clock by more than the transaction timeout."""
    return [Step(at, "advance", by=f"{rng.choice([1, 5, 30, 90])}s")]


def _leaders_balanced(rng: Random, at: int, end: int) -> list[Step]:
    """Advance the clock so that slow followers leave the ISR, and preferred leaders are elected."""
    return [Step(at, "advance", by="5m", only="replication")]


def _slow_inside(rng: Random, at: int, end: int) -> list[Step]:
    delay = f"delay {rng.randint(5, 60)}ms"
    slow = [
        f"replica.append node={rng.choice(NODES)} times=20 -> {delay}",
        f"coordinator.load times=3 -> {delay}",
        f"group.append times=5 -> {delay}",
        f"slow-disk node={rng.choice(NODES)} {delay.replace(' ', '=')}",
    ]
    return _ruled(rng.choice(slow), at, end)


TROUBLES: tuple[tuple[Trouble, int], ...] = (
    (_lost_answer, 4),
    (_lost_request, 2),
    (_twice, 2),
    (_late, 2),
    (_stands_still, 2),
    (_refused, 2),
    (_slow, 1),
    (_node_lost, 6),
    (_node_stopped, 1),
    (_lost_at_a_request, 2),
    (_lost_inside, 3),
    (_lost_again, 3),
    (_moved, 3),
    (_link_cut, 2),
    (_link_slow, 1),
    (_replica_paused, 2),
    (_lost_ahead_of_all, 3),
    (_marker_held, 2),
    (_time_passes, 1),
    (_leaders_balanced, 2),
    (_slow_inside, 3),
)


if __name__ == "__main__":
    drawn = draw(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3000)
    print(drawn.to_json() if not sys.stdout.isatty() else drawn)
