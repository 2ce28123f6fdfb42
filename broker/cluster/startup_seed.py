"""Writes the records of --seed through the nodes' own handlers, before the broker announces its start.

The requests need neither a socket nor a login. The producer has the transactional id `odradek-seed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Domain
from broker.cluster.errors import StartError
from broker.logging import get_logger
from broker.metadata.topics import TRANSACTION_STATE
from broker.requests import own_requests
from protocol.batch import build_batch
from protocol.errors import NONE, ErrorCode
from protocol.hashing import partition_for, partition_of_key
from protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.config.settings import SeedRecord

log = get_logger()

TRANSACTIONAL_ID: Final = "odradek-seed"
TIMEOUT_MS: Final = 60_000
BATCH_RECORDS: Final = 500
PATIENCE_MS: Final = 30_000
PAUSE_MS: Final = 5
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
    }
)
_FIND_COORDINATOR: Final = (10, 3)


async def write_seed(cluster: Cluster, *, is_new: bool) -> None:
    """Write the records in transactions that commit or abort. Raises ``StartError`` if a request fails."""
    records = cluster.settings.seed
    if not is_new:
        log.info("nothing is seeded", reason="the data directory has topics of an earlier start")
        return
    seed = _Seed(cluster)
    await seed.init()
    for aborted, group in groupby(records, key=lambda each: each.aborted):
        await seed.write(group_by_partition(list(group), seed.partitions))
        await seed.end(committed=not aborted)


Batches = dict[tuple[str, int], list["SeedRecord"]]


def group_by_partition(records: Sequence[SeedRecord], partitions: Callable[[str], int]) -> Batches:
    """Group the records of a transaction by partition: the partition that the record names, else the partition for its key,
    else round-robin.
    """
    found: Batches = {}
    for turn, each in enumerate(records):
        count = partitions(each.topic)
        index = turn % count if each.key is None else partition_of_key(each.key, count)
        found.setdefault((each.topic, index if each.partition is None else each.partition), []).append(each)
    return found


class _Seed:
    """A producer inside the broker, which sends one request at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: own_requests.Producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def partitions(self, topic: str) -> int:
        found = self._cluster.metadata.topic(topic)
        if found is None:
            raise StartError(f"--seed: the topic {topic} does not exist")
        return len(found.partitions)

    async def init(self) -> None:
        # FindCoordinator creates __transaction_state.
        find = FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=1)
        first = self._cluster.first.node_id
        await self._retrying(
            lambda: self._ask(first, _FIND_COORDINATOR, find), lambda found: found.error_code
        )
        request = own_requests.init_producer_id(TRANSACTIONAL_ID, TIMEOUT_MS)
        found = await self._coordinator(
            own_requests.INIT_PRODUCER_ID, request, lambda found: found.error_code
        )
        self._producer = (found.producer_id, found.producer_epoch)

    async def write(self, batches: Batches) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in batches:
            topics.setdefault(topic, []).append(index)
        request = own_requests.add_partitions(TRANSACTIONAL_ID, self._producer, topics)
        await self._coordinator(own_requests.ADD_PARTITIONS, request, _first_error)
        for where, records in batches.items():
            for begin in range(0, len(records), BATCH_RECORDS):
                await self._produce(*where, records[begin : begin + BATCH_RECORDS])

    async def end(self, *, committed: bool) -> None:
        request = own_requests.end_txn(TRANSACTIONAL_ID, self._producer, committed=committed)
        await self._coordinator(own_requests.END_TXN, request, lambda found: found.error_code)

    async def _produce(self, topic: str, index: int, records: Sequence[SeedRecord]) -> None:
        sequence = self._sequences.get((topic, index), 0)
        now_ms = self._cluster.clock.now_ms()
        batch = build_batch(
            [(now_ms, each.key, each.value) for each in records],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        request = own_requests.produce(topic, index, batch, TRANSACTIONAL_ID, TIMEOUT_MS)
        await self._retrying(
            lambda: self._ask(self._leader(topic, index), own_requests.PRODUCE, request),
            lambda found: found.responses[0].partition_responses[0].error_code,
        )
        self._sequences[topic, index] = sequence + len(records)

    async def _coordinator(self, api: own_requests.Api, request: Any, error_of: Callable[[Any], int]) -> Any:
        index = partition_for(TRANSACTIONAL_ID, self.partitions(TRANSACTION_STATE))
        return await self._retrying(
            lambda: self._ask(self._leader(TRANSACTION_STATE, index), api, request), error_of
        )

    def _leader(self, topic: str, index: int) -> int:
        found = self._cluster.metadata.topic(topic)
        assert found is not None
        return found.partitions[index].leader

    async def _ask(self, node_id: int, api: own_requests.Api, request: Any) -> Any:
        runtime = self._cluster.nodes[node_id]
        found = own_requests.handle(runtime.node, runtime.listeners[0], api, request, TRANSACTIONAL_ID)
        return await found if isawaitable(found) else found

    async def _retrying(self, ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], int]) -> Any:
        clock = self._cluster.clock
        deadline_ms = clock.now_ms(Domain.REQUESTS) + PATIENCE_MS
        while True:
            found = await ask()
            error = ErrorCode(error_of(found))
            if error is NONE:
                return found
            if error not in _RETRIABLE or clock.now_ms(Domain.REQUESTS) > deadline_ms:
                raise StartError(f"--seed: the records could not be written: {error.name.upper()}")
            again = asyncio.get_running_loop().create_future()
            clock.call_later_ms(PAUSE_MS, partial(again.set_result, None), Domain.REQUESTS)
            await again


def _first_error(response: Any) -> int:
    codes = [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    return next(filter(None, codes), 0)
