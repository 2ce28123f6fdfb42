"""Explain any cluster within 2 s: through the control port of our broker, else over the protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeVar

from lab.explain.cluster import explain_cluster, explain_topic, severity
from lab.explain.explanation import Explanation
from lab.explain.facts import ClusterContext
from lab.explain.groups import explain_group
from lab.explain.ids import explain_id
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.control import Ages
from tools.explain.asking import Asking
from tools.explain.by_control import Control, find_control
from tools.explain.everything import cluster_facts
from tools.explain.groups import group_facts
from tools.explain.ids import id_facts
from tools.explain.looking import Where, look

PARTITIONS_MAX: Final = 5000
"""Maximum number of partitions of a topic that are examined over the protocol."""

T = TypeVar("T")


class Explaining:
    """The queries of one command, which take at most `asking.BUDGET_S` together."""

    def __init__(self, cluster: Cluster) -> None:
        self._asking = Asking(cluster)
        self._control: Control | None = find_control(self._asking)

    def topic(self, topic: str, index: int | None) -> list[Explanation]:
        """Explain one partition of a topic, or all partitions, those with problems first. Raises ``ToolError`` if there is
        none.
        """
        query: dict[str, object] = {"topic": topic} if index is None else {"topic": topic, "partition": index}
        told = self._by_control_port(query)
        if told is not None:
            return sorted(told, key=severity)
        wanted = self._partitions(topic, index)
        return self._by_protocol(lambda ages: look(self._asking, wanted, ages).values(), explain_topic)

    def group(self, group: str) -> list[Explanation]:
        told = self._by_control_port({"group": group})
        if told is not None:
            return told
        return self._by_protocol(
            lambda ages: group_facts(self._asking, group, ages),
            lambda facts, around: [explain_group(facts, around)],
        )

    def record(self, group: str, topic: str, index: int, offset: int) -> list[Explanation]:
        """Explain one record of a share group. The leader tells its state to no client, so the control port is needed."""
        query = {"topic": topic, "partition": index, "group": group, "offset": offset}
        told = self._by_control_port(query)
        if told is None:
            raise ToolError(
                "only the control port of an Odradek broker knows the state of a record in a share group: set "
                "ODRADEK_CONTROL"
            )
        return told

    def transactional_id(self, transactional_id: str) -> list[Explanation]:
        told = self._by_control_port({"transactional_id": transactional_id})
        if told is not None:
            return told
        return self._by_protocol(
            lambda ages: id_facts(self._asking, transactional_id, ages),
            lambda facts, around: [explain_id(facts, around)],
        )

    def everything(self) -> list[Explanation]:
        told = self._by_control_port({})
        if told is not None:
            return told
        return self._by_protocol(lambda ages: cluster_facts(self._asking, ages), explain_cluster)

    def _by_control_port(self, query: dict[str, object]) -> list[Explanation] | None:
        return None if self._control is None else self._control.explanations(query)

    def _by_protocol(
        self, ask: Callable[[Ages], T], explain: Callable[[T, ClusterContext], list[Explanation]]
    ) -> list[Explanation]:
        """Explain from facts queried over the protocol.

        The rules and the trace are added if there is a control port without explanations (an older broker, a proxy).
        """
        asking, control = self._asking, self._control
        if not asking.cluster.nodes:
            asking.metadata()
        ages = Ages(asking.cluster, {} if control is None else control.ages_ms())
        facts = ask(ages)
        around = ClusterContext() if control is None else control.context()
        around = replace(around, nodes=around.nodes or asking.states(), not_asked=tuple(asking.not_asked))
        return explain(facts, around)

    def _partitions(self, topic: str, index: int | None) -> Collection[Where]:
        with self._asking.cluster.within(self._asking.share_s):
            found = self._asking.cluster.topic(topic)
        numbers = {each.partition_index for each in found.partitions}
        if index is None:
            if len(numbers) > PARTITIONS_MAX:
                self._asking.note(f"Only {PARTITIONS_MAX} of {len(numbers)} partitions were examined.")
            return {(topic, each) for each in sorted(numbers)[:PARTITIONS_MAX]}
        if index not in numbers:
            raise ToolError(f"{topic} has no partition {index}: the last is {max(numbers)}")
        return {(topic, index)}
