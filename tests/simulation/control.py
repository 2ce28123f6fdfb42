"""Concurrent control calls: resets, snapshots and restores during starts, stops, kills and a shutdown.

After each run of the simulation the calls are run once (``python -m tests.simulation.run --seconds 0`` runs nothing else).
The calls have their own cluster, and their own ledger (expected records), which resets and restores change.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from broker.cluster import Cluster
from broker.cluster.runtime import NodeRuntime, NodeState
from broker.cluster.snapshot_files import capture
from lab.cluster import snapshots
from tests.simulation.controlled import ENDING, PARTITIONS, TOPIC, Answer, Controlled
from tests.simulation.ledger import Broken
from tests.simulation.loop import SimLoop

CALLERS: Final = 4
CALLS: Final = 20
"""Number of calls that each of the ``CALLERS`` concurrent tasks makes."""
WRITERS: Final = 2
WEIGHTS: Final = {
    "start": 6,
    "stop": 3,
    "kill": 3,
    "pause": 1,
    "resume": 1,
    "skew": 1,
    "advance": 1,
    "topic": 1,
    "reset": 2,
    "snapshot": 3,
    "restore": 3,
    "remove": 1,
}
ON_A_NODE: Final = frozenset({"start", "stop", "kill", "pause", "resume", "skew"})
PAUSES_S: Final = (0.0, 0.001, 0.01, 0.05, 2.0)
"""Upper bounds of the seconds between two calls of a task, one drawn for each pause. A node starts in some 0.03 s.
"""
KILLS_AT_STARTS: Final = 0.15
"""Probability that a rule kills a starting node, at most ``KILL_S_MAX`` seconds after the beginning of the start."""
KILL_S_MAX: Final = 0.03
SHUTDOWN_S_MAX: Final = 0.2
MINUTE_MS: Final = 60_000
NO_SNAPSHOT: Final = 99
CHECK: Final = b"check "

current: contextvars.ContextVar[Call] = contextvars.ContextVar("current")


@dataclass(slots=True)
class Contents:
    """Content that the broker must have (``must``) and all content that it may have (``may``)."""

    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)

    def copy(self) -> Contents:
        return Contents(set(self.must), set(self.may))

    def check(self, found: set[str], what: str) -> None:
        if lost := sorted(self.must - found):
            raise Broken(f"{what} lost: {lost[:5]}")
        if back := sorted(found - self.may):
            raise Broken(f"{what} that a reset or a restore should have removed: {back[:5]}")


@dataclass(slots=True)
class Call:
    """A control call in progress."""

    act: str
    snapshot_id: int | None = None
    taken: tuple[Contents, Contents] | None = None
    """The records and topics in the snapshot that the call takes."""
    before: tuple[Contents, Contents] | None = None
    """The expected records and topics at the time when the call killed all nodes."""


class ControlLedger:
    """Expected records and topics, from acknowledgements, resets and restores."""

    def __init__(self) -> None:
        self.records = Contents()
        self.topics = Contents({TOPIC}, {TOPIC})
        self._lives = 0
        """Number of resets and restores. An acknowledgement of a request that was sent before the last reset or restore
        guarantees nothing."""
        self._creating: set[str] = set()
        self._snapshots: dict[int, tuple[Contents, Contents]] = {}

    @property
    def snapshot_ids(self) -> list[int]:
        return sorted(self._snapshots)

    def _now(self) -> tuple[Contents, Contents]:
        return self.records.copy(), self.topics.copy()

    def on_capture(self) -> None:
        """Note the content of the current call's snapshot. Called in the turn in which its files are linked."""
        current.get().taken = self._now()

    def on_all_killed(self) -> None:
        """Set the expected content of the current reset or restore. Called when it kills all nodes.

        After this call no earlier request reaches a log.
        """
        call = current.get()
        call.before = self._now()
        self._lives += 1
        if call.snapshot_id is None:
            self.records, self.topics = Contents(), Contents({TOPIC}, {TOPIC})
        else:
            records, topics = self._snapshots[call.snapshot_id]
            self.records, self.topics = records.copy(), topics.copy()
        # The controller continues, so a topic whose creation was requested may still be created.
        self.topics.may |= self._creating

    def ended(self, call: Call, answer: Answer) -> None:
        if call.act == "snapshot" and not answer.refusal:
            assert call.taken is not None
            self._snapshots[answer.view.id] = call.taken
        if call.act == "remove" and not answer.refusal:
            assert call.snapshot_id is not None
            del self._snapshots[call.snapshot_id]
        if call.act == "restore" and call.before is not None and answer.refusal == ENDING:
            self.records, self.topics = call.before  # the restore failed before it changed anything

    @contextmanager
    def writes(self, value: str) -> Iterator[Callable[[], None]]:
        """Context manager for one attempt to write. Yields a function to call at the acknowledgement."""
        self.records.may.add(value)
        yield partial(self._acknowledged, self._lives, lambda: self.records, value)

    @contextmanager
    def creates(self, topic: str) -> Iterator[Callable[[], None]]:
        self.topics.may.add(topic)
        self._creating.add(topic)
        try:
            yield partial(self._acknowledged, self._lives, lambda: self.topics, topic)
        finally:
            self._creating.remove(topic)

    def _acknowledged(self, life: int, contents: Callable[[], Contents], value: str) -> None:
        if life == self._lives:
            contents().must.add(value)


