"""Random failures for a running broker, reproducible from a seed. Each failure is reverted after a while.

chaos = Chaos(remote, seed=7, kinds=["kill", "cut", "lose"])
for line in chaos.step(now_s):
    print(line)
...
chaos.end()
findings = verify(remote)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from odradek.deadlines import stretched
from odradek.errors import ControlRefused, NotFound
from odradek.remote import Remote

KINDS: Final = ("kill", "stop", "cut", "lose", "drop", "refuse", "delay")
"""Kinds of failures: kill or stop a node, cut a link, lose a response, reset a connection, refuse or delay requests."""
LASTS_S: Final = (1.0, 6.0)
"""Minimum and maximum duration of a failure, in units of the pause between steps."""
_WRITES: Final = (
    "Produce",
    "EndTxn",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "InitProducerId",
    "OffsetCommit",
)
# Errors that clients also get in a healthy cluster, while leaders and coordinators move.
_REFUSALS: Final = (
    ("Produce", "NOT_LEADER_OR_FOLLOWER"),
    ("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("InitProducerId", "CONCURRENT_TRANSACTIONS"),
    ("AddPartitionsToTxn", "NOT_COORDINATOR"),
    ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
)
CHANGED_BY_OTHERS: Final = (404, 409)
"""HTTP statuses of a call that came too late: the rule was removed (404), or the node has another state (409)."""
SETTLE_S: Final = stretched(30.0)
SETTLE_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class _Injected:
    """An injected failure. ``revert`` is called when the ``now_s`` of `Chaos.step` reaches ``due_s``."""

    text: str
    due_s: float
    node_id: int | None
    revert: Callable[[], object]


class Chaos:
    """A source of random failures: the same seed, kinds and nodes give the same sequence."""

    def __init__(self, remote: Remote, seed: int, kinds: Sequence[str] = KINDS, pause_s: float = 1.0) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            raise ValueError(f"unknown kind: {', '.join(unknown)} (known: {', '.join(KINDS)})")
        self._remote, self._pause_s = remote, pause_s
        self._rng = Random(seed)
        self._node_ids = sorted(remote.nodes)
        self._kinds = [kind for kind in kinds if kind != "cut" or len(self._node_ids) > 1]
        if not self._kinds:
            raise ValueError("cutting a link needs two nodes, and this cluster has one")
        self._injected: list[_Injected] = []

    def step(self, now_s: float) -> Iterator[str]:
        """Revert the failures that are due, then inject the next failure. Yields a line of text for each action."""
        yield from self._revert(now_s)
        kind = self._rng.choice(self._kinds)
        lasts_s = self._rng.uniform(*LASTS_S) * self._pause_s
        yield getattr(self, f"_{kind}")(now_s + lasts_s)

    def end(self) -> Iterator[str]:
        """Revert all injected failures. Yields a line of text for each."""
        yield from self._revert(None)

    def _revert(self, now_s: float | None) -> Iterator[str]:
        due = [each for each in self._injected if now_s is None or each.due_s <= now_s]
        for each in due:
            self._injected.remove(each)
            refusal = _refusal_of(each.revert)
            yield each.text if refusal is None else f"{each.text}: refused, {refusal}"

    # -- nodes --------------------------------------------------------------------------------------------------

    def _kill(self, due_s: float) -> str:
        return self._end_node(due_s, "kill")

    def _stop(self, due_s: float) -> str:
        return self._end_node(due_s, "stop")

    def _end_node(self, due_s: float, how: str) -> str:
        """Kill or stop a random node, and return a line of text about it.

        Nodes that are down already are skipped, as is the last running node of a cluster of several.
        """
        ended = {each.node_id for each in self._injected if each.node_id is not None}
        running = [node_id for node_id in self._node_ids if node_id not in ended]
        chosen = self._rng.choice(self._node_ids)
        if chosen in ended or (len(running) == 1 and len(self._node_ids) > 1):
            return f"node {chosen} is skipped"
        node = self._remote.nodes[chosen]
        refusal = _refusal_of(node.kill if how == "kill" else node.stop)
        if refusal is not None:
            return f"node {chosen} is skipped: {refusal}"
        self._injected.append(_Injected(f"node {chosen} starts", due_s, chosen, node.start))
        return f"node {chosen} is {'killed' if how == 'kill' else 'stopped'}"

    def _cut(self, due_s: float) -> str:
        one, other = sorted(self._rng.sample(self._node_ids, 2))
        rule = self._remote.faults.add(do="cut", nodes=(one, other))
        self._injected.append(_Injected(f"link {one}-{other} is restored", due_s, None, rule.remove))
        return f"link {one}-{other} is cut"

    # -- requests -----------------------------------------------------------------------------------------------

    def _lose(self, due_s: float) -> str:
        return self._rule(due_s, f"{self._rng.choice(_WRITES)} times=1 -> lose-answer")

    def _drop(self, due_s: float) -> str:
        return self._rule(due_s, f"{self._rng.choice((*_WRITES, 'Fetch', 'JoinGroup'))} times=1 -> drop")

    def _refuse(self, due_s: float) -> str:
        api, code = self._rng.choice(_REFUSALS)
        return self._rule(due_s, f"{api} times={self._rng.randint(1, 3)} -> error {code}")

    def _delay(self, due_s: float) -> str:
        seed = self._rng.randrange(1000)
        return self._rule(due_s, f"* p=0.2 seed={seed} -> delay {self._rng.choice((50, 200, 500))}ms")

    def _rule(self, due_s: float, text: str) -> str:
        rule = self._remote.faults.add(text)
        self._injected.append(_Injected(f"rule removed: {text}", due_s, None, rule.remove))
        return f"rule added: {text}"


def _refusal_of(call: Callable[[], object]) -> str | None:
    """Make the call. Returns None, or the text of the error if another caller has made the call impossible.

    Another caller may have reset the broker, for instance.
    """
    try:
        call()
    except ControlRefused as refused:
        if refused.status not in CHANGED_BY_OTHERS:
            raise
        return str(refused)
    return None


def verify(remote: Remote) -> list[str]:
    """Return the problems of a cluster after all failures were reverted, as sentences; empty if there are none.

    Waits at most ``SETTLE_S`` seconds for the problems to disappear: nodes start, followers catch up, markers are
    written.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        findings = list(_unsettled(remote))
        if not findings or time.monotonic() > deadline:
            return findings
        time.sleep(SETTLE_PAUSE_S)


