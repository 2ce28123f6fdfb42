"""Questions to a cluster that may not respond: a bounded time for all of them, those to several nodes side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from lab.explain.words import duration_text
from odradek.deadlines import stretched
from odradek.nearest import NEAR, nearest
from odradek.printable import printable
from protocol.messages.metadata import MetadataResponseTopic
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError, Kind, NoResponse, OutOfTime, ToolError, Unreachable, error_name
from tools.client.names import names_of

BUDGET_S: Final = stretched(1.6)
"""For all questions of an explanation: its lines are there within 2 s."""
THREADS_MAX: Final = 16

T = TypeVar("T")


class Asking:
    """A node that did not respond once is not asked again; what could not be asked is kept as sentences."""

    def __init__(self, cluster: Cluster, budget_s: float | None = None) -> None:
        """``budget_s``: seconds for all questions; None: ``BUDGET_S``."""
        self.cluster = cluster
        self._began = time.monotonic()
        self._end = self._began + (BUDGET_S if budget_s is None else budget_s)
        self._silent: set[int] = set()
        self._responded: set[int] = set()
        self.members: set[int] = set()
        """Nodes that have replicas; those that the metadata does not list are away."""
        self.not_asked: dict[str, None] = {}

    @property
    def left_s(self) -> float:
        """Of the time for all questions."""
        return max(0.0, self._end - time.monotonic())

    @property
    def share_s(self) -> float:
        """Of the time that is left, as much as one round may take."""
        return max(0.01, round(self.left_s / 2, 2))

    @property
    def is_late(self) -> bool:
        """Half of the time for all questions is over: what reads a log stops with what it has."""
        return time.monotonic() > (self._began + self._end) / 2

    def metadata(self, topics: Iterable[str] | None = ()) -> list[MetadataResponseTopic]:
        """Of these topics, or of all for None; the error of the client if no node responds."""
        with self.cluster.within(self.share_s):
            found = self.cluster.refresh(topics)
        for topic in found:
            self.members.update(node for each in topic.partitions for node in each.replica_nodes)
        return found

    def states(self) -> dict[int, str]:
        """The nodes as a client sees them, as `ClusterContext.nodes` has them."""
        nodes = self.cluster.nodes.keys()
        return (
            dict.fromkeys(nodes, "running")
            | dict.fromkeys(self._silent - self._responded, "unreachable")
            | dict.fromkeys(self.members - nodes, "unregistered")
        )

    def any(self, what: str, ask: Callable[[], T]) -> T | None:
        """One question that any node can respond to; None if it could not be asked."""
        began = time.monotonic()
        try:
            with self.cluster.within(self.share_s):
                return ask()
        except ToolError as error:
            self._note("The cluster", None, what, error, began)
            return None

    def near(self, kind: Kind, name: str) -> str | None:
        """A name that the cluster knows, for one that it does not know."""
        try:
            with self.cluster.within(self.share_s):
                found = nearest(name, names_of(self.cluster, kind), NEAR)
        except ToolError:
            return None
        return None if found is None else printable(found)

    def each(self, what: str, questions: Mapping[int, Callable[[int], T]]) -> dict[int, T]:
        """One round: each question to its node, side by side; without those that could not be asked."""
        known = self.cluster.nodes
        wanted = {node: ask for node, ask in questions.items() if node in known and node not in self._silent}
        for node in questions.keys() - known.keys():
            self.note(f"Node {node} is not in the metadata of the cluster.")
        found: dict[int, T] = {}
        if not wanted:
            return found
        began = time.monotonic()
        with (
            self.cluster.within(self.share_s),
            ThreadPoolExecutor(min(THREADS_MAX, len(wanted))) as pool,
        ):
            asked = {node: pool.submit(ask, node) for node, ask in wanted.items()}
            for node, future in asked.items():
                try:
                    found[node] = future.result()
                    self._responded.add(node)
                except ToolError as error:
                    self._note(f"Node {node}", node, what, error, began)
        return found

    def one(self, what: str, node: int, ask: Callable[[int], T]) -> T | None:
        """A round of one node."""
        return self.each(what, {node: ask}).get(node)

    def note(self, sentence: str) -> None:
        """Something else that could not be asked."""
        self.not_asked[sentence] = None

    def _note(self, who: str, node: int | None, what: str, error: ToolError, began: float) -> None:
        if isinstance(error, OutOfTime) and isinstance(error.last, KafkaError):
            error = error.last
        if isinstance(error, KafkaError):
            self.note(f"{who} answers {what} with {error_name(error.code)}.")
            return
        if isinstance(error, NoResponse | OutOfTime):
            took = duration_text(max(1, round(1000 * (time.monotonic() - began))))
            self.note(f"{who} did not respond to {what} within {took}.")
        elif isinstance(error, Unreachable):
            self.note(f"{who} cannot be reached: {error}.")
        else:
            self.note(f"{who}, {what}: {str(error).removesuffix('.')}.")
            return
        if node is not None:
            self._silent.add(node)
