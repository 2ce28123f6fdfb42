"""The persister: this node's share coordinator, those of other nodes, and its attempts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.metadata.results import ApiError
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.share.state import Initialization, Outcome, SharePartitionKey, StateBatch, StoredState
from broker.share.state_apis import READ, SUMMARY, WRITE, ShareStateApi
from protocol.errors import ErrorCode
from tests.support.coroutines import values_of
from tests.support.peers import FakePeers, Sent
from tests.support.world import OTHER_NODE_ID, World

UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
STATE = StoredState(2, 0, 0, 1, (StateBatch(1, 1, 2, 1),))


@pytest.fixture
def peers() -> FakePeers:
    return FakePeers()


@pytest.fixture
def world(tmp_path: Path, peers: FakePeers) -> Iterator[World]:
    """A node that leads the topic "t" and the one partition of ``__share_group_state``."""
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    world = World(tmp_path, settings=settings, peers=peers)
    world.create("t", 3)
    world.create(SHARE_GROUP_STATE, 1)
    yield world
    world.abandon()


@pytest.fixture
def elsewhere(world: World) -> World:
    """The world, with the share coordinator on the other node."""
    world.cluster.move(SHARE_GROUP_STATE, 0, OTHER_NODE_ID)
    return world


def topic_id(world: World) -> uuid.UUID:
    return world.cluster.topics["t"].topic_id


def key(world: World, partition: int = 0, group_id: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group_id, topic_id(world), partition)


def write(world: World, partition: int = 0, group_id: str = "g") -> list[Outcome]:
    return values_of(world.node.persister.write(key(world, partition, group_id), STATE), world.node.life)


def initialize(world: World, *partitions: int) -> list[list[Outcome]]:
    wanted = [Initialization(topic_id(world), index, 2, -1) for index in partitions]
    return values_of(world.node.persister.initialize("g", wanted), world.node.life)


def answer(sent: Sent, api: ShareStateApi, *errors: ErrorCode, **fields: Any) -> None:
    """Respond with one of ``errors`` to each partition of a request."""
    left = list(errors)
    results = {
        topic.topic_id: [
            api.result(each.partition, Outcome(left.pop(0) if left else ErrorCode.none), **fields)
            for each in topic.partitions
        ]
        for topic in sent.request.topics
    }
    sent.answer(api.response(results))


def partitions_of(sent: Sent) -> list[int]:
    return [each.partition for topic in sent.request.topics for each in topic.partitions]


def test_the_coordinator_of_this_node_is_asked_without_a_request(world: World, peers: FakePeers) -> None:
    persister = world.node.persister
    assert initialize(world, 0, 1) == [[Outcome(ErrorCode.none)] * 2]
    assert write(world) == [Outcome(ErrorCode.none)]
    [(outcome, read)] = values_of(persister.read(key(world), 5))
    assert outcome.error == ErrorCode.none
    assert read == StoredState(2, 5, 0, -1, (StateBatch(1, 1, 2, 1),))
    [summaries] = values_of(persister.summaries("g", [(topic_id(world), 0, 0), (topic_id(world), 2, 0)]))
    assert summaries == [
        (Outcome(ErrorCode.none), StoredState(2, 5, 0, 1)),
        (Outcome(ErrorCode.none), StoredState()),
    ]
    assert values_of(persister.delete("g", [(topic_id(world), 0)])) == [[Outcome(ErrorCode.none)]]
    assert write(world) == [Outcome(ErrorCode.invalid_request, f"Error in write state RPC. {UNINITIALIZED}")]
    assert not peers.sent


def test_questions_to_another_node_wait_for_the_request_in_flight(elsewhere: World, peers: FakePeers) -> None:
    world = elsewhere
    first = write(world)
    later = [write(world, 1), write(world, 2), write(world, 0, "h")]
    reading = values_of(world.node.persister.read(key(world), 3))
    in_flight, read = peers.take()
    assert (in_flight.node_id, in_flight.client_id) == (OTHER_NODE_ID, "Persister-client-1")
    assert (in_flight.api_key, in_flight.api_version) == (WRITE.key, 1)
    assert read.api_key == READ.key, "another API does not wait"
    answer(in_flight, WRITE)
    assert first == [Outcome(ErrorCode.none)]
    of_g, of_h = peers.take()
    assert [(each.request.group_id, partitions_of(each)) for each in (of_g, of_h)] == [
        ("g", [1, 2]),
        ("h", [0]),
    ]
    answer(of_g, WRITE, ErrorCode.fenced_leader_epoch)
    answer(of_h, WRITE)
    assert [each.error for [each] in later] == [ErrorCode.fenced_leader_epoch, 0, 0]
    answer(read, READ, state_epoch=2, start_offset=7)
    assert reading == [(Outcome(ErrorCode.none), StoredState(2, 3, 7))]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unknown_topic_or_partition,
        None,
    ],
)
def test_five_attempts_with_growing_pauses(
    elsewhere: World, peers: FakePeers, error: ErrorCode | None
) -> None:
    """``error`` None: the connection breaks each time."""
    world = elsewhere
    outcomes = write(world)
    for attempt in range(1, 6):
        [sent] = peers.take()
        assert not outcomes
        if error is None:
            sent.answer(None)
        else:
            answer(sent, WRITE, error)
        if attempt < 5:
            world.clock.advance(int(1000 * 2**attempt * 0.8) - 1)
            assert not peers.sent
            world.clock.advance(int(1000 * 2**attempt * 0.4) + 2)
    message = "Error in write state RPC. Exhausted max retries to complete write state RPC without success."
    assert outcomes == [Outcome(error or ErrorCode.network_exception, message)]


def test_an_attempt_goes_to_the_present_coordinator(elsewhere: World, peers: FakePeers) -> None:
    world = elsewhere
    outcomes = initialize(world, 0)
    world.cluster.move(SHARE_GROUP_STATE, 0, 1)
    peers.take()[0].answer(None)
    world.clock.advance(3000)
    assert outcomes == [[Outcome(ErrorCode.none)]]


def test_a_response_without_the_share_partition(elsewhere: World, peers: FakePeers) -> None:
    outcomes = values_of(elsewhere.node.persister.summaries("g", [(topic_id(elsewhere), 0, 0)]))
    peers.take()[0].answer(SUMMARY.response({}))
    [[(outcome, state)]] = outcomes
    assert (outcome.error, state) == (ErrorCode.unknown_server_error, StoredState())
    assert outcome.message is not None
    assert outcome.message.startswith("Error in read state summary RPC. Failed to read state summary")


def test_no_coordinator_after_five_attempts(elsewhere: World, peers: FakePeers) -> None:
    peers.dead.add(OTHER_NODE_ID)
    outcomes = write(elsewhere)
    elsewhere.clock.advance(60_000)
    message = "Error in find coordinator. Exhausted max retries to find coordinator without success."
    assert outcomes == [Outcome(ErrorCode.coordinator_not_available, message)]
    assert not peers.sent


def test_the_first_use_creates_the_topic(world: World) -> None:
    created: list[str] = []

    async def ensure(name: str) -> None:
        created.append(name)
        if len(created) == 1:
            raise ApiError(ErrorCode.invalid_replication_factor, "too few brokers")
        world.create(name, 1)

    world.cluster.delete(SHARE_GROUP_STATE)
    world.cluster.auto_topic_creation = SimpleNamespace(ensure_internal_topic=ensure)  # type: ignore[attr-defined]
    outcomes = initialize(world, 0)
    world.clock.advance(3000)
    assert created == [SHARE_GROUP_STATE] * 2
    assert outcomes == [[Outcome(ErrorCode.none)]]


def test_a_killed_node_neither_responds_nor_asks_again(elsewhere: World, peers: FakePeers) -> None:
    world = elsewhere
    pausing = write(world, 0)
    answer(peers.take()[0], WRITE, ErrorCode.not_coordinator)
    asking = write(world, 1)
    [sent] = peers.take()
    queued = write(world, 2)
    world.node.life.end()
    answer(sent, WRITE)
    world.clock.advance(60_000)
    assert pausing == asking == queued == []
    assert not peers.sent