def _unsettled(remote: Remote) -> Iterator[str]:
    try:
        for node in remote.nodes.show():
            if node["state"] != "running":
                yield f"node {node['node_id']} is {node['state']}"
        yield from _unsettled_partitions(remote)
        for loss in remote.losses():
            if loss.acknowledged == "committed":
                where = f"{loss.topic}-{loss.partition}"
                yield f"{where}: the committed offsets {loss.first_offset} to {loss.last_offset} are lost"
        yield from _unsettled_transactions(remote)
    except (ControlRefused, NotFound) as error:
        yield str(error)


def _unsettled_partitions(remote: Remote) -> Iterator[str]:
    for partition in remote.partitions(internal=True):
        name = f"{partition.topic}-{partition.partition}"
        if partition.leader is None:
            yield f"{name} has no leader"
        else:
            behind = {each.node for each in partition.replicas} - set(partition.isr)
            if behind:
                yield f"{name}: {_nodes(behind)} stay{'s' * (len(behind) == 1)} out of the ISR"


def _unsettled_transactions(remote: Remote) -> Iterator[str]:
    now_ms = remote.clock.now_ms
    for each in remote.transactions:
        if each.state.startswith("Prepare"):
            yield f"{each.transactional_id} stays {each.state}: its markers are not written"
        elif (
            each.state == "Ongoing" and each.start_ms is not None and each.start_ms + each.timeout_ms < now_ms
        ):
            yield f"{each.transactional_id} is still open after its timeout of {each.timeout_ms} ms"


def _nodes(node_ids: set[int]) -> str:
    return f"node{'s' * (len(node_ids) > 1)} {', '.join(map(str, sorted(node_ids)))}"
