"""Markers for partitions that another node leads: the requests, their retries, and the effects of the responses."""

from __future__ import annotations

import pytest

from broker.transactions.markers import RETRY_BACKOFF_MS
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.support.peers import Sent
from tests.support.points import Gate
from tests.support.world import CONSUMER_OFFSETS, NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none
CONCURRENT = ErrorCode.concurrent_transactions
THIRD_NODE_ID = 3
PREPARE_COMMIT, COMPLETE_COMMIT = 2, 4

Key = tuple[str, int]


@pytest.fixture
def world(tmp_path, peers):
    """A world in which node 1 coordinates every id and leads t-0, node 2 leads t-1 and t-2, and node 3 leads t-3."""
    world = World(tmp_path, peers=peers)
    world.create("t", 4)
    for index, leader in ((1, OTHER_NODE_ID), (2, OTHER_NODE_ID), (3, THIRD_NODE_ID)):
        world.cluster.move("t", index, leader)
    yield world
    world.abandon()


def commit(world: World, *indexes: int, transactional_id: str = "tx", version: int = 5) -> tuple[int, int]:
    """Commit a transaction over these partitions. Returns its (producer id, epoch)."""
    producer_id, epoch = world.init(transactional_id)
    world.add(transactional_id, producer_id, epoch, *(("t", index) for index in indexes))
    assert world.end(transactional_id, producer_id, epoch, committed=True, version=version)[0] == OK
    return producer_id, epoch


def state_of(world: World, transactional_id: str = "tx") -> int:
    brief = world.briefs(transactional_id)[-1]
    assert brief is not None
    return brief[0]


def asked(sent: Sent) -> dict[int, set[Key]]:
    """By producer id: the partitions in which this WriteTxnMarkers request asks for a marker."""
    return {
        marker.producer_id: {
            (topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        }
        for marker in sent.request.markers
    }


def answer(sent: Sent, *, error: ErrorCode = OK, errors: dict[Key, ErrorCode] | None = None) -> None:
    sent.answer(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=(errors or {}).get((name, index), error)
                                )
                            ],
                        )
                        for name, index in sorted(keys)
                    ],
                )
                for producer_id, keys in asked(sent).items()
            ]
        )
    )


# -- requests -----------------------------------------------------------------------------------------------


def test_end_is_answered_while_the_markers_are_on_their_way(world, peers):
    producer_id, epoch = commit(world, 0, 1, 2, 3)
    to_second, to_third = peers.take()
    assert (to_second.node_id, to_third.node_id) == (OTHER_NODE_ID, THIRD_NODE_ID)
    assert asked(to_second) == {producer_id: {("t", 1), ("t", 2)}}
    assert asked(to_third) == {producer_id: {("t", 3)}}
    assert world.markers("t", 0) == [(epoch + 1, True)], (
        "markers for own partitions are written in the same turn"
    )
    assert world.ask_init().error_code == CONCURRENT
    assert world.add("tx", producer_id, epoch + 1, ("t", 0)) == {("t", 0): CONCURRENT}
    answer(to_second)
    assert state_of(world) == PREPARE_COMMIT
    answer(to_third)
    assert state_of(world) == COMPLETE_COMMIT
    assert world.init() == (producer_id, epoch + 2)


@pytest.mark.parametrize(("version", "epoch", "transaction_version"), [(4, 0, 0), (5, 1, 2)])
def test_a_marker_field_by_field(world, peers, version, epoch, transaction_version):
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    producer_id, _ = commit(world, 1, version=version)
    [sent] = peers.take()
    assert (sent.client_id, sent.api_key, sent.api_version) == ("broker-1-txn-marker-sender", 27, 2)
    [marker] = sent.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (
        producer_id,
        epoch,
        True,
    )
    assert (marker.coordinator_epoch, marker.transaction_version) == (2, transaction_version)


def test_all_pending_markers_for_a_node_are_sent_in_one_request(world, peers):
    ids = [commit(world, 1, transactional_id=f"id-{number}")[0] for number in range(20)]
    [first] = peers.take()
    assert asked(first) == {ids[0]: {("t", 1)}}, (
        "the other markers wait for the response to the first request"
    )
    answer(first)
    [rest] = peers.take()
    assert asked(rest) == {producer_id: {("t", 1)} for producer_id in ids[1:]}
    answer(rest)
    assert peers.take() == []
    assert {state_of(world, f"id-{number}") for number in range(20)} == {COMPLETE_COMMIT}


def test_a_node_that_was_away_is_not_asked_for_everything_at_once(world, peers, monkeypatch):
    from broker.transactions import marker_channel

    monkeypatch.setattr(marker_channel, "PARTITIONS_PER_REQUEST_MAX", 3)
    world.create("wide", 8)
    for index in range(8):
        world.cluster.move("wide", index, OTHER_NODE_ID)
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, *(("wide", index) for index in range(8)))
    world.end("tx", producer_id, epoch, committed=True)
    sizes = []
    while sent := peers.take():
        sizes.append(len(asked(sent[0])[producer_id]))
        answer(sent[0])
    assert sizes == [3, 3, 2]
    assert state_of(world) == COMPLETE_COMMIT


