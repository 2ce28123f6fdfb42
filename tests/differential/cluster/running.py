"""Runs the stories of a scene (a list of actions on nodes) on one cluster, and stores Kafka's responses as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.differential import runner
from tests.differential.cluster import stories
from tests.differential.cluster.story import (
    NODES,
    PLACED,
    STORIES,
    ClusterStory,
    Entry,
    Side,
    assignments,
    java_hash,
)
from tests.differential.runner import Transcript
from tests.differential.story import Unanswered
from tests.support import raw

RECORDED = Path(__file__).parents[1] / "recorded_cluster"
INTERNAL = {
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
}

assert stories

Act = Callable[["Stage"], object]


class Stage:
    """The cluster on which the stories of a scene (a list of actions on nodes, such as a kill) run.

    Methods that stop or start nodes wait until all running nodes have the new metadata.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        entry = Entry("cluster-stage", "eye", lambda s: None, "")
        self._eye = ClusterStory(entry, side.host, 0, side=side)
        self._cuts: set[tuple[int, int]] = set()
        self._paused: set[int] = set()
        self._playing: list[ClusterStory] = []

    def __enter__(self) -> Stage:
        self._create_internal_topics()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._eye.close()

    def _create_internal_topics(self) -> None:
        for name, configs in INTERNAL.items():
            rows = [{"name": key, "value": value} for key, value in configs.items()]
            topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "configs": rows}
            topic["assignments"] = assignments(PLACED)
            self._eye.quiet("create_topics", 7, topics=[topic], timeout=30_000)
        self.heal()

    def _forget(self, node_id: int) -> None:
        for each in (self._eye, *self._playing):
            each.forget(node_id)

    def kill(self, *nodes: int) -> None:
        for node_id in nodes:
            self._forget(node_id)
            self.side.kill(node_id)
        self._await_known()

    def stop(self, node_id: int) -> None:
        self._forget(node_id)
        self.side.stop(node_id)
        self._await_known()

    def start(self, *nodes: int) -> None:
        for node_id in nodes:
            self.side.start(node_id)
        self._await_known()

    def pause(self, node_id: int) -> None:
        self.side.pause(node_id)
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        self.side.resume(node_id)
        self._paused.discard(node_id)
        self._await_known()

    def cut(self, one: int, other: int) -> None:
        self.side.cut(one, other)
        self._cuts.add((one, other))

    def mend(self) -> None:
        for one, other in tuple(self._cuts):
            self.side.mend(one, other)
            self._cuts.discard((one, other))

    def _await_known(self) -> None:
        """Wait until the metadata of all running nodes lists exactly the running nodes."""
        if self.side.reachable():
            self._eye.home = self.side.reachable()[-1]
            self._eye.await_known(set(self.side.reachable()))

    def heal(self) -> None:
        """Start and connect all nodes, elect preferred leaders, and wait for the coordinators to load."""
        self.side.release()
        self.mend()
        for node_id in tuple(self._paused):
            self.resume(node_id)
        missing = [each for each in NODES if each not in self.side.reachable()]
        if missing:
            self.start(*missing)
        eye = self._eye
        for name in INTERNAL:
            for index in range(len(PLACED)):
                eye.await_isr(name, set(NODES), index)
        rows = [{"topic": name, "partitions": list(range(len(PLACED)))} for name in INTERNAL]
        eye.quiet("elect_leaders", 2, retry=(), election_type=0, topic_partitions=rows, timeout=30_000)
        for name in INTERNAL:
            for index, nodes in enumerate(PLACED):
                eye.await_leader(name, nodes[0], index)
        for index, nodes in enumerate(PLACED):
            name = next(each for n in range(1000) if java_hash(each := f"warm{n}") % len(PLACED) == index)
            for kind in (0, 1):
                eye.await_coordinator(name, kind, nodes[0])

    def remove(self, told: ClusterStory) -> None:
        """Delete the topics of the finished story ``told``."""
        known = self._eye.quiet("metadata", 12, retry=(), topics=None)["topics"]
        rows = [{"name": row["name"]} for row in known if (row["name"] or "").startswith(told.prefix)]
        if rows:
            self._eye.quiet("delete_topics", 6, retry=(), topics=rows, timeout=30_000)

    # -- playing ------------------------------------------------------------------------------------------------

    def play(self, entries: Sequence[Entry], acts: Sequence[Act], attempt: int = 0) -> dict[str, Transcript]:
        """Run stories of one scene; return their transcripts. ``attempt`` makes names unique on the same cluster."""
        self._playing = [ClusterStory(each, self.side.host, 0, attempt, side=self.side) for each in entries]
        runs = [(told, _steps(entry, told)) for entry, told in zip(entries, self._playing, strict=True)]
        for act in (*acts, None):
            for told, run in runs:
                self._step(told, run)
            if act is not None:
                act(self)
        self.heal()
        for told in self._playing:
            told.close()
            if not told.keeps_topics:
                self.remove(told)
        transcripts = {told.entry.id: json.loads(json.dumps(told.transcript)) for told in self._playing}
        self._playing = []
        return transcripts

    def _step(self, told: ClusterStory, run: Iterator[None]) -> None:
        if told.is_over:
            return
        try:
            next(run)
            return
        except StopIteration:
            pass
        except Unanswered as error:
            told.put("ended early", str(error))
        except (
            raw.Closed,
            raw.Silence,
            raw.Malformed,
            OSError,
            LookupError,
            TypeError,
            AssertionError,
        ) as error:
            told.put("ended early", f"{type(error).__name__}: {error}")
        told.is_over = True


