"""Every pair of calls that start or end nodes, in both orders; the second call begins at several moments of the first.

The cluster runs in virtual time, and the calls are operations of the control port, without HTTP. Each call succeeds or
fails with a documented error, the topics contain the records that the last reset or restore leaves, and the cluster is
consistent afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from broker.cluster import NoSuchNode, StartError
from broker.cluster.runtime import NodeState
from broker.net.ports import BindError
from lab.cluster import reset
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from storage.directory import LogDirectory
from storage.files import use_system
from tests.simulation.controlled import ENDING, PARTITIONS, TOPIC, Answer, Controlled
from tests.simulation.disks import SimDisk
from tests.simulation.loop import SimLoop
from tests.simulation.wire import METADATA, Gone

ACTS: Final = ("start", "stop", "kill", "pause", "resume", "reset", "snapshot", "restore", "shutdown")
MOMENTS_S: Final = ((0.0, 0.003), pytest.param((0.0005, 0.006, 0.009, 0.025), marks=pytest.mark.more))
"""Virtual seconds from the first call to the second. A reset takes about 0.008 s."""
NODE: Final = 2
BEFORE: Final = {"start": "kill", "resume": "pause"}
"""By call: the call that must precede it, as only a dead node can be started, and only a paused node be resumed."""
LIVING: Final = (NodeState.STARTING, NodeState.RUNNING, NodeState.STOPPING)
OLD, NEW = b"before the snapshot", b"after the snapshot"


class Pair:
    """Two control calls on a cluster with a snapshot, a record from before the snapshot and one from after it."""

    def __init__(self, world: Controlled) -> None:
        self._world = world
        self.contents = [[OLD, NEW]]
        """The possible contents of each partition after the calls so far, each a list of records. More than one content
        is possible after a call that failed because the broker was ending."""

    async def begin(self) -> None:
        world = self._world
        await world.open()
        wire = world.wire("producer")
        for value in (OLD, NEW):
            for index in range(PARTITIONS):
                while not await world.write(wire, index, value):
                    await wire.back_off()
            if value is OLD:
                assert not (await world.ask("snapshot")).refusal
        wire.close()

    async def call(self, act: str, node_id: int = NODE) -> Answer:
        params = {"snapshot_id": "1"} if act == "restore" else {"node_id": f"{node_id}"}
        return await self._world.ask(act, params if act not in ("reset", "snapshot", "shutdown") else None)

    def ran(self, act: str, answer: Answer) -> None:
        """Update ``contents`` after the call ``act``. Must be called in the order in which the calls ran."""
        contents: dict[str, list[list[bytes]]] = {"reset": [[]], "restore": [[OLD]]}
        after = contents.get(act, self.contents)
        self.contents = [*self.contents, *after] if answer.refusal == ENDING else after


@contextmanager
def virtual(seed: object) -> Iterator[tuple[SimLoop, asyncio.Runner]]:
    loop = SimLoop(seed)
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = use_system(SimDisk())
    try:
        with capture_logs() as lines, closing(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
            yield loop, runner
    finally:
        use_system(before)
    assert complaints == []
    assert [
        line for line in lines if line["log_level"] == "error" or line["event"] == "partition offline"
    ] == []


@pytest.mark.parametrize("moments_s", MOMENTS_S)
@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
def test_a_pair_of_calls(first: str, second: str, moments_s: tuple[float, ...], tmp_path: Path) -> None:
    for moment_s in moments_s:
        with virtual(f"{first} {second} {moment_s}") as (loop, runner):
            runner.run(run_pair(loop, tmp_path / f"{moment_s}", first, second, moment_s))


async def run_pair(loop: SimLoop, directory: Path, first: str, second: str, moment_s: float) -> None:
    world = Controlled(loop, directory, seed=moment_s, nodes=3, say=lambda line: None)
    pair = Pair(world)
    await pair.begin()
    for act in (first, second):
        if act in BEFORE:
            await pair.call(BEFORE[act])
            break
    calls = [asyncio.ensure_future(pair.call(first))]
    if moment_s:
        await world.pass_time(moment_s)
    calls.append(asyncio.ensure_future(pair.call(second)))
    taken = []
    for act, answer in zip((first, second), await asyncio.gather(*calls), strict=True):
        pair.ran(act, answer)
        if act == "snapshot" and not answer.refusal:
            taken.append(pair.contents)
    if "shutdown" in (first, second):
        await world.open()
        taken.clear()
    await world.mend()
    await check(world, pair.contents)
    for number, contents in enumerate(taken, 2):
        assert not (await world.ask("restore", {"snapshot_id": f"{number}"})).refusal
        await world.mend()
        await check(world, contents)
    await world.cluster.stop()


async def check(world: Controlled, contents: list[list[bytes]]) -> None:
    assert [world.values(index) for index in range(PARTITIONS)] in [[each] * PARTITIONS for each in contents]
    await world.check()


KILLS_S: Final = 0.001
"""Virtual seconds by which each repetition of a call kills the node later than the one before: repetition n kills
the node n times this long after the beginning of the call."""


@pytest.mark.parametrize(
    ("act", "nodes"),
    [("reset", 3), ("reset", 1), ("restore", 3), ("restore", 1), ("snapshot", 3), ("start", 3), ("stop", 3)],
)
def test_a_rule_kills_a_node_in_the_middle_of_a_call(act: str, nodes: int, tmp_path: Path) -> None:
    with virtual(f"{act} {nodes}") as (loop, runner):
        runner.run(
            kill_in_the_middle(Controlled(loop, tmp_path, seed=1, nodes=nodes, say=lambda line: None), act)
        )


async def kill_in_the_middle(world: Controlled, act: str) -> None:
    """Repeat a call and kill a node during each repetition, each time later after the beginning of the call. Check
    that the call succeeds or fails with an error message, and that other nodes keep running."""
    pair, node_id = Pair(world), 1
    await pair.begin()
    kills = refusals = 0
    for number in count():
        if act == "start":
            world.cluster.kill_node(node_id)
        before = [world.values(index) for index in range(PARTITIONS)] if act in ("snapshot", "stop") else None
        call = asyncio.ensure_future(pair.call(act, node_id))
        await world.pass_time(number * KILLS_S)
        if call.done():
            break
        if world.cluster.nodes[node_id].state in LIVING:
            kills += 1
            world.cluster.kill_node(node_id)
        refusals += bool((await call).refusal)
        others = [each for each in world.cluster.nodes.values() if each.node_id != node_id]
        assert {each.state for each in others} <= {NodeState.RUNNING}
        await world.mend()
        found = [world.values(index) for index in range(PARTITIONS)]
        if act in ("reset", "restore"):
            assert found == [{"reset": [], "restore": [OLD]}[act]] * PARTITIONS
        elif before is not None:
            assert found == before
        await world.check()
    await call
    assert kills
    assert refusals or act == "snapshot"
    await world.cluster.stop()


def test_a_client_does_not_create_the_topic_of_the_command_line_during_a_reset(tmp_path: Path) -> None:
    """Clients that reconnect while the nodes start must not auto-create the topic with the partitions of num.partitions."""
    with virtual("auto creation") as (loop, runner):
        runner.run(create_beside_resets(Controlled(loop, tmp_path, seed=1, nodes=3, say=lambda line: None)))


async def create_beside_resets(world: Controlled) -> None:
    await world.open()
    is_over = False

    async def ask(name: str) -> None:
        wire = world.wire(name)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True)
        while not is_over:
            with suppress(Gone):
                await wire.ask_any(METADATA, 9, request)
            await world.pass_time(0.001)
        wire.close()

    asking = [asyncio.ensure_future(ask(f"client-{number}")) for number in range(4)]
    for _ in range(10):
        assert not (await world.ask("reset")).refusal
        await world.pass_time(0.1)
        await world.check()
    is_over = True
    await asyncio.gather(*asking)
    await world.cluster.stop()


def test_a_node_that_is_about_to_stop_is_not_paused(tmp_path: Path) -> None:
    with virtual("pause") as (loop, runner):
        runner.run(pause_beside_a_stop(Controlled(loop, tmp_path, seed=1, nodes=3, say=lambda line: None)))


async def pause_beside_a_stop(world: Controlled) -> None:
    await world.open()
    stop = asyncio.ensure_future(world.cluster.stop_node(NODE))
    await world.pass_time(0)
    with pytest.raises(NoSuchNode, match="node 2 is stopping, not running"):
        world.cluster.pause_node(NODE)
    await stop
    await world.mend()
    await world.check()
    await world.cluster.stop()


@pytest.mark.parametrize("act", ["reset", "restore"])
def test_nothing_changes_where_the_directory_of_a_dead_node_is_in_use(act: str, tmp_path: Path) -> None:
    with virtual("in use") as (loop, runner):
        world = Controlled(loop, tmp_path, seed=1, nodes=3, say=lambda line: None)
        runner.run(act_without_a_directory(world, act))


async def act_without_a_directory(world: Controlled, act: str) -> None:
    pair = Pair(world)
    await pair.begin()
    await world.cluster.stop_node(NODE)
    other = LogDirectory(world.cluster.nodes[NODE].data_dir)  # a second broker on the same directory
    with pytest.raises(StartError, match="in use"):
        await (reset.reset(world.cluster) if act == "reset" else world.control.snapshots.restore(1))
    other.close(clean=False)
    assert [each.state.value for each in world.cluster.nodes.values()] == ["running", "stopped", "running"]
    await world.mend()
    await check(world, [[OLD, NEW]])
    await world.cluster.stop()


def test_the_topics_of_the_command_line_are_made_by_a_start_if_a_reset_could_not(tmp_path: Path) -> None:
    with virtual("due") as (loop, runner):
        runner.run(
            start_after_a_reset_that_failed(
                Controlled(loop, tmp_path, seed=1, nodes=3, say=lambda line: None)
            )
        )


async def start_after_a_reset_that_failed(world: Controlled) -> None:
    await world.open()
    in_use = BindError("port 9092 is in use by another process")
    with patch.object(reset, "start_together", side_effect=in_use), pytest.raises(StartError, match="9092"):
        await reset.reset(world.cluster)
    assert not world.cluster.metadata.topics
    await world.mend()
    await world.check()
    await world.cluster.stop()


def test_calls_that_come_after_a_reset_find_what_it_has_made(tmp_path: Path) -> None:
    with virtual("order") as (loop, runner):
        runner.run(call_behind_a_reset(Controlled(loop, tmp_path, seed=1, nodes=3, say=lambda line: None)))


async def call_behind_a_reset(world: Controlled) -> None:
    await world.open()
    await world.ask("topic", body=b'{"name": "before", "partitions": 1}')
    skewed = world.ask("skew", {"node_id": "2"}, b'{"by_ms": 5000}')
    created = world.ask("topic", body=b'{"name": "after", "partitions": 1}')
    advanced = world.ask("advance", body=b'{"by_ms": 60000}')
    answers = await asyncio.gather(
        world.ask("reset"), skewed, created, advanced, world.ask("kill", {"node_id": "3"})
    )
    assert {answer.refusal for answer in answers} == {""}
    assert set(world.cluster.metadata.topics) == {TOPIC, "after"}
    assert world.control.clock.offsets()["ids"] == 60_000
    nodes = world.cluster.nodes.values()
    assert [(node.state.value, node.skew_ms) for node in nodes] == [
        ("running", 0),
        ("running", 5000),
        ("killed", 0),
    ]
    await world.cluster.stop()