def test_offsets_of_a_group_elsewhere_get_their_marker_there(world, peers):
    index = world.node.groups.partition_for("g")
    world.cluster.move(CONSUMER_OFFSETS, index, OTHER_NODE_ID)
    producer_id, epoch = world.init()
    world.add_offsets("tx", producer_id, epoch, "g")
    world.end("tx", producer_id, epoch, committed=True)
    [sent] = peers.take()
    assert asked(sent) == {producer_id: {(CONSUMER_OFFSETS, index)}}


# -- responses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [3, 6, 7, 19, 20, 56, 14, None])
def test_what_could_not_be_written_is_sent_again(world, peers, error):
    producer_id, _ = commit(world, 1, 2)
    [sent] = peers.take()
    if error is None:
        sent.answer(None)
    else:
        answer(sent, errors={("t", 2): ErrorCode(error)})
    world.clock.advance(RETRY_BACKOFF_MS - 1)
    assert peers.take() == []
    world.clock.advance(1)
    [again] = peers.take()
    assert asked(again) == {producer_id: {("t", 1), ("t", 2)} if error is None else {("t", 2)}}
    answer(again)
    assert state_of(world) == COMPLETE_COMMIT


def test_a_partition_that_has_moved_is_written_where_it_is_led_now(world, peers):
    _, epoch = commit(world, 1, 2)
    [sent] = peers.take()
    world.cluster.move("t", 1, NODE_ID)
    world.cluster.move("t", 2, THIRD_NODE_ID)
    answer(sent, error=ErrorCode.not_leader_or_follower)
    world.clock.advance(RETRY_BACKOFF_MS)
    assert world.markers("t", 1) == [(epoch + 1, True)]
    [sent] = peers.take()
    assert sent.node_id == THIRD_NODE_ID
    answer(sent)
    assert state_of(world) == COMPLETE_COMMIT


def test_a_node_that_is_away_is_waited_for(world, peers):
    peers.dead.add(OTHER_NODE_ID)
    commit(world, 0, 1)
    world.clock.advance(60_000)
    assert peers.take() == []
    assert state_of(world) == PREPARE_COMMIT
    peers.dead.clear()
    world.clock.advance(RETRY_BACKOFF_MS)
    [sent] = peers.take()
    answer(sent)
    assert state_of(world) == COMPLETE_COMMIT


@pytest.mark.parametrize("error", [ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version])
def test_a_partition_that_can_have_no_marker_needs_none(world, peers, error):
    commit(world, 1)
    answer(peers.take()[0], error=error)
    assert state_of(world) == COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error", [ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced]
)
def test_a_newer_owner_there_ends_it_here(world, peers, error):
    commit(world, 1, 2, 3)
    to_second, to_third = peers.take()
    answer(to_second, errors={("t", 1): error, ("t", 2): ErrorCode.not_enough_replicas})
    answer(to_third)
    world.clock.advance(60_000)
    assert peers.take() == []
    assert state_of(world) == PREPARE_COMMIT
    assert world.ask_init().error_code == CONCURRENT, "pending until a coordinator loads the log again"


def test_a_topic_that_is_deleted_meanwhile_counts_as_marked(world, peers):
    commit(world, 1)
    world.cluster.delete("t")
    answer(peers.take()[0], error=ErrorCode.unknown_topic_or_partition)
    world.clock.advance(RETRY_BACKOFF_MS)
    assert state_of(world) == COMPLETE_COMMIT


# -- the coordinator moves ----------------------------------------------------------------------------------


def test_a_former_coordinator_ignores_late_responses(world, peers):
    commit(world, 1)
    [sent] = peers.take()
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, OTHER_NODE_ID)
    answer(sent)
    world.clock.advance(60_000)
    assert state_of(world) == PREPARE_COMMIT
    assert world.ask_init().error_code == ErrorCode.not_coordinator


def test_the_next_owner_sends_all_markers_again_in_its_own_epoch(world, peers):
    """Scenario D3 (tests/scenarios/README.md): the coordinator moves between PrepareCommit and the markers. The new
    coordinator sends all markers again, in its own epoch."""
    producer_id, epoch = commit(world, 0, 1, 3)
    to_second, late = peers.take()
    answer(to_second)
    shard = world.node.transactions.partition_for("tx")
    world.cluster.move(TRANSACTION_STATE, shard, OTHER_NODE_ID)
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    [to_second] = peers.take()
    answer(late)
    [to_third] = peers.take()
    assert asked(to_second) == {producer_id: {("t", 1)}}
    assert {sent.request.markers[0].coordinator_epoch for sent in (to_second, to_third)} == {2}
    assert world.markers("t", 0) == [(epoch + 1, True)] * 2, "a second marker does no harm"
    answer(to_second)
    assert state_of(world) == PREPARE_COMMIT, "a response to the former coordinator does not count"
    answer(to_third)
    assert state_of(world) == COMPLETE_COMMIT
    assert world.init() == (producer_id, epoch + 2)


