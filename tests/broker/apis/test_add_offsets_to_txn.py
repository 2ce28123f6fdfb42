"""AddOffsetsToTxn adds the group's partition of the offsets topic to the transaction."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from tests.support.world import CONSUMER_OFFSETS, World

OK = ErrorCode.none
VERSIONS = range(5)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t")
    yield world
    world.abandon()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group_id", ["g", "another", ""])
def test_the_partition_of_the_group_joins_the_transaction(world, version, group_id):
    producer_id, epoch = world.init()
    assert world.add_offsets("tx", producer_id, epoch, group_id, version=version) == OK
    txn = world.memory()
    assert txn is not None
    assert txn.partitions == {(CONSUMER_OFFSETS, world.node.groups.partition_for(group_id))}
    assert txn.client_version == 0


def test_offsets_and_records_are_one_transaction(world):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    assert world.add_offsets("tx", producer_id, epoch) == OK
    assert world.commit_offsets("tx", producer_id, epoch, {("t", 0): 5}, adds=False) is OK
    assert world.end("tx", producer_id, epoch, committed=True, version=4)[0] == OK
    index = world.node.groups.partition_for("g")
    assert world.markers(CONSUMER_OFFSETS, index) == world.markers("t") == [(0, True)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (9, 0, ErrorCode.invalid_producer_id_mapping),
        (0, 5, ErrorCode.producer_fenced),
        (0, -1, ErrorCode.producer_fenced),
    ],
)
def test_a_fenced_producer_gets_the_error_that_its_version_knows(world, version, producer_id, epoch, error):
    world.init()
    if error is ErrorCode.producer_fenced and version < 2:
        error = ErrorCode.invalid_producer_epoch
    assert world.add_offsets("tx", producer_id, epoch, version=version) == error


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [
        ("", ErrorCode.invalid_request),
        (None, ErrorCode.invalid_request),
        ("unknown", ErrorCode.invalid_producer_id_mapping),
    ],
)
def test_an_unknown_transactional_id_is_an_error(world, transactional_id, error):
    assert world.add_offsets(transactional_id, 0, 0) == error