@dataclass(frozen=True)
class Scene:
    name: str
    acts: tuple[Act, ...] = ()


def _steps(entry: Entry, told: ClusterStory) -> Iterator[None]:
    """Generator that runs a story up to its next `yield` in each step, or as a whole if the story has no
    `yield`."""
    yield from entry.run(told) or ()


def kill(*nodes: int) -> Act:
    return lambda stage: stage.kill(*nodes)


def start(*nodes: int) -> Act:
    return lambda stage: stage.start(*nodes)


def stop(node: int) -> Act:
    return lambda stage: stage.stop(node)


def pause(node: int) -> Act:
    return lambda stage: stage.pause(node)


def resume(node: int) -> Act:
    return lambda stage: stage.resume(node)


def isolate(node: int) -> Act:
    """Cut a node off from the other nodes, but not from clients and the controller."""
    return lambda stage: [stage.cut(each, node) for each in NODES if each != node]


def mend(stage: Stage) -> None:
    stage.mend()


def mend_and_start(*nodes: int) -> Act:
    return lambda stage: (stage.mend(), stage.start(*nodes))


def at_once(*acts: Act) -> Act:
    return lambda stage: [act(stage) for act in acts]


def nothing(stage: Stage) -> None:
    """Do nothing. Between the previous action of the scene and this one, the stories wait for a timeout."""


SCENES = {
    scene.name: scene
    for scene in (
        Scene("calm"),
        # Node 1 is killed, then restarted.
        Scene("killed", (kill(1), start(1))),
        Scene("unregistered", (kill(1), start(1))),
        # The same, for stories that hold requests until the kill.
        Scene("decided", (kill(1), start(1))),
        # Node 1 does a controlled shutdown, then is restarted.
        Scene("stopped", (stop(1), start(1))),
        # Node 3 cannot fetch and leaves the ISR, then its links are restored.
        Scene("cut", (isolate(3), nothing, mend)),
        # Node 3 cannot fetch and leaves the ISR, then node 1 is killed. Node 1 is restarted, and the links are restored.
        Scene("leaderless", (isolate(3), nothing, kill(1), mend_and_start(1))),
        # Nodes 2 and 3 are killed, then restarted.
        Scene("alone", (kill(2, 3), start(2, 3))),
        # Node 2 is killed, then node 1, which has more records. Node 2 is restarted, then node 1.
        Scene("unclean", (kill(2), kill(1), start(2), start(1))),
        # Nodes 3 and 2 are killed, then restarted in that order.
        Scene("two-killed", (kill(3), kill(2), start(3), start(2))),
        # Controlled shutdowns of nodes 3 and 2, which are restarted in that order, or in the other.
        Scene("two-stopped", (stop(3), stop(2), start(3), start(2))),
        Scene("last-stopped-first-back", (stop(3), stop(2), start(2), start(3))),
        # A controlled shutdown of node 3. Then node 2 is killed. Node 2 is restarted, then node 3.
        Scene("stopped-and-killed", (stop(3), kill(2), start(2), start(3))),
        # Node 2 ends before its followers fetch again. The links are restored, and node 2 is restarted.
        Scene("killed-at-once", (at_once(isolate(2), kill(2)), mend_and_start(2))),
        Scene("stopped-at-once", (at_once(isolate(2), stop(2)), mend_and_start(2))),
        # Node 3 is paused and leaves the ISR, then it is resumed.
        Scene("paused", (pause(3), nothing, resume(3))),
        # Nodes 3 and 2 are killed and restarted, with a story that changes feature levels.
        Scene("disabled", (kill(3), kill(2), start(3), start(2))),
        # Node 3 is killed and restarted, with a story that changes a setting of all brokers.
        Scene("setting", (kill(3), start(3))),
        # The last ones, as their stories create the topic of the share coordinators.
        Scene("share"),
        Scene("share-killed", (kill(1), start(1))),
        Scene("share-stopped", (stop(1), start(1))),
    )
}


def entries(scene: str | None = None) -> list[Entry]:
    return [entry for entry in STORIES.values() if scene in (None, entry.scene)]


def play(stage: Stage, scene: Scene, chosen: Sequence[Entry], attempt: int = 0) -> dict[str, Transcript]:
    return stage.play(chosen, scene.acts, attempt)


def recorded(entry: Entry) -> Transcript | None:
    return runner.load(entry.area, RECORDED).get(entry.name)


def record(entry: Entry, transcript: Transcript) -> None:
    runner.keep(entry.area, entry.name, transcript, RECORDED)