def test_a_coordinator_that_takes_over_much_sends_it_together_and_has_turns_between(world, peers):
    homes = {world.node.transactions.partition_for(f"id-{number}") for number in range(200)}
    shard = homes.pop()
    names = [
        name
        for name in (f"id-{number}" for number in range(400))
        if world.node.transactions.partition_for(name) == shard
    ]
    for name in names:
        commit(world, 0, 1, transactional_id=name)
    assert len(names) > 70
    [late] = peers.take()
    world.cluster.move(TRANSACTION_STATE, shard, OTHER_NODE_ID)
    world.cluster.move(TRANSACTION_STATE, shard, NODE_ID)
    first_turn = len(world.markers("t", 0)) - len(names)
    assert 0 < first_turn < 70, "the bound counts markers, and each transaction has two"
    answer(late)
    world.clock.advance(0)
    while sent := peers.take():
        answer(sent[0])
    assert len(world.markers("t", 0)) == 2 * len(names)
    assert {state_of(world, name) for name in names} == {COMPLETE_COMMIT}


# -- replicas -----------------------------------------------------------------------------------------------


def lose_replicas(world: World, topic: str, index: int) -> None:
    """Shrink the ISR of a partition with three replicas to one replica, below its min.insync.replicas of 2."""
    world.cluster.topics[topic].configs["min.insync.replicas"] = "2"
    partition = world.partition(topic, index)
    world.node.replicas.on_config_changed(2, topic)
    partition.replicas, partition.isr = (1, 2, 3), (1,)


def test_a_coordinator_without_its_replicas_is_not_available(world):
    producer_id, epoch = world.init()
    world.add("tx", producer_id, epoch, ("t", 0))
    shard = world.node.transactions.partition_for("tx")
    lose_replicas(world, TRANSACTION_STATE, shard)
    unavailable = ErrorCode.coordinator_not_available
    assert world.end("tx", producer_id, epoch, committed=True)[0] == unavailable
    assert world.briefs()[-1] == (1, 0)
    world.partition(TRANSACTION_STATE, shard).isr = (1, 2)
    assert world.end("tx", producer_id, epoch, committed=True)[0] == OK


# -- a rule watches the markers -----------------------------------------------------------------------------


def test_a_watched_marker_comes_to_the_point_when_the_one_before_it_is_written(world, peers):
    world.injection.points = gate = Gate("txn.marker", lambda at: False)
    commit(world, 0, 1, 2, 3)
    world.clock.advance(0)
    seen = []
    for _ in range(3):
        [sent] = peers.take()
        seen.append([(at.topic, at.partition) for at in gate.passed])
        answer(sent)
    assert seen == [[("t", index) for index in range(count)] for count in (2, 3, 4)]
    assert state_of(world) == COMPLETE_COMMIT


def test_of_two_transactions_one_watched_marker_is_on_its_way(world, peers):
    world.injection.points = gate = Gate("txn.marker", lambda at: False)
    commit(world, 1)
    commit(world, 3, transactional_id="other")
    world.clock.advance(0)
    assert len(gate.passed) == 1
    answer(peers.take()[0])
    assert len(gate.passed) == 2
    answer(peers.take()[0])
    assert (state_of(world), state_of(world, "other")) == (COMPLETE_COMMIT, COMPLETE_COMMIT)


def test_a_watched_marker_that_fails_makes_way_and_counts_again(world, peers):
    world.injection.points = gate = Gate("txn.marker", lambda at: False)
    commit(world, 1, 3)
    world.clock.advance(0)
    answer(peers.take()[0], error=ErrorCode.not_leader_or_follower)
    answer(peers.take()[0])
    assert [at.partition for at in gate.passed] == [1, 3]
    world.clock.advance(RETRY_BACKOFF_MS)
    answer(peers.take()[0])
    assert [at.partition for at in gate.passed] == [1, 3, 1]
    assert state_of(world) == COMPLETE_COMMIT


def test_watched_markers_of_a_coordinator_that_has_moved_hold_no_other_up(world, peers):
    world.injection.points = Gate("txn.marker", lambda at: False)
    commit(world, 1)
    world.clock.advance(0)
    [first] = peers.take()
    other = next(
        f"id-{number}"
        for number in range(100)
        if world.node.transactions.partition_for(f"id-{number}")
        != world.node.transactions.partition_for("tx")
    )
    commit(world, 2, transactional_id=other)
    world.clock.advance(0)
    world.cluster.move(TRANSACTION_STATE, world.node.transactions.partition_for("tx"), THIRD_NODE_ID)
    answer(first)
    [second] = peers.take()
    answer(second)
    assert state_of(world, other) == COMPLETE_COMMIT
