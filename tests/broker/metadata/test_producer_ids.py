"""No producer id is allocated twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from broker.metadata.producer_ids import BLOCK_SIZE, PREFETCH_FROM, ProducerIds, ProducerIdsExhausted
from tests.broker.metadata.world import Gate, away, open_cluster


class Claims:
    """An allocator of consecutive blocks of producer ids. The test decides when an allocation is durable."""

    def __init__(self) -> None:
        self.made = 0
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.made += 1
        return (self.made - 1) * BLOCK_SIZE


async def take(ids: ProducerIds, count: int) -> list[int]:
    taken = []
    for _ in range(count):
        producer_id = ids.allocate()
        taken.append(producer_id if isinstance(producer_id, int) else await producer_id)
    return taken


async def test_ids_are_allocated_in_order_across_blocks():
    ids = ProducerIds(Claims())
    assert await take(ids, 3 * BLOCK_SIZE) == list(range(3 * BLOCK_SIZE))


async def test_an_id_is_there_at_once_while_the_block_lasts():
    ids = ProducerIds(Claims())
    await take(ids, 1)
    assert [ids.allocate() for _ in range(PREFETCH_FROM - 1)] == list(range(1, PREFETCH_FROM))


async def test_the_next_block_is_asked_for_at_nine_tenths_and_once():
    claims = Claims()
    ids = ProducerIds(claims)
    await take(ids, PREFETCH_FROM - 1)
    await asyncio.sleep(0)
    assert claims.made == 1
    await take(ids, 5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert claims.made == 2
    rest = [ids.allocate() for _ in range(50)]
    assert all(isinstance(producer_id, int) for producer_id in rest)
    for _ in range(5):
        await asyncio.sleep(0)
    assert claims.made == 2


def later(allocated: int | Awaitable[int]) -> Awaitable[int]:
    """The awaitable of an allocation that waits for a block of ids. Fails if the allocation returned an id at once."""
    assert not isinstance(allocated, int)
    return allocated


async def test_many_that_wait_for_one_block_get_different_ids():
    claims = Claims()
    claims.open.clear()
    ids = ProducerIds(claims)
    waiting = [asyncio.ensure_future(later(ids.allocate())) for _ in range(2500)]
    await asyncio.sleep(0)
    claims.open.set()
    taken = await asyncio.gather(*waiting)
    assert sorted(taken) == list(range(2500))


async def test_a_caller_that_gives_up_does_not_take_the_block_with_it():
    claims = Claims()
    claims.open.clear()
    ids = ProducerIds(claims)
    first, second = asyncio.ensure_future(later(ids.allocate())), asyncio.ensure_future(later(ids.allocate()))
    await asyncio.sleep(0)
    first.cancel()
    claims.open.set()
    assert await second == 0
    assert claims.made == 1


async def test_a_failed_block_allocation_is_retried():
    claims = Claims()
    claims.failure = ProducerIdsExhausted()
    ids = ProducerIds(claims)
    with pytest.raises(ProducerIdsExhausted):
        await later(ids.allocate())
    claims.failure = None
    assert await later(ids.allocate()) == 0


async def test_a_failed_prefetch_is_nobodys_error():
    claims = Claims()
    ids = ProducerIds(claims)
    await take(ids, 1)
    claims.failure = ProducerIdsExhausted()
    assert await take(ids, BLOCK_SIZE - 1) == list(range(1, BLOCK_SIZE))
    with pytest.raises(ProducerIdsExhausted):
        await later(ids.allocate())


async def test_ids_never_repeat_across_kills(tmp_path):
    seen: set[int] = set()
    for taken in (1, 950, 1000, 1001, 3, 0, 2500):
        cluster = open_cluster(tmp_path)
        for _ in range(taken):
            producer_id = cluster.allocate_producer_id()
            producer_id = producer_id if isinstance(producer_id, int) else await producer_id
            assert producer_id not in seen
            seen.add(producer_id)
        cluster.abandon()
    assert len(seen) == 5455


async def test_a_block_is_durable_before_its_first_id_is_given_out(tmp_path):
    gate = Gate()
    cluster = open_cluster(tmp_path, sync=gate)
    at_start = gate.calls
    assert cluster.image.next_producer_id == 0
    for first in (0, BLOCK_SIZE):
        waiting = cluster.allocate_producer_id()
        assert not isinstance(waiting, int)
        assert await waiting == first
        assert gate.calls == at_start + 1 + first // BLOCK_SIZE
        assert cluster.image.next_producer_id == first + BLOCK_SIZE
        for _ in range(BLOCK_SIZE - 1):
            cluster.allocate_producer_id()
    await cluster.close()


async def test_nodes_get_blocks_in_the_order_in_which_they_are_first_asked(tmp_path):
    cluster = open_cluster(tmp_path)
    for node_id in (2, 3):
        away(cluster, node_id)
    asked = [asyncio.ensure_future(later(cluster.allocate_producer_id(node_id))) for node_id in (3, 1, 3)]
    assert await asyncio.gather(*asked) == [0, 1000, 1]
    assert await later(cluster.allocate_producer_id(2)) == 2000
    await cluster.close()
    again = open_cluster(tmp_path)
    assert again.image.next_producer_id == 3000, "a start allocates no block"
    assert await later(again.allocate_producer_id()) == 3000
    await again.close()
