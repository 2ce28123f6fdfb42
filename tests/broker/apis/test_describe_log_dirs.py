"""DescribeLogDirs: the sizes of partitions that are open, that are not opened yet, and that have no files yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.apis.describe_log_dirs import describe_log_dirs
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.support.world import OTHER_NODE_ID, World


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    world.create("t", 3)
    world.produce("t", 0, b"one")
    world.produce("t", 0, b"two")
    world.produce("t", 1, b"three")
    yield world
    world.abandon()


async def sizes(world: World, topics: dict[str, list[int]] | None) -> dict[tuple[str, int], int]:
    rows = (
        [DescribableLogDirTopic(topic=name, partitions=some) for name, some in topics.items()]
        if topics is not None
        else None
    )
    answer = await describe_log_dirs(DescribeLogDirsRequest(topics=rows), world.context(5))
    (result,) = answer.results
    assert (answer.error_code, result.error_code) == (ErrorCode.none, ErrorCode.none)
    assert (result.log_dir, result.is_cordoned) == (str(world.path), False)
    assert 0 < result.usable_bytes <= result.total_bytes
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


async def test_sizes_of_open_partitions_and_of_partitions_without_files(world):
    one, two = (batch.size for batch in world.batches("t", 0))
    (three,) = (batch.size for batch in world.batches("t", 1))
    asked = {"t": [0, 1, 2]}
    assert await sizes(world, asked) == {("t", 0): one + two, ("t", 1): three, ("t", 2): 0}
    everything = await sizes(world, None)
    assert everything.items() >= (await sizes(world, asked)).items()
    assert ("__transaction_state", 0) in everything


async def test_unopened_partitions_are_measured_and_stay_closed(world):
    before = await sizes(world, {"t": [0, 1]})
    world.abandon()
    world._open()
    assert await sizes(world, {"t": [0, 1]}) == before
    assert list(world.node.replicas.opened()) == []


async def test_partitions_without_a_local_replica_are_omitted(world):
    state = world.cluster.topics["t"].partitions[1]
    others = (OTHER_NODE_ID,)
    world.cluster.topics["t"].partitions[1] = type(state)(1, others, others, OTHER_NODE_ID, 0, 0)
    world.partition("t", 0).offline = "bad disk"
    assert await sizes(world, {"t": [0, 1, 2, 7, -1], "missing": [0]}) == {("t", 2): 0}
    assert await sizes(world, {}) == {}


async def test_a_client_without_permission_gets_an_error(world, monkeypatch):
    context = world.context(5)
    monkeypatch.setattr(type(context), "authorize", lambda self, *what, **how: False)
    answer = await describe_log_dirs(DescribeLogDirsRequest(topics=None), context)
    assert (answer.error_code, list(answer.results)) == (ErrorCode.cluster_authorization_failed, [])
