"""EndTxn: the rules of each version for ending a transaction, and its responses."""

from __future__ import annotations

import pytest

from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tests.support.world import World

OK = ErrorCode.none
VERSIONS = range(6)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("t")
    yield world
    world.abandon()


def begin(world: World) -> tuple[int, int]:
    identity = world.init()
    assert world.add("tx", *identity, ("t", 0)) == {("t", 0): OK}
    return identity


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_since_version_5_the_response_has_the_next_epoch(world, version, committed):
    producer_id, epoch = begin(world)
    answer = world.end("tx", producer_id, epoch, committed=committed, version=version)
    assert answer[0] == OK
    if version >= 5:
        assert answer == (OK, producer_id, 1)
    assert world.markers("t") == [(1 if version >= 5 else 0, committed)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_goes_over_the_wire(version):
    codec, client = request_codec(26, version), client_codec(26, version)
    sent = EndTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=3, committed=True)
    assert codec.decode(b"".join(client.encode(sent)), 0) == sent
    answer = EndTxnResponse(error_code=0, producer_id=7, producer_epoch=4)
    back = client.decode(b"".join(codec.encode(answer)), 0)
    assert (back.producer_id, back.producer_epoch) == ((7, 4) if version >= 5 else (-1, -1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", ["", None])
def test_the_transactional_id_may_not_be_empty(world, transactional_id, version):
    answer = world.end(transactional_id, 0, 0, committed=True, version=version)
    assert answer == (ErrorCode.invalid_request, -1, -1)


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
    begin(world)
    if error is ErrorCode.producer_fenced and version < 2:
        error = ErrorCode.invalid_producer_epoch
    answer = world.end("tx", producer_id, epoch, committed=True, version=version)
    assert answer == (error, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_transactional_id_has_no_mapping(world, version):
    answer = world.end("unknown", 0, 0, committed=True, version=version)
    assert answer == (ErrorCode.invalid_producer_id_mapping, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_without_partitions_is_an_invalid_state(world, version):
    producer_id, epoch = world.init()
    answer = world.end("tx", producer_id, epoch, committed=True, version=version)
    assert answer == (ErrorCode.invalid_txn_state, -1, -1)


@pytest.mark.parametrize(
    ("version", "expected"), [(4, (ErrorCode.invalid_txn_state, -1, -1)), (5, (OK, 0, 1))]
)
def test_an_abort_without_partitions_is_accepted_since_version_5(world, version, expected):
    assert world.end("tx", *world.init(), committed=False, version=version) == expected


@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_of_version_5_gets_the_current_epoch(world, committed):
    producer_id, epoch = begin(world)
    for _ in range(3):
        assert world.end("tx", producer_id, epoch, committed=committed) == (OK, producer_id, 1)
    assert world.end("tx", producer_id, epoch, committed=not committed) == (
        ErrorCode.invalid_txn_state,
        -1,
        -1,
    )
    assert len(world.markers("t")) == 1


def test_an_abort_after_the_end_bumps_once_more(world):
    producer_id, epoch = begin(world)
    world.end("tx", producer_id, epoch, committed=True)
    assert world.end("tx", producer_id, 1, committed=False) == (OK, producer_id, 2)
    assert world.end("tx", producer_id, 2, committed=True) == (ErrorCode.invalid_txn_state, -1, -1)
