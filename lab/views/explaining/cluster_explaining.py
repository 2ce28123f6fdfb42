"""Explanations for the cluster of this process.

The facts of an explanation are read in one turn of the event loop, so they are consistent. Only records that do
not change any more are read before or after this turn, in slices: the trace, the states of a transactional id in
the coordinator's log, and the content of a log below its last stable offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import Final, TypeVar

from broker.cluster import Cluster
from broker.logging.printable import printable
from lab.explain.cluster import explain_cluster
from lab.explain.explanation import Explanation
from lab.explain.facts import ClusterContext, GroupFacts, InFlightFacts, PartitionFacts
from lab.explain.groups import explain_group
from lab.explain.ids import explain_id
from lab.explain.partitions import explain_partition
from lab.faults import Faults
from lab.trace.trace import Trace
from lab.views.explaining import cluster as cluster_of
from lab.views.explaining import groups as groups_of
from lab.views.explaining import ids as ids_of
from lab.views.explaining.context import context, refused
from lab.views.explaining.partitions import open_producers, partition_facts, with_tail
from lab.views.explaining.transactions import Owners, Place, coordinated, known, owners_of, unserved
from lab.views.ports import UnknownName
from lab.views.turns import in_turns

PARTITIONS_PER_LOOK: Final = 100
TAILS_PER_TURN: Final = 1
NAMES_MAX: Final = 1000
"""Largest number of existing names that are compared with an unknown name."""
NAMES_PER_TURN: Final = 500
NEAR: Final = 0.82
"""Smallest `difflib` ratio at which a name is suggested for an unknown one. Such names differ in one or two letters."""

T = TypeVar("T")


class ClusterExplaining:
    """The implementation of `lab.views.ports.Explaining` for the nodes of this process."""

    def __init__(self, cluster: Cluster, faults: Faults, trace: Trace) -> None:
        self._cluster = cluster
        self._faults = faults
        self._trace = trace

    async def partitions(self, topic: str, index: int | None) -> list[Explanation]:
        found: list[Explanation] = []
        places = self._places(topic, index)
        for start in range(0, len(places), PARTITIONS_PER_LOOK):
            found += await self._explained(places[start : start + PARTITIONS_PER_LOOK])
        return found

    async def group(self, group_id: str) -> list[Explanation]:
        cluster = self._cluster
        fetched = groups_of.last_fetches(self._trace)

        def producers() -> frozenset[int]:
            places = groups_of.spots(cluster, group_id)
            return open_producers(cluster, places) | groups_of.pending_producers(cluster, group_id)

        facts, around = await self._look(
            producers, lambda owners: groups_of.group_facts(cluster, owners, fetched, group_id)
        )
        if facts.is_unknown:
            facts = replace(facts, near=await self._near(group_id, groups_of.names(cluster)))
        return [explain_group(await groups_of.with_content(cluster, facts), around)]

    async def record(self, group_id: str, topic: str, index: int, offset: int) -> list[Explanation]:
        from lab.explain.share_records import explain_record  # rarely used
        from lab.views.explaining.shares import record_facts

        cluster, fetched = self._cluster, groups_of.last_fetches(self._trace)
        self._places(topic, index)

        def take(owners: Owners) -> tuple[GroupFacts, InFlightFacts | None]:
            facts = groups_of.group_facts(cluster, owners, fetched, group_id, (topic, index))
            return facts, record_facts(cluster, group_id, topic, index, offset)

        (facts, record), around = await self._look(lambda: open_producers(cluster, [(topic, index)]), take)
        if facts.coordinator is None or facts.coordinator_error is not None:
            return [explain_group(facts, around)]
        if facts.is_unknown:
            near = await self._near(group_id, groups_of.names(cluster))
            raise UnknownName(
                f"there is no share group {group_id}" + (f"; did you mean {near}?" if near else "")
            )
        if facts.share is None:
            raise UnknownName(f"there is no share group {group_id}: it is a {facts.type} group")
        return [explain_record(facts, offset, record, around)]

    async def transactional_id(self, transactional_id: str) -> list[Explanation]:
        cluster = self._cluster
        steps = await ids_of.history(cluster, transactional_id)
        mine = ids_of.producers(coordinated(cluster, transactional_id), steps or ())
        suspects = await ids_of.open_places(cluster, mine)

        def producers() -> frozenset[int]:
            places = ids_of.places_of(coordinated(cluster, transactional_id))
            return open_producers(cluster, {*places, *suspects})

        facts, around = await self._look(
            producers, lambda owners: ids_of.id_facts(cluster, owners, transactional_id, steps, suspects)
        )
        if facts.is_unknown:
            names = (each.transactional_id for each in known(cluster))
            facts = replace(facts, near=await self._near(transactional_id, names))
        return [explain_id(facts, around)]

    async def everything(self) -> list[Explanation]:
        cluster = self._cluster
        fetched = groups_of.last_fetches(self._trace)
        found = await cluster_of.suspects(cluster)
        facts, around = await self._look(
            lambda: open_producers(cluster, found.partitions),
            lambda owners: cluster_of.cluster_facts(cluster, owners, fetched, found),
        )
        return explain_cluster(facts, around)

    async def _explained(self, places: Iterable[Place]) -> list[Explanation]:
        cluster = self._cluster

        def take(owners: Owners) -> list[PartitionFacts]:
            found = (partition_facts(cluster, owners, *place) for place in places)
            return [each for each in found if each is not None]

        facts, around = await self._look(lambda: open_producers(cluster, places), take)
        if any(not each.owner_is_known for place in facts for each in place.open):
            around = replace(around, not_asked=unserved(cluster))
        return [
            explain_partition(with_tail(cluster, each), around)
            async for each in in_turns(facts, TAILS_PER_TURN)
        ]

    async def _look(
        self, producers: Callable[[], frozenset[int]], take: Callable[[Owners], T]
    ) -> tuple[T, ClusterContext]:
        """Return (facts, context). Both are read in one turn of the event loop, the facts by calling ``take``.

        ``producers`` returns the producer ids whose transactional ids ``take`` needs.
        """
        refusals = await refused(self._trace, self._cluster.clock)
        owners = await owners_of(self._cluster, producers)
        return take(owners), context(self._cluster, self._faults, self._trace, refusals)

    async def _near(self, name: str, names: Iterable[str]) -> str | None:
        found = [each async for each in in_turns(islice(names, NAMES_MAX), NAMES_PER_TURN)]
        near = get_close_matches(name, found, 1, NEAR)
        # The name may contain anything, since any client may have created the group or id.
        return printable(near[0]) if near else None

    def _places(self, name: str, index: int | None) -> list[Place]:
        topics = self._cluster.metadata.topics
        topic = topics.get(name)
        if topic is None:
            near = get_close_matches(name, topics, 1)
            raise UnknownName(f"there is no topic {name}" + (f"; did you mean {near[0]}?" if near else ""))
        if index is None:
            return [(name, state.index) for state in topic.partitions]
        if topic.partition(index) is None:
            raise UnknownName(f"{name} has no partition {index}: the last is {len(topic.partitions) - 1}")
        return [(name, index)]
