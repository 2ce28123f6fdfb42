"""ShareFetch and ShareAcknowledge at a node: histories that were seen on Apache Kafka 4.4.0."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import Domain
from broker.metadata.values import GROUP_RESOURCE
from broker.share import manager
from broker.share.state import Outcome, StateBatch
from protocol.errors import ErrorCode
from tests.broker.share.world import (
    ACCEPT,
    GAP,
    GROUP,
    OTHER,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    ShareWorld,
    acquired,
    partitions_of,
    records,
    turns,
)

WAIT_MS = 2_500


@pytest.fixture
async def world(tmp_path: Path) -> ShareWorld:
    """A node with the topic t1 of two partitions, initialized for the group g, which reads from the start."""
    made = ShareWorld(tmp_path)
    made.create(TOPIC, 2)
    made.configure(share_auto_offset_reset="earliest")
    made.initialize()
    return made


def error(outcome) -> int:
    return outcome.error_code


async def test_records_are_acquired_acknowledged_and_delivered_again(world):
    world.produce(10, 10)
    first = await world.fetch(0, 0)
    assert acquired(first) == [(0, 19, 1)]
    assert records(first) == [(0, 9), (10, 19)]
    assert first.acquisition_lock_timeout_ms == 30_000
    types = [ACCEPT, REJECT, RELEASE, GAP]
    assert await world.ack(1, (10, 14, [ACCEPT]), (15, 15, [RELEASE]), (16, 19, types)) == 0
    again = await world.fetch(2)
    assert acquired(again) == [(15, 15, 2), (18, 18, 2)]
    assert records(again) == [(10, 19)], "whole batches, with records that are not acquired"
    last = await world.fetch(3, acks={0: [(0, 9, [ACCEPT])]})
    assert partitions_of(last)[0].acknowledge_error_code == 0
    assert acquired(last) == []


async def test_acknowledgements_that_are_late_or_wrong(world):
    world.produce(10, 10)
    await world.fetch(0, 0, 1)
    await world.ack(1, (10, 14, [ACCEPT]), (15, 15, [RELEASE]), (16, 19, [ACCEPT, REJECT, RELEASE, GAP]))
    await world.fetch(2)
    await world.fetch(3, acks={0: [(0, 9, [ACCEPT])]})
    assert await world.ack(4, (10, 14, [ACCEPT])) == 0, "below the start offset"
    epoch = 5
    cases: list[tuple[list[Any], ErrorCode]] = [
        ([(18, 30, [ACCEPT])], ErrorCode.invalid_request),
        ([(100, 110, [ACCEPT])], ErrorCode.invalid_request),
        ([(15, 15, [RELEASE]), (15, 15, [RELEASE])], ErrorCode.invalid_record_state),
        ([(18, 18, [ACCEPT]), (15, 15, [ACCEPT])], ErrorCode.invalid_request),
        ([(15, 15, [5])], ErrorCode.invalid_request),
        ([(15, 15, [-1])], ErrorCode.invalid_request),
        ([(15, 15, [])], ErrorCode.invalid_request),
        ([(15, 18, [ACCEPT, ACCEPT])], ErrorCode.invalid_request),
        ([(15, 15, [RENEW])], ErrorCode.invalid_request),
    ]
    for batches, code in cases:
        assert await world.ack(epoch, *batches) == code, batches
        epoch += 1
    response = await world.acknowledge(epoch, {1: [(0, 0, [ACCEPT])]})
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.invalid_record_state
    assert data.error_message is not None
    response = await world.acknowledge(epoch + 1, {7: [(0, 0, [ACCEPT])]})
    assert error(response.responses[0].partitions[0]) == ErrorCode.unknown_topic_or_partition
    response = await world.acknowledge(epoch + 2, {0: [(0, 0, [ACCEPT])]}, topic_id=uuid.UUID(int=1))
    assert error(response.responses[0].partitions[0]) == ErrorCode.unknown_topic_id
    assert (await world.acknowledge(epoch + 3)).responses == []
    assert (await world.acknowledge(epoch + 4, {0: []})).responses == []
    response = await world.acknowledge(epoch + 5, {0: [], 1: [(0, 0, [ACCEPT])]})
    assert {each.partition_index for each in response.responses[0].partitions} == {0, 1}


async def test_version_1_has_no_renewals(world):
    world.produce(10)
    await world.fetch(0, 0, version=1)
    assert await world.ack(1, (0, 0, [RENEW]), version=1) == ErrorCode.invalid_request


async def test_sessions(world):
    world.produce(10, 10)
    assert error(await world.fetch(0, acks={0: [(0, 0, [ACCEPT])]})) == ErrorCode.invalid_request
    assert await world.acquired(0, 0) == [(0, 19, 1)]
    assert error(await world.fetch(3)) == ErrorCode.invalid_share_session_epoch
    assert error(await world.acknowledge(0)) == ErrorCode.invalid_share_session_epoch
    assert error(await world.acknowledge(1, member="nobody")) == ErrorCode.share_session_not_found
    assert error(await world.fetch(1, member="")) == ErrorCode.invalid_request
    assert error(await world.fetch(1, member=None)) == ErrorCode.invalid_request
    assert error(await world.fetch(1, member="x" * 37)) == ErrorCode.invalid_request
    assert error(await world.fetch(1, group=None)) == ErrorCode.invalid_request
    final = await world.fetch(-1, acks={0: [(15, 15, [ACCEPT])]})
    assert partitions_of(final)[0].acknowledge_error_code == 0
    await turns()
    assert error(await world.fetch(1)) == ErrorCode.share_session_not_found
    assert await world.acquired(0, 0) == [(0, 14, 2), (16, 19, 2)], "what was out is back"


async def test_impossible_requests(world):
    assert error(await world.fetch(0, 0, 0)) == ErrorCode.unknown_server_error
    world.produce(1)
    assert error(await world.fetch(0, 0, share_acquire_mode=2)) == ErrorCode.unknown_server_error
    assert error(await world.fetch(1, share_acquire_mode=2)) == ErrorCode.unknown_server_error
    assert error(await world.fetch(2, is_renew_ack=True)) == ErrorCode.invalid_request
    response = await world.fetch(2, max_bytes=-1)
    assert error(partitions_of(response)[0]) == ErrorCode.unknown_server_error
    assert await world.acquired(3) == [(0, 0, 1)], "the refused renewal has not used the epoch"


async def test_unknown_topics_and_partitions(world):
    response = await world.fetch(0, 0, topic_id=uuid.UUID(int=1))
    assert error(partitions_of(response)[0]) == ErrorCode.unknown_topic_id
    response = await world.fetch(0, 0, 7)
    assert {index: error(each) for index, each in partitions_of(response).items()} == {0: 0, 7: 3}


async def test_records_of_another_member(world):
    world.produce(100, 100)
    assert await world.acquired(0, 0) == [(0, 199, 1)]
    await world.ack(1, (10, 20, [RELEASE]))
    assert await world.acquired(0, 0, member=OTHER, connection=2) == [(10, 20, 2)]
    assert await world.ack(2, (0, 199, [ACCEPT])) == ErrorCode.invalid_record_state
    assert await world.ack(3, (0, 9, [ACCEPT]), (10, 20, [ACCEPT])) == ErrorCode.invalid_record_state
    assert await world.ack(4, (0, 9, [ACCEPT]), (21, 199, [ACCEPT])) == 0
    world.share.on_disconnected(2)
    await turns()
    assert await world.acquired(5) == [(10, 20, 3)]


async def test_acquire_modes(world):
    world.produce(*[100] * 6)
    assert await world.acquired(0, 0, max_records=150, batch_size=150) == [(0, 199, 1)]
    limited = await world.fetch(1, max_records=30, batch_size=30, share_acquire_mode=1)
    assert acquired(limited) == [(200, 229, 1)]
    assert records(limited) == [(200, 299)]
    assert (await world.fetch(2, max_records=0, max_wait_ms=WAIT_MS)).responses == []
    assert (await world.fetch(3, max_bytes=0, max_wait_ms=WAIT_MS)).responses == []
    ranges = [(230, 299, 1), (300, 299, 1), (300, 399, 1)]
    assert await world.acquired(4, max_records=100, batch_size=0) == ranges, "with an empty one, as in Kafka"
    assert await world.acquired(5, max_bytes=1) == [(400, 499, 1)]


async def test_a_record_that_is_always_released_is_delivered_alone_in_the_end(world):
    world.produce(40)
    epoch = 0
    delivered: list[tuple[int, int, int]] = []
    while not delivered or delivered[-1] != (0, 0, 5):
        response = await world.fetch(epoch, 0)
        for first, last, count in acquired(response):
            delivered.append((first, last, count))
            await world.ack(epoch + 1, (first, last, [RELEASE]))
        epoch += 2
    assert delivered == [(0, 39, 1), (0, 39, 2), (0, 39, 3), (0, 19, 4), (0, 0, 5)]


async def test_locks_run_out(world):
    world.configure(share_record_lock_duration_ms="1000", share_delivery_count_limit="3")
    world.node.config.values["group.share.min.record.lock.duration.ms"] = 1000
    world.configure()
    world.produce(6)
    assert await world.acquired(0, 0) == [(0, 5, 1)]
    waiting = world.start_fetch(1, max_wait_ms=3000)
    world.clock.advance(999)
    await turns()
    assert not waiting.done()
    world.clock.advance(1)
    await turns()
    assert acquired(waiting.result()) == [(0, 5, 2)]
    assert world.persister.written[-1].batches == [StateBatch(0, 5, 0, 1)]
    world.clock.advance(1000)
    await turns()
    assert await world.acquired(2) == [(0, 0, 3)]
    assert await world.acquired(3) == [(1, 1, 3)]


async def test_the_number_of_records_in_flight_is_limited(world):
    world.configure(share_partition_max_record_locks="100")
    world.produce(100, 100)
    assert await world.acquired(0, 0) == [(0, 99, 1)]
    assert await world.acquired(1) == []
    assert await world.ack(2, (10, 19, [ACCEPT])) == 0
    assert await world.acquired(3) == []
    assert await world.ack(4, (30, 39, [RELEASE])) == 0
    assert await world.acquired(5) == [(30, 39, 2)]
    assert await world.ack(6, (0, 9, [ACCEPT])) == 0
    assert await world.acquired(7) == [(100, 199, 1)]


async def test_transactions(world):
    world.produce(3)
    for committed, count in ((True, 3), (False, 3)):
        producer_id, epoch = world.world.init("tx")
        world.world.add("tx", producer_id, epoch, (TOPIC, 0))
        world.world.produce(
            TOPIC, 0, *[b"x"] * count, transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0
        )
        world.world.end("tx", producer_id, epoch, committed=committed)
    world.produce(2)
    world.initialize("rc")
    world.configure("rc", share_isolation_level="read_committed", share_auto_offset_reset="earliest")
    assert await world.acquired(0, 0) == [(0, 12, 1)], "with aborted data and markers"
    committed = await world.fetch(0, 0, group="rc")
    assert acquired(committed) == [(0, 6, 1), (10, 12, 1)]
    assert records(committed) == [(0, 2), (3, 5), (6, 6), (7, 9), (10, 10), (11, 12)]
    response = await world.acknowledge(1, {0: [(0, 6, [ACCEPT])]}, group="rc")
    assert error(response.responses[0].partitions[0]) == 0
    response = await world.acknowledge(2, {0: [(7, 9, [ACCEPT])]}, group="rc")
    assert error(response.responses[0].partitions[0]) == 0
    producer_id, epoch = world.world.init("tx")
    world.world.add("tx", producer_id, epoch, (TOPIC, 0))
    world.world.produce(
        TOPIC, 0, *[b"x"] * 4, transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0
    )
    waiting = world.start_fetch(3, group="rc", max_wait_ms=WAIT_MS)
    world.produce(2)
    await turns()
    assert not waiting.done()
    world.world.end("tx", producer_id, epoch, committed=False)
    await turns()
    assert acquired(waiting.result()) == [(17, 19, 1)]


async def test_what_wakes_a_waiting_fetch(world):
    world.produce(10, 10)
    assert await world.acquired(0, 0) == [(0, 19, 1)]
    waiting = world.start_fetch(0, 0, member=OTHER, max_wait_ms=WAIT_MS, connection=2)
    assert await world.ack(1, (0, 19, [RELEASE])) == 0
    await turns()
    assert not waiting.done(), "a release wakes nobody"
    world.clock.advance(WAIT_MS)
    assert acquired(waiting.result()) == [(0, 19, 2)]
    waiting = world.start_fetch(2, max_wait_ms=WAIT_MS)
    assert await world.ack(1, (0, 9, [ACCEPT]), (10, 19, [RELEASE]), member=OTHER) == 0
    await turns()
    assert acquired(waiting.result()) == [(10, 19, 3)], "the start offset has moved"


async def test_the_arrival_of_another_acknowledgement_wakes_a_fetch(world):
    world.produce(10)
    assert await world.acquired(0, 0) == [(0, 9, 1)]
    waiting = world.start_fetch(0, 0, member=OTHER, max_wait_ms=WAIT_MS, connection=2)
    await world.ack(1, (3, 3, [RELEASE]))
    await turns()
    assert not waiting.done()
    await world.ack(2, (5, 5, [ACCEPT]))
    await turns()
    assert acquired(waiting.result()) == [(3, 3, 2)]


async def test_a_fetch_that_acquires_records_wakes_those_of_other_groups(world):
    world.initialize("g2", start_offset=0)
    world.produce(10)
    assert await world.acquired(0, 0) == [(0, 9, 1)]
    waiting = world.start_fetch(0, 0, member=OTHER, max_wait_ms=WAIT_MS, connection=2)
    await world.ack(1, (3, 3, [RELEASE]))
    await turns()
    assert not waiting.done()
    assert await world.acquired(0, 0, group="g2", connection=3) == [(0, 9, 1)]
    await turns()
    assert acquired(waiting.result()) == [(3, 3, 2)]


async def test_the_end_of_a_session_wakes_nobody(world):
    world.produce(10)
    assert await world.acquired(0, 0) == [(0, 9, 1)]
    waiting = world.start_fetch(0, 0, member=OTHER, max_wait_ms=WAIT_MS, connection=2)
    world.share.on_disconnected(1)
    await turns()
    assert not waiting.done()
    world.clock.advance(WAIT_MS)
    assert acquired(waiting.result()) == [(0, 9, 2)]


async def test_a_fetch_does_not_see_the_release_that_it_carries(world):
    world.produce(10)
    assert await world.acquired(0, 0) == [(0, 9, 1)]
    world.produce(5)
    assert await world.acquired(1, acks={0: [(3, 3, [RELEASE])]}) == [(10, 14, 1)]
    assert await world.acquired(2) == [(3, 3, 2)]


async def test_new_records_wake_a_fetch(world):
    waiting = world.start_fetch(0, 0, max_wait_ms=WAIT_MS)
    world.produce(3)
    await turns()
    assert acquired(waiting.result()) == [(0, 2, 1)]


async def test_after_max_wait_fewer_than_min_bytes_are_delivered(world):
    world.produce(3)
    waiting = world.start_fetch(0, 0, max_wait_ms=WAIT_MS, min_bytes=10_000)
    world.clock.advance(WAIT_MS)
    assert acquired(waiting.result()) == [(0, 2, 1)]


async def test_partitions_take_turns(world):
    world.produce(10, index=0)
    world.produce(10, index=1)
    first = await world.fetch(0, 0, 1, max_records=10)
    assert {index: len(each.acquired_records) for index, each in partitions_of(first).items()} == {0: 1, 1: 0}
    world.produce(10, index=0)
    assert partitions_of(await world.fetch(1, max_records=10)).keys() == {1}, "only what has records"
    assert partitions_of(await world.fetch(2, max_records=10)).keys() == {0}


async def test_a_forgotten_partition_keeps_its_locks(world):
    world.produce(10)
    await world.fetch(0, 0)
    await world.fetch(1, forgotten=[0])
    await world.acknowledge(-1)
    await turns()
    assert await world.acquired(0, 0, member=OTHER, connection=2) == []
    world.clock.advance(30_000)
    await turns()
    assert await world.acquired(1, member=OTHER, connection=2) == [(0, 9, 2)]


async def test_what_was_not_written_is_available_after_a_crash(world):
    world.produce(6)
    await world.fetch(0, 0, max_records=6)
    await world.ack(1, (0, 1, [RELEASE]))
    assert await world.acquired(2) == [(0, 1, 2)]
    world.restart()
    assert await world.acquired(0, 0) == [(0, 1, 2), (2, 5, 1)]


async def test_offsets_that_are_deleted_under_a_reader(world):
    world.produce(6)
    await world.fetch(0, 0)
    message = "Error in write state RPC. Write operation on uninitialized share partition not allowed."
    world.persister.error = Outcome(ErrorCode.invalid_request, message)
    response = await world.acknowledge(1, {0: [(0, 5, [ACCEPT])]})
    data = response.responses[0].partitions[0]
    assert (data.error_code, data.error_message) == (ErrorCode.unknown_server_error, message)
    world.persister.error = None
    assert await world.ack(2, (0, 5, [RELEASE])) == 0
    assert await world.acquired(3) == [(0, 5, 2)], "the acknowledgement was rolled back"


@pytest.mark.parametrize(
    ("stored", "told", "stays"),
    [
        (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, True),
        (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower, False),
        (ErrorCode.fenced_state_epoch, ErrorCode.not_leader_or_follower, False),
        (ErrorCode.group_id_not_found, ErrorCode.group_id_not_found, False),
        (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_or_partition, False),
        (ErrorCode.request_timed_out, ErrorCode.unknown_server_error, True),
    ],
)
async def test_errors_of_the_share_coordinator(world, stored, told, stays):
    world.produce(6)
    await world.fetch(0, 0)
    world.persister.error = Outcome(stored, "why")
    assert await world.ack(1, (0, 5, [ACCEPT])) == told
    world.persister.error = None
    assert await world.ack(2, (0, 5, [ACCEPT])) == (0 if stays else ErrorCode.unknown_topic_or_partition)


async def test_a_partition_that_the_group_has_not_initialized(world):
    world.persister.states.clear()
    world.produce(5)
    waiting = world.start_fetch(0, 0, max_wait_ms=WAIT_MS)
    await turns()
    assert not waiting.done(), "as in Kafka, the error is sent at the end of the wait"
    world.clock.advance(WAIT_MS)
    assert error(partitions_of(waiting.result())[0]) == ErrorCode.unknown_server_error
    world.initialize()
    assert await world.acquired(1) == [(0, 4, 1)]


async def test_start_offsets(world):
    world.produce(5)
    for group, reset in [
        ("latest", "latest"),
        ("hour", "by_duration:PT1H"),
        ("now", "by_duration:PT0.001S"),
    ]:
        world.configure(group, share_auto_offset_reset=reset)
        world.initialize(group)
    world.clock.advance(1000)
    assert await world.acquired(0, 0, group="latest") == []
    assert await world.acquired(0, 0, group="hour") == [(0, 4, 1)]
    response = await world.fetch(0, 0, group="now")
    assert error(partitions_of(response)[0]) == ErrorCode.offset_not_available
    response = await world.fetch(1, group="now")
    assert error(partitions_of(response)[0]) == ErrorCode.offset_not_available
    world.produce(2)
    assert await world.acquired(1, group="latest") == [(5, 6, 1)]
    assert await world.acquired(2, group="now") == [(5, 6, 1)]


async def test_deleted_records_are_passed_silently(world):
    world.produce(5, 5)
    assert await world.acquired(0, 0, max_records=5) == [(0, 4, 1)]
    await world.ack(1, (0, 4, [RELEASE]))
    world.world.partition(TOPIC).delete_records(5)
    response = await world.fetch(2)
    assert response.responses == []
    assert await world.acquired(3) == [(5, 9, 1)]


async def test_sessions_are_limited(tmp_path):
    world = ShareWorld(tmp_path, group_share_max_share_sessions="5", group_share_max_size="5")
    world.create(TOPIC)
    world.initialize()
    for number in range(5):
        await world.fetch(0, 0, member=f"m{number}")
    waiting = world.start_fetch(0, 0, member="m5", max_wait_ms=300)
    world.clock.advance(299)
    assert not waiting.done()
    world.clock.advance(1)
    assert error(waiting.result()) == ErrorCode.share_session_limit_reached


async def test_without_the_feature_there_are_no_share_groups(world):
    world.produce(5)
    await world.fetch(0, 0)
    world.cluster.features["share.version"] = 0
    world.share.on_features_changed()
    assert error(await world.fetch(1)) == ErrorCode.unsupported_version
    assert error(await world.acknowledge(1)) == ErrorCode.unsupported_version
    world.cluster.features["share.version"] = 2
    world.share.on_features_changed()
    assert error(await world.fetch(1)) == ErrorCode.share_session_not_found
    assert await world.acquired(0, 0) == [(0, 4, 1)], "the share partition was dropped"


async def test_the_last_session_of_a_group_takes_its_share_partitions_with_it(world):
    world.produce(10)
    assert await world.acquired(0, 0, max_records=10) == [(0, 9, 1)]
    await world.ack(1, (0, 3, [ACCEPT]))
    world.share.on_disconnected(1)
    await turns()
    world.initialize(start_offset=7)
    assert await world.acquired(0, 0) == [(7, 9, 1)]


async def test_another_leader(world):
    world.produce(10)
    await world.fetch(0, 0)
    world.cluster.move(TOPIC, 0, 2)
    response = await world.fetch(1)
    data = partitions_of(response)[0]
    assert error(data) == ErrorCode.not_leader_or_follower
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
    assert [each.node_id for each in response.node_endpoints] == [2]
    response = await world.acknowledge(2, {0: [(0, 9, [ACCEPT])]})
    assert error(response.responses[0].partitions[0]) == ErrorCode.unknown_topic_or_partition


async def test_a_write_in_flight_blocks_the_records(world):
    world.produce(10)
    await world.fetch(0, 0)
    world.persister.held = asyncio.Event()
    first = asyncio.ensure_future(world.ack(1, (0, 4, [ACCEPT])))
    await turns()
    assert await world.ack(2, (0, 4, [ACCEPT])) == ErrorCode.invalid_record_state
    assert not first.done()
    world.persister.held.set()
    assert await first == 0


async def test_a_renewal_extends_the_lock_and_fetches_nothing(world):
    world.produce(10, 5)
    assert await world.acquired(0, 0, max_records=10) == [(0, 9, 1)]
    world.clock.advance(20_000)
    zero = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    renewed = await world.fetch(1, acks={0: [(0, 4, [RENEW]), (5, 9, [ACCEPT])]}, is_renew_ack=True, **zero)
    assert partitions_of(renewed)[0].acknowledge_error_code == 0
    assert acquired(renewed) == []
    world.clock.advance(29_000)
    await turns()
    assert await world.acquired(2) == [(10, 14, 1)]
    world.clock.advance(1_000)
    await turns()
    assert await world.acquired(3) == [(0, 4, 2)]


async def test_access_control(world):
    denied = {("READ", "TOPIC", TOPIC)}
    world.node.authorizer = SimpleNamespace(authorize=lambda principal, host, *what: what not in denied)
    world.produce(5)
    data = partitions_of(await world.fetch(0, 0))[0]
    assert error(data) == ErrorCode.topic_authorization_failed
    data = partitions_of(await world.fetch(1, acks={0: [(0, 0, [ACCEPT])]}))[0]
    assert data.acknowledge_error_code == ErrorCode.topic_authorization_failed
    assert await world.ack(2, (0, 0, [ACCEPT])) == ErrorCode.topic_authorization_failed
    assert error(await world.fetch(3, 0, topic_id=uuid.UUID(int=1))) == ErrorCode.unknown_server_error
    denied = {("READ", "GROUP", GROUP)}
    assert error(await world.fetch(0, 0)) == ErrorCode.group_authorization_failed
    assert error(await world.acknowledge(1)) == ErrorCode.group_authorization_failed


async def test_nothing_is_left_of_a_fetch_that_has_waited(world):
    waiting = world.start_fetch(0, 0, 1, max_wait_ms=WAIT_MS)
    assert len(world.clock.timers) == 1
    world.clock.advance(WAIT_MS)
    assert waiting.done()
    assert world.clock.timers == []
    replica = world.world.partition(TOPIC)
    assert not replica.delayed.watchers


async def test_locks_end_in_the_clock_domain_of_groups(world, monkeypatch):
    domains, call_later_ms = [], world.clock.call_later_ms

    def noted(delay_ms, callback, domain):
        domains.append(domain)
        return call_later_ms(delay_ms, callback, domain)

    monkeypatch.setattr(world.clock, "call_later_ms", noted)
    world.produce(1)
    assert await world.acquired(0, 0) == [(0, 0, 1)]
    assert domains == [Domain.GROUPS]


def test_the_settings_of_groups_take_bounded_memory(world, monkeypatch):
    monkeypatch.setattr(manager, "SETTINGS_MAX", 3)
    for number in range(10):
        world.share.settings(f"group-{number}")
    assert len(world.share._settings) <= 3
    assert world.share.settings("group-9") is world.share.settings("group-9")


def test_settings_follow_the_group(world):
    assert world.share.settings(GROUP).auto_offset_reset == "earliest"
    world.cluster.image.configs.clear()
    world.share.on_config_changed(GROUP_RESOURCE, GROUP)
    assert world.share.settings(GROUP).auto_offset_reset == "latest"


async def test_share_version_1_has_no_dead_letters(tmp_path):
    world = ShareWorld(tmp_path, share_version=1)
    world.create()
    world.configure(share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name="dlq.g")
    world.initialize()
    world.produce(2)
    await world.fetch(0, 0)
    await world.ack(1, (0, 1, [REJECT]))
    assert world.persister.written[-1].batches == [StateBatch(0, 1, 4, 1)]


async def test_a_throttled_fetch_has_acquired_its_records(world):
    world.produce(5)
    world.node.quotas = SimpleNamespace(
        are_set=True, value_max=lambda *_: 1 << 20, charge_if_it_may=lambda *_: 700
    )
    response = await world.fetch(0, 0)
    assert response.throttle_time_ms == 700
    assert response.responses == []
    response = await world.fetch(1, acks={0: [(0, 4, [RELEASE])]})
    assert partitions_of(response)[0].acknowledge_error_code == 0
    world.node.quotas.charge_if_it_may = lambda *_: 0
    assert await world.acquired(2) == [(0, 4, 2)]


async def test_while_a_share_partition_is_loaded_fetches_wait(world):
    world.produce(5, index=0)
    world.persister.held = asyncio.Event()
    first = world.start_fetch(0, 0, max_wait_ms=WAIT_MS)
    second = world.start_fetch(0, 0, member=OTHER, max_wait_ms=WAIT_MS, connection=2)
    await turns()
    assert not first.done()
    world.persister.held.set()
    await turns()
    assert acquired(first.result()) == [(0, 4, 1)]
    assert not second.done()


async def test_a_share_partition_that_is_fenced_while_it_is_loaded_is_not_used(world):
    world.produce(5)
    world.persister.held = asyncio.Event()
    waiting = world.start_fetch(0, 0, max_wait_ms=WAIT_MS)
    world.cluster.move(TOPIC, 0, 2)
    world.cluster.move(TOPIC, 0, 1)
    world.persister.held.set()
    world.persister.held = None
    await turns()
    assert not waiting.done()
    world.clock.advance(WAIT_MS)
    assert acquired(waiting.result()) == []
    assert await world.acquired(1) == [(0, 4, 1)]


async def test_acknowledgements_of_several_partitions_are_independent(world):
    world.produce(5, index=0)
    world.produce(5, index=1)
    await world.fetch(0, 0, 1)
    response = await world.acknowledge(1, {0: [(0, 9, [ACCEPT])], 1: [(0, 4, [ACCEPT])]})
    errors = {each.partition_index: each.error_code for each in response.responses[0].partitions}
    assert errors == {0: ErrorCode.invalid_request, 1: 0}


async def test_a_log_that_fails_takes_its_share_partitions_with_it(world):
    world.produce(5)
    await world.fetch(0, 0)
    world.world.partition(TOPIC).listener.removed(world.world.partition(TOPIC))
    response = await world.acknowledge(1, {0: [(0, 4, [ACCEPT])]})
    assert error(response.responses[0].partitions[0]) == ErrorCode.unknown_topic_or_partition


async def test_a_deleted_topic(world):
    world.produce(5)
    await world.fetch(0, 0)
    topic_id = world.topic_id()
    world.cluster.delete(TOPIC)
    response = await world.fetch(1, topic_id=topic_id)
    assert error(partitions_of(response)[0]) == ErrorCode.unknown_topic_or_partition
    response = await world.acknowledge(2, {0: [(0, 4, [ACCEPT])]}, topic_id=topic_id)
    assert error(response.responses[0].partitions[0]) == ErrorCode.unknown_topic_id


async def test_reads_end_where_no_more_records_are_acquired(world, monkeypatch):
    """A fetch of 10 records does not read the 50 MB that it asks for."""
    world.produce(*[10] * 100)
    replica = world.world.partition(TOPIC)
    batch = replica.log.size // 100
    sizes = []
    read = type(replica).read

    def counted(self, offset, max_bytes, **more):
        result = read(self, offset, max_bytes, **more)
        sizes.append(len(result.records))
        return result

    monkeypatch.setattr(type(replica), "read", counted)
    assert await world.acquired(0, 0, max_records=10) == [(0, 9, 1)]
    assert await world.acquired(1, max_records=15) == [(10, 29, 1)]
    assert sizes == [batch, 2 * batch]
    await world.ack(2, (3, 3, [RELEASE]))
    again = await world.fetch(3, max_records=15)
    assert acquired(again) == [(3, 3, 2), (30, 49, 1)]
    assert records(again)[0] == (0, 9)
    assert records(again)[-1] == (40, 49)
