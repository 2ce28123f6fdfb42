"""Queries of a cluster that may not respond: with a common time limit, and in parallel for several nodes."""

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
"""Time limit for all queries of an explanation, in seconds, so that it is printed within 2 s."""
THREADS_MAX: Final = 16

T = TypeVar("T")


class Asking:
    """A sender of queries. A node that has timed out once is not queried again; failures are collected as sentences."""

    def __init__(self, cluster: Cluster, budget_s: float | None = None) -> None:
        """``budget_s`` limits all queries together, in seconds; None: ``BUDGET_S``."""
        self.cluster = cluster
        self._began = time.monotonic()
        self._end = self._began + (BUDGET_S if budget_s is None else budget_s)
        self._silent: set[int] = set()
        self._responded: set[int] = set()
        self.members: set[int] = set()
        """Ids of nodes with replicas. Those that the metadata does not list are not running."""
        self.not_asked: dict[str, None] = {}

    @property
    def left_s(self) -> float:
        """Seconds left for all queries."""
        return max(0.0, self._end - time.monotonic())

    @property
    def share_s(self) -> float:
        """Seconds that one round of queries may take: half of what is left."""
        return max(0.01, round(self.left_s / 2, 2))

    @property
    def is_late(self) -> bool:
        """Whether half of the time is over; functions that read a log then stop and return a partial result."""
        return time.monotonic() > (self._began + self._end) / 2

    def metadata(self, topics: Iterable[str] | None = ()) -> list[MetadataResponseTopic]:
        """The metadata of these topics, or of all if None. Raises the client's error if no node responds."""
        with self.cluster.within(self.share_s):
            found = self.cluster.refresh(topics)
        for topic in found:
            self.members.update(node for each in topic.partitions for node in each.replica_nodes)
        return found

    def states(self) -> dict[int, str]:
        """The state of each node as a client sees it, in the form of `ClusterContext.nodes`."""
        nodes = self.cluster.nodes.keys()
        return (
            dict.fromkeys(nodes, "running")
            | dict.fromkeys(self._silent - self._responded, "unreachable")
            | dict.fromkeys(self.members - nodes, "unregistered")
        )

    def any(self, what: str, ask: Callable[[], T]) -> T | None:
        """The result of a query that any node can serve; None if it failed."""
        began = time.monotonic()
        try:
            with self.cluster.within(self.share_s):
                return ask()
        except ToolError as error:
            self._note("The cluster", None, what, error, began)
            return None

    def near(self, kind: Kind, name: str) -> str | None:
        """The existing name that is most similar to ``name``; None if none is similar, or the query failed."""
        try:
            with self.cluster.within(self.share_s):
                found = nearest(name, names_of(self.cluster, kind), NEAR)
        except ToolError:
            return None
        return None if found is None else printable(found)

    def each(self, what: str, questions: Mapping[int, Callable[[int], T]]) -> dict[int, T]:
        """Run one round of queries, in parallel, each for its node. Returns the results of those that succeeded."""
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
        """Query one node, like a round of ``each``; None if the query failed."""
        return self.each(what, {node: ask}).get(node)

    def note(self, sentence: str) -> None:
        """Add a sentence about something that could not be queried."""
        self.not_asked[sentence] = None

    def _note(self, who: str, node: int | None, what: str, error: ToolError, began: float) -> None:
        if isinstance(error, OutOfTime) and isinstance(error.last, KafkaError):
            error = error.last
        if isinstance(error, KafkaError):
            self.note(f"{who} responds to {what} with {error_name(error.code)}.")
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
