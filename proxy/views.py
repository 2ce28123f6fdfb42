"""The views of the upstream cluster, from requests that the proxy itself sends while a viewer is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.cluster.addresses import host_and_port
from broker.metadata.topics import is_internal
from lab.trace.trace import Trace
from lab.views.batches import batch_view
from lab.views.forms import (
    BatchesPiece,
    BatchView,
    ClusterSummary,
    GroupsSummary,
    NodeSummary,
    OpenTransaction,
    PartitionsSummary,
    PartitionSummary,
    TransactionsSummary,
)
from lab.views.ports import BATCHES_MAX, OPEN_OF_PARTITION_MAX, PARTITIONS_MAX, BatchPosition
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch import PartitionData
from proxy import groups as groups_of
from proxy import transactions as transactions_of
from proxy.admin import (
    EARLIEST,
    LATEST,
    NO_LEADER,
    READ_COMMITTED,
    Admin,
    Place,
    batches_in,
    leaders_of,
)
from proxy.asking import NoAnswer
from proxy.node import ProxyNode
from proxy.rewriting import API_VERSIONS

LOOK_S_MAX: Final = 1.0
"""Timeout of a node's response, in seconds. A node that does not respond in time is shown as unreachable."""
FETCH_BYTES: Final = 1024 * 1024
FETCHES_PER_LOOK: Final = 4
BEHIND_MAX: Final = 20 * BATCHES_MAX
"""Largest number of offsets by which a viewer may be behind. A viewer who is further behind restarts near the end."""
RUNNING: Final = "running"
UNREACHABLE: Final = "unreachable"


class ProxyViews:
    """The implementation of `lab.views.ports.Views` for the upstream.

    Nodes and partitions that do not respond are left out.
    """

    def __init__(self, admin: Admin, trace: Trace) -> None:
        self._admin = admin
        self._trace = trace

    async def cluster(self) -> ClusterSummary:
        proxy = self._admin.proxy
        try:
            topics = await self._admin.topics()
        except NoAnswer:
            topics = []
        partitions = [each for topic in topics for each in topic.partitions]
        states = await self.node_states()
        return ClusterSummary(
            product="proxy",
            cluster_id=proxy.cluster_id,
            bootstrap_servers=proxy.bootstrap_servers,
            now_ms=proxy.clock.now_ms(),
            ahead_ms=0,
            topics=len(topics),
            partitions=len(partitions),
            trace=self._trace.running,
            loop_lag_ms=round(proxy.lag.max_ms, 1),
            nodes=[_node(node, states[node_id], partitions) for node_id, node in sorted(proxy.nodes.items())],
        )

    async def upstream(self) -> dict[str, Any]:
        """The nodes with the proxy's listeners, in the form of ``GET /v1/cluster``."""
        proxy = self._admin.proxy
        try:
            topics = await self._admin.topics()
        except NoAnswer:
            topics = []
        states = await self.node_states()
        return {
            "cluster_id": proxy.cluster_id,
            "bootstrap_servers": proxy.bootstrap_servers,
            "ca": None,
            "features": {},
            "nodes": [
                _described(node, states[node_id], topics) for node_id, node in sorted(proxy.nodes.items())
            ],
        }

    async def node_states(self) -> dict[int, str]:
        """State of each node of the upstream by node id: running if it responds, else unreachable."""

        async def look(node: ProxyNode) -> tuple[int, str]:
            asking = self._admin.proxy.ask(
                node.node_id,
                API_VERSIONS,
                ApiVersionsRequest(client_software_name="odradek", client_software_version="1"),
            )
            try:
                await asyncio.wait_for(asking, LOOK_S_MAX)
            except (NoAnswer, TimeoutError):
                return node.node_id, UNREACHABLE
            return node.node_id, RUNNING

        return dict(await asyncio.gather(*map(look, self._admin.proxy.nodes.values())))

    async def transactions(self) -> TransactionsSummary:
        try:
            return await transactions_of.summary(self._admin)
        except NoAnswer:
            return TransactionsSummary(total=0, by_state={}, transactions=[])

    async def groups(self) -> GroupsSummary:
        try:
            return await groups_of.groups(self._admin)
        except NoAnswer:
            return GroupsSummary(total=0, groups=[])

    async def partitions(self, topic: str | None, first: int, count: int) -> PartitionsSummary:
        try:
            topics = await self._admin.topics(None if topic is None else [topic])
        except NoAnswer:
            return PartitionsSummary(total=0, first=first, partitions=[])
        chosen = [each for each in topics if topic is not None or not is_internal(each.name)]
        chosen.sort(key=lambda each: str(each.name))
        places = [
            (each.name, partition)
            for each in chosen
            for partition in sorted(each.partitions, key=lambda one: int(one.partition_index))
        ]
        shown = places[first : first + min(count, PARTITIONS_MAX)]
        wanted = {(name, each.partition_index) for name, each in shown}
        leaders = {place: leader for place, leader in leaders_of(chosen).items() if place in wanted}
        offsets = await self._offsets(leaders)
        return PartitionsSummary(
            total=len(places),
            first=first,
            partitions=[_partition(name, each, offsets) for name, each in shown],
        )

    async def _offsets(self, leaders: Mapping[Place, int]) -> _Offsets:
        start = await self._admin.offsets(leaders, EARLIEST)
        stable = await self._admin.offsets(leaders, LATEST, READ_COMMITTED)
        high = await self._admin.offsets(leaders, LATEST)
        waiting = {place: leaders[place] for place in leaders if stable.get(place, 0) < high.get(place, 0)}
        found = _Offsets(start, stable, high, {})
        if waiting:
            owners = await transactions_of.owners(self._admin)
            for place, states in (await self._admin.open_producers(waiting)).items():
                found.open[place] = [
                    OpenTransaction(
                        producer_id=each.producer_id,
                        producer_epoch=each.producer_epoch,
                        first_offset=each.current_txn_start_offset,
                        transactional_id=owners.get((each.producer_id, *place)),
                    )
                    for each in states[:OPEN_OF_PARTITION_MAX]
                ]
        return found

    async def batches(self, position: BatchPosition) -> BatchesPiece | None:
        place = (position.topic, position.partition)
        try:
            leaders = await self._admin.leaders([place])
        except NoAnswer:
            return None
        if place not in leaders:
            return None
        return await self._newer(leaders[place], place, position)

    async def _newer(self, leader: int, place: Place, position: BatchPosition) -> BatchesPiece | None:
        restarted = position.next_offset < 0
        offset = await self._near_the_end(leader, place) if restarted else position.next_offset
        data, found = await self._read(leader, place, offset)
        if data is None and not restarted:
            # The log was truncated, or retention has deleted the next batches.
            restarted = True
            data, found = await self._read(leader, place, await self._near_the_end(leader, place))
        if data is None:
            return None
        marks = (data.log_start_offset, data.last_stable_offset, data.high_watermark)
        if not found and marks == (position.log_start, position.last_stable, position.high_watermark):
            return None
        position.log_start, position.last_stable, position.high_watermark = marks
        end = found[-1].last_offset + 1 if found else offset
        # A viewer who is too far behind restarts at the next read.
        position.next_offset = end if data.high_watermark - end <= BEHIND_MAX else -1
        return BatchesPiece(
            topic=place[0],
            partition=place[1],
            restarted=restarted or len(found) > BATCHES_MAX,
            batches=found[-BATCHES_MAX:],
            log_start=data.log_start_offset,
            last_stable=data.last_stable_offset,
            high_watermark=data.high_watermark,
            log_end=None,
        )

    async def _read(
        self, leader: int, place: Place, offset: int
    ) -> tuple[PartitionData | None, list[BatchView]]:
        """Fetch at most ``FETCHES_PER_LOOK`` times from ``offset`` on. Return the last response's data and all batches.

        The data is None if the last fetch failed.
        """
        found: list[BatchView] = []
        data = None
        for _ in range(FETCHES_PER_LOOK):
            data = await self._admin.fetch(leader, place, offset, FETCH_BYTES)
            arrived = [] if data is None else [each for each in batches_in(data) if each.next_offset > offset]
            found += map(batch_view, arrived)
            if data is None or not arrived:
                break
            offset = arrived[-1].next_offset
            if offset >= data.high_watermark:
                break
        return data, found

    async def _near_the_end(self, leader: int, place: Place) -> int:
        leaders = {place: leader}
        earliest = (await self._admin.offsets(leaders, EARLIEST)).get(place, 0)
        latest = (await self._admin.offsets(leaders, LATEST)).get(place, earliest)
        return max(earliest, latest - BATCHES_MAX)