class ControlRun:
    """The control calls of one seed."""

    def __init__(
        self, seed: int, nodes: int, directory: Path, loop: SimLoop, say: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._say = say
        self._rng = Random(f"{seed}/control")
        self._ledger = ControlLedger()
        self._world = Controlled(loop, directory, seed=seed, nodes=nodes, say=say)
        self._under_way: list[str] = []
        self._written = self._created = 0
        self._stopping = False

    async def run(self) -> None:
        """Run the calls and checks. Raises ``Broken`` for a violation."""
        with patch.object(snapshots, "capture", self._capturing(capture)):
            await self._world.open()
            self._watch(self._world.cluster)
            writers = [asyncio.ensure_future(self._write(f"writer-{number}")) for number in range(WRITERS)]
            await asyncio.gather(*(self._call_often() for _ in range(CALLERS)))
            self._stopping = True
            await self._world.mend()
            await asyncio.gather(*writers)
            await self._left_alone()
            await self._end()

    def _watch(self, cluster: Cluster) -> None:
        kill_all, new_life = cluster.kill_all_nodes, cluster.new_life

        def killing_all() -> None:
            self._ledger.on_all_killed()
            kill_all()

        def starting(before: NodeRuntime) -> NodeRuntime:
            runtime = new_life(before)
            if self._rng.random() < KILLS_AT_STARTS:
                delay_s = self._rng.choice((0.0, self._rng.uniform(0, KILL_S_MAX)))
                self._loop.call_later(delay_s, self._kill, runtime)
            return runtime

        cluster.kill_all_nodes = killing_all
        cluster.new_life = starting

    def _capturing(self, capture: Callable[..., Any]) -> Callable[..., Any]:
        def captured(*arguments: Any) -> Any:
            self._ledger.on_capture()
            return capture(*arguments)

        return captured

    def _kill(self, runtime: NodeRuntime) -> None:
        """Kill a node like a fault rule does: in this turn of the event loop, even while a control call is in progress."""
        if runtime.state is NodeState.STARTING and not self._stopping:
            self._say(f"fault: a rule kills node {runtime.node_id}, beside {self._under_way}")
            self._world.cluster.kill_node(runtime.node_id)

    # -- callers ------------------------------------------------------------------------------------------------

    async def _call_often(self) -> None:
        for _ in range(CALLS):
            await asyncio.sleep(self._rng.uniform(0, self._rng.choice(PAUSES_S)))
            [act] = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            if await self._call(act) == ENDING:
                return

    async def _call(self, act: str) -> str:
        """Make one control call and return its error message, empty for a success."""
        call, ledger = Call(act), self._ledger
        current.set(call)
        params, body = self._arguments(call)
        for other in sorted(set(self._under_way)):
            self._say(f"fault: {act} beside {other}")
        self._under_way.append(act)
        with ledger.creates(body["name"]) if act == "topic" else nullcontext(lambda: None) as acknowledged:
            answer = await self._world.ask(act, params, json.dumps(body).encode())
            if not answer.refusal:
                acknowledged()
        self._under_way.remove(act)
        ledger.ended(call, answer)
        self._say(f"fault: {act} {params} {body}: {answer.refusal or 'done'}")
        return answer.refusal

    def _arguments(self, call: Call) -> tuple[dict[str, str], dict[str, Any]]:
        rng, act = self._rng, call.act
        if act in ("restore", "remove"):
            call.snapshot_id = rng.choice([*self._ledger.snapshot_ids, NO_SNAPSHOT])
            return {"snapshot_id": f"{call.snapshot_id}"}, {}
        params = {"node_id": f"{rng.choice(list(self._world.cluster.nodes))}"} if act in ON_A_NODE else {}
        if act == "topic":
            self._created += 1
            return {}, {"name": f"extra-{self._created}", "partitions": 1}
        if act in ("skew", "advance"):
            return params, {"by_ms": rng.randint(0, MINUTE_MS)}
        return params, {}

    async def _write(self, name: str) -> None:
        wire = self._world.wire(name)
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(0, 0.1))
            self._written += 1
            index, value = self._rng.randrange(PARTITIONS), f"record {self._written}"
            with self._ledger.writes(f"{index} {value}") as acknowledged:
                if await self._world.write(wire, index, value.encode()):
                    acknowledged()
        wire.close()

    # -- the checks ---------------------------------------------------------------------------------------------

    async def _left_alone(self) -> None:
        """Start all nodes and wait. Raise ``Broken`` if the cluster is unhealthy, or has unexpected content."""
        await self._world.mend()
        found = [
            f"{index} {value.decode()}"
            for index in range(PARTITIONS)
            for value in self._world.values(index)
            if not value.startswith(CHECK)
        ]
        if len(set(found)) < len(found):
            raise Broken("records are duplicated")
        self._ledger.records.check(set(found), "records")
        topics = self._world.cluster.metadata.topics
        self._ledger.topics.check({name for name in topics if not name.startswith("__")}, "topics")
        await self._world.check()
        self._say(f"checked {len(found)} records, {len(topics)} topics")

    async def _end(self) -> None:
        """Shut the process down, perhaps during control calls, and check the content that the next process finds."""
        calls = [asyncio.ensure_future(self._call_often()) for _ in range(CALLERS)]
        await asyncio.sleep(self._rng.uniform(0, SHUTDOWN_S_MAX))
        for other in sorted(set(self._under_way)):
            self._say(f"fault: shutdown beside {other}")
        self._say("fault: shutdown")
        await self._world.ask("shutdown")
        await asyncio.gather(*calls)
        await self._world.open()
        await self._left_alone()
        await self._world.cluster.stop()
