"""Stories of commands with three nodes, which the story kills and starts.

    @story("kafka-leader-election", profile="nodes")
    def preferred(s):
        orders = s.cluster.topic([[2, 1, 3]])
        s.kill(2)
        s.cluster.await_leader(orders, 1)
        s.run("--election-type", "PREFERRED", "--topic", orders.name, "--partition", 0)

The story places the replicas, so that both sides have the same leaders. At its end all nodes run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.cluster.running import Stage
from tests.differential.cluster.story import NODES, PORT_NAMES, ClusterStory
from tests.differential.cluster.story import Entry as ClusterEntry
from tests.differential.console_tools.normal import TextNormal
from tests.differential.console_tools.story import ToolStory, of_one_batch
from tests.differential.story import Topic


@dataclass
class NodesStory(ToolStory):
    stage: Stage = field(kw_only=True)
    cluster: ClusterStory = field(init=False)
    """Sends raw requests that prepare topics or wait for nodes. They are not in the transcript."""

    def __post_init__(self) -> None:
        super().__post_init__()
        entry = ClusterEntry(self.entry.area, self.entry.name, lambda s: None, "calm")
        self.cluster = ClusterStory(entry, self.host, 0, self.attempt, side=self.stage.side)
        self.cluster.prefix = self.prefix

    def _words(self, paths: Any) -> TextNormal:
        ports = {self.stage.side.port(node_id): PORT_NAMES[node_id] for node_id in NODES}
        return TextNormal(self.prefix, ports, paths)

    @property
    def bootstrap(self) -> str:
        """Addresses of the nodes that run and are not paused."""
        return ",".join(self.bootstrap_of(node_id) for node_id in self.stage.side.reachable())

    def bootstrap_of(self, node_id: int) -> str:
        return f"{self.host}:{self.stage.side.port(node_id)}"

    def close(self, on: str | None = None) -> None:
        super().close(on)
        if on is None:
            self.stage.heal()
            self.stage.remove(self.cluster)
            self.cluster.close()

    def put_records(self, topic: Topic, *values: str, at: int) -> None:
        """Produce records to partition 0 at its leader."""
        data = self.batch([value.encode() for value in values])
        self.cluster.quiet("produce", 9, at=at, **of_one_batch(topic.name, data))

    # -- acts ----------------------------------------------------------------------------------------------------

    def kill(self, *nodes: int) -> None:
        for node_id in nodes:
            self.cluster.forget(node_id)
        self.stage.kill(*nodes)
        self._move()

    def start(self, *nodes: int) -> None:
        self.stage.start(*nodes)
        self._move()

    def _move(self) -> None:
        if reachable := self.stage.side.reachable():
            self.cluster.home = reachable[-1]