class _Offsets:
    """The offsets and open transactions of the partitions that one summary shows."""

    __slots__ = ("high", "open", "stable", "start")

    def __init__(
        self,
        start: Mapping[Place, int],
        stable: Mapping[Place, int],
        high: Mapping[Place, int],
        open_ones: dict[Place, list[OpenTransaction]],
    ) -> None:
        self.start, self.stable, self.high, self.open = start, stable, high, open_ones


def _described(node: ProxyNode, state: str, topics: list[Any]) -> dict[str, Any]:
    listener = node.listener
    leads: dict[str, list[int]] = {}
    follows: dict[str, list[int]] = {}
    for topic in topics:
        for each in topic.partitions:
            if each.leader_id == node.node_id:
                leads.setdefault(topic.name, []).append(each.partition_index)
            elif node.node_id in each.replica_nodes:
                follows.setdefault(topic.name, []).append(each.partition_index)
    return {
        "node_id": node.node_id,
        "state": state,
        "skew_ms": 0,
        "misrouted_to": None,
        "rack": None,
        "listeners": [
            {
                "name": listener.name,
                "security_protocol": listener.security_protocol,
                "address": host_and_port(listener.host, listener.port),
                "advertised": host_and_port(listener.advertised_host, listener.advertised_port),
            }
        ],
        "connections": len(node.connections),
        "leads": leads,
        "follows": follows,
    }


def _node(node: ProxyNode, state: str, partitions: list[Any]) -> NodeSummary:
    listener = node.listener
    return NodeSummary(
        node=node.node_id,
        state=state,
        address=host_and_port(listener.advertised_host, listener.advertised_port),
        leads=sum(each.leader_id == node.node_id for each in partitions),
        replicas=sum(node.node_id in each.replica_nodes for each in partitions),
        connections=len(node.connections),
        skew_ms=0,
        misrouted_to=None,
    )


def _partition(topic: str, partition: Any, offsets: _Offsets) -> PartitionSummary:
    place = (topic, partition.partition_index)
    return PartitionSummary(
        topic=topic,
        partition=partition.partition_index,
        leader=None if partition.leader_id == NO_LEADER else partition.leader_id,
        replicas=list(partition.replica_nodes),
        isr=list(partition.isr_nodes),
        log_start=offsets.start.get(place),
        last_stable=offsets.stable.get(place),
        high_watermark=offsets.high.get(place),
        log_end=None,
        open=offsets.open.get(place, []),
    )
