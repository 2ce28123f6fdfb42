"""The proxy's own admin requests to the upstream cluster, for views and timelines. They are sent only on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from protocol.batch import CorruptBatch, RecordBatch, batches
from protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_transactions import ListTransactionsRequest
from proxy.asking import NoAnswer

if TYPE_CHECKING:
    from proxy.proxy import Proxy

FETCH: Final = 1
LIST_OFFSETS: Final = 2
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
EARLIEST: Final = -2
LATEST: Final = -1
READ_COMMITTED: Final = 1
NAMES_TOPICS: Final = 12
"""Last version of Fetch that has topic names; later ones have topic ids."""
NO_LEADER: Final = -1

Place = tuple[str, int]
Leaders = Mapping[Place, int]
"""Node id of the leader of each partition."""


class Admin:
    """A sender of admin requests. Results of nodes that do not respond are left out. Raises ``NoAnswer`` only if no node
    responds.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    async def topics(self, names: Iterable[str] | None = None) -> list[Any]:
        """Metadata of these topics, or of all topics. Raises ``NoAnswer`` if no node responds."""
        response = await self.proxy.ask_for_topics(names)
        return [topic for topic in response.topics if not topic.error_code and topic.name]

    async def leaders(self, places: Iterable[Place]) -> dict[Place, int]:
        """Leaders of these partitions; those without a leader are left out. Raises ``NoAnswer`` if no node responds."""
        wanted = set(places)
        if not wanted:
            return {}
        topics = await self.topics({topic for topic, _ in wanted})
        return {place: leader for place, leader in leaders_of(topics).items() if place in wanted}

    async def of_each_node(self, api_key: int, request: Any) -> list[tuple[int, Any]]:
        """(node id, response) for each node that responds."""
        nodes = sorted(self.proxy.nodes)
        return await self._gathered({node_id: request for node_id in nodes}, api_key)

    async def offsets(self, leaders: Leaders, timestamp: int, isolation_level: int = 0) -> dict[Place, int]:
        """The offset for a timestamp, or for ``EARLIEST`` or ``LATEST``, in each partition whose leader responds."""
        requests = {}
        for node_id, topics in _by_node(leaders).items():
            wanted = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ]
            requests[node_id] = ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation_level, topics=wanted
            )
        return {
            (topic.name, each.partition_index): each.offset
            for _, response in await self._gathered(requests, LIST_OFFSETS)
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code and each.offset >= 0
        }

    async def open_producers(self, leaders: Leaders) -> dict[Place, list[ProducerState]]:
        """Producers with an open transaction in each partition whose leader responds, the earliest transaction first."""
        requests = {
            node_id: DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()
                ]
            )
            for node_id, topics in _by_node(leaders).items()
        }
        return {
            (topic.name, each.partition_index): sorted(
                (one for one in each.active_producers if one.current_txn_start_offset >= 0),
                key=lambda one: one.current_txn_start_offset,
            )
            for _, response in await self._gathered(requests, DESCRIBE_PRODUCERS)
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    async def transactional_ids(self) -> list[tuple[int, Any]]:
        """Every transactional id that a coordinator lists, with the coordinator's node id."""
        request = ListTransactionsRequest(duration_filter=-1, transactional_id_pattern=None)
        return [
            (node_id, each)
            for node_id, response in await self.of_each_node(LIST_TRANSACTIONS, request)
            if not response.error_code
            for each in response.transaction_states
        ]

    async def described(self, ids: Iterable[tuple[int, str]]) -> list[tuple[int, Any]]:
        """Return (node id of the coordinator, state) of each transactional id.

        ``ids`` has pairs (node id of the coordinator, transactional id). Transactional ids that their coordinator
        cannot describe are left out.
        """
        by_node: dict[int, list[str]] = {}
        for node_id, transactional_id in ids:
            by_node.setdefault(node_id, []).append(transactional_id)
        requests = {
            node_id: DescribeTransactionsRequest(transactional_ids=each) for node_id, each in by_node.items()
        }
        return [
            (node_id, each)
            for node_id, response in await self._gathered(requests, DESCRIBE_TRANSACTIONS)
            for each in response.transaction_states
            if not each.error_code
        ]

    async def fetch(self, leader: int, place: Place, offset: int, bytes_max: int) -> PartitionData | None:
        """The batches of a partition from an offset on; None if its leader does not respond."""
        wanted = FetchPartition(
            partition=place[1],
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=bytes_max,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=bytes_max,
            session_epoch=-1,
            topics=[FetchTopic(topic=place[0], partitions=[wanted])],
        )
        try:
            response = await self.proxy.ask(leader, FETCH, request, NAMES_TOPICS)
        except NoAnswer:
            return None
        if response.error_code or not response.responses:
            return None
        data: PartitionData = response.responses[0].partitions[0]
        return None if data.error_code else data

    async def _gathered(self, requests: Mapping[int, Any], api_key: int) -> list[tuple[int, Any]]:
        """(node id, response) for each node that responds."""

        async def ask(node_id: int, request: Any) -> tuple[int, Any] | None:
            try:
                return node_id, await self.proxy.ask(node_id, api_key, request)
            except NoAnswer:
                return None

        answers = await asyncio.gather(*(ask(node_id, request) for node_id, request in requests.items()))
        return [answer for answer in answers if answer is not None]


def leaders_of(topics: Iterable[Any]) -> dict[Place, int]:
    """The leader of each partition that has one, from the metadata."""
    return {
        (topic.name, each.partition_index): each.leader_id
        for topic in topics
        for each in topic.partitions
        if each.leader_id != NO_LEADER
    }


def batches_in(data: PartitionData) -> Sequence[RecordBatch]:
    """The complete batches of a Fetch response."""
    records = data.records
    if not isinstance(records, bytes | bytearray | memoryview):
        return ()
    found: list[RecordBatch] = []
    with contextlib.suppress(CorruptBatch):  # the last batch may be incomplete
        found.extend(batches(bytes(records)))
    return found


def _by_node(leaders: Leaders) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = {}
    for (topic, index), node_id in leaders.items():
        found.setdefault(node_id, {}).setdefault(topic, []).append(index)
    return found
