"""InitProducerId: the order of the checks of the request, and the error of each version for a fenced producer."""

from __future__ import annotations

import pytest

from broker.apis.init_producer_id import init_producer_id
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.records.transaction_log import TIMEOUT_NEVER_MS
from tests.broker.metadata.world import context_of
from tests.support.coroutines import handled
from tests.support.world import World

OK = ErrorCode.none
VERSIONS = range(6)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.abandon()


def outcome(answer) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_answer_is_epoch_0_and_the_next_one_1(world, version):
    assert outcome(world.ask_init(version=version)) == (OK, 0, 0)
    assert outcome(world.ask_init(version=version)) == (OK, 0, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_goes_over_the_wire(world, version):
    codec, client = request_codec(22, version), client_codec(22, version)
    chunks = client.encode(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=5))
    request = codec.decode(b"".join(chunks), 0)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("tx", -1, -1)
    answer = world.ask_init(request.transactional_id, timeout_ms=5, version=version)
    back = client.decode(b"".join(codec.encode(answer)), 0)
    assert outcome(back) == (OK, 0, 0)


@pytest.mark.parametrize("timeout_ms", [60_000, 0, -1, 900_001])
@pytest.mark.parametrize("version", VERSIONS)
def test_idempotent_producers_get_new_ids_and_nothing_is_stored(world, version, timeout_ms):
    for producer_id in (0, 1):
        assert outcome(world.ask_init(None, timeout_ms=timeout_ms, version=version)) == (OK, producer_id, 0)
    assert world.states() == []


def test_without_a_transactional_id_the_given_identity_is_ignored(world):
    assert outcome(world.ask_init(None, producer_id=77, epoch=5)) == (OK, 0, 0)


@pytest.mark.parametrize("transactional_id", ["tx", "", None])
@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 3)])
def test_producer_id_and_epoch_come_together_or_not_at_all(world, transactional_id, producer_id, epoch):
    answer = world.ask_init(transactional_id, producer_id=producer_id, epoch=epoch, timeout_ms=0)
    assert outcome(answer) == (ErrorCode.invalid_request, -1, -1)


@pytest.mark.parametrize("timeout_ms", [60_000, 0])
def test_the_transactional_id_may_not_be_empty(world, timeout_ms):
    assert outcome(world.ask_init("", timeout_ms=timeout_ms)) == (ErrorCode.invalid_request, -1, -1)


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [
        (0, ErrorCode.invalid_transaction_timeout),
        (-1, ErrorCode.invalid_transaction_timeout),
        (1, OK),
        (900_000, OK),
        (900_001, ErrorCode.invalid_transaction_timeout),
    ],
)
def test_the_timeout_has_its_limits(world, timeout_ms, expected):
    assert world.ask_init(timeout_ms=timeout_ms).error_code == expected


def test_the_timeout_is_checked_before_the_coordinator(world):
    del world.cluster.topics["__transaction_state"]
    assert world.ask_init(timeout_ms=0).error_code == ErrorCode.invalid_transaction_timeout
    assert world.ask_init().error_code == ErrorCode.not_coordinator


def test_an_unknown_transactional_id_accepts_any_identity(world):
    assert outcome(world.ask_init(producer_id=77, epoch=5)) == (OK, 0, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("producer_id", "epoch"), [(0, 0), (0, 9), (99, 2)])
def test_a_fenced_producer_gets_the_error_that_its_version_knows(world, version, producer_id, epoch):
    for _ in range(3):
        world.init()
    answer = world.ask_init(producer_id=producer_id, epoch=epoch, version=version)
    expected = ErrorCode.producer_fenced if version >= 4 else ErrorCode.invalid_producer_epoch
    assert outcome(answer) == (expected, -1, -1)


def test_a_retry_after_a_lost_response_bumps_no_epoch(world):
    world.init()
    for _ in range(3):
        assert world.init(producer_id=0, epoch=0) == (0, 1)
    assert world.briefs() == [(0, 0), (0, 1), (0, 1), (0, 1)], "every InitProducerId writes a record"
    assert world.init(producer_id=0, epoch=1) == (0, 2)


def test_the_timeout_of_the_last_request_counts(world):
    world.init(timeout_ms=5_000)
    world.init(timeout_ms=7_000)
    assert [state.value.transaction_timeout_ms for state in world.states() if state.value] == [5_000, 7_000]


# -- v6, two-phase commit (KIP-939) -------------------------------------------------------------------------


ENABLED = {"transaction.two.phase.commit.enable": "true"}


def ask_v6(world: World, transactional_id: str | None = "tx", timeout_ms: int = 60_000, **flags: bool):
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **flags
    )
    return handled(init_producer_id, request, world.context(6))


@pytest.mark.parametrize("timeout_ms", [-1, 0, 300, 900_001])
def test_with_two_phase_commit_any_timeout_means_none(tmp_path, timeout_ms):
    world = World(tmp_path, settings=ENABLED)
    assert outcome(ask_v6(world, timeout_ms=timeout_ms, enable2_pc=True)) == (OK, 0, 0)
    assert outcome(ask_v6(world)) == (OK, 0, 1)
    stored = [state.value.transaction_timeout_ms for state in world.states() if state.value]
    assert stored == [TIMEOUT_NEVER_MS, 60_000]
    world.abandon()


def test_two_phase_commit_is_refused_where_it_is_disabled(world):
    refused = (ErrorCode.transactional_id_authorization_failed, -1, -1)
    assert outcome(ask_v6(world, enable2_pc=True)) == refused
    assert outcome(ask_v6(world, enable2_pc=True, keep_prepared_txn=True)) == refused
    assert world.states() == []


@pytest.mark.parametrize("enable2_pc", [True, False])
def test_a_prepared_transaction_cannot_be_kept(tmp_path, enable2_pc):
    world = World(tmp_path, settings=ENABLED)
    answer = ask_v6(world, timeout_ms=0, enable2_pc=enable2_pc, keep_prepared_txn=True)
    assert outcome(answer) == (ErrorCode.unsupported_version, -1, -1)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
    assert outcome(ask_v6(world, None, keep_prepared_txn=True)) == (OK, 0, 0)
    world.abandon()


@pytest.mark.parametrize(
    ("enable2_pc", "expected"),
    [(True, ErrorCode.transactional_id_authorization_failed), (False, ErrorCode.unsupported_version)],
)
def test_two_phase_commit_is_authorized_besides_write(cluster, enable2_pc, expected):
    denied = {("TWO_PHASE_COMMIT", "TRANSACTIONAL_ID", "tx")}
    context = context_of(cluster, 6, denied=denied, transaction_two_phase_commit_enable="true")
    request = InitProducerIdRequest(transactional_id="tx", enable2_pc=enable2_pc, keep_prepared_txn=True)
    assert handled(init_producer_id, request, context).error_code == expected
