"""The ISR: when replicas leave it (replica.lag.time.max.ms), when they rejoin, and which replicas may become leader."""

from __future__ import annotations

from copy import copy

import pytest

from broker.replicas.replication.leading import FollowerFetch, LeaderResponse
from protocol.errors import ErrorCode
from tests.support.nodes import Nodes
from tests.support.points import Gate

OK = ErrorCode.none
LAG_MS = 30_000


async def test_a_stuck_follower_leaves_the_isr_after_its_lag_time(nodes: Nodes):
    nodes.create(min_isr=2)
    nodes.append(b"a")
    nodes.injection.links.pause(3)
    outcome = nodes.outcome(nodes.append(b"b"))
    await nodes.pass_time(LAG_MS - 1)
    assert (nodes.isr(), outcome.error) == ((1, 2, 3), None)
    await nodes.pass_time(LAG_MS // 2 + 1)
    assert (nodes.isr(), outcome.error) == ((1, 2), OK)


async def test_with_too_few_left_nothing_more_is_committed(nodes: Nodes):
    nodes.create([1, 2], min_isr=2)
    nodes.injection.links.pause(2)
    outcome = nodes.outcome(nodes.append(b"a"))
    await nodes.pass_time(2 * LAG_MS)
    assert (nodes.isr(), nodes.leader.high_watermark, outcome.error) == ((1,), 0, None)
    nodes.injection.links.resume(2)
    await nodes.settle()
    assert (nodes.isr(), nodes.leader.high_watermark, outcome.error) == ((1, 2), 1, OK)


async def test_followers_that_do_not_fetch_stay_out_and_nothing_more_is_written(nodes: Nodes):
    nodes.create(min_isr=2)
    nodes.append(b"a")
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.pause(3)
    outcome = nodes.outcome(nodes.append(b"b"))
    changes: list[tuple[int, ...]] = []
    nodes.controller.watch_isr = changes.append
    for _ in range(10):
        await nodes.pass_time(LAG_MS)
    assert (nodes.isr(), changes) == ((1,), [(1,)])
    assert (outcome.error, nodes.ends()[1]) == (None, (1, 2)), "the high watermark does not move"
    assert nodes.append(b"c").error is ErrorCode.not_enough_replicas
    assert nodes.ends()[1] == (1, 2)
    nodes.injection.links.resume(3)
    await nodes.settle()
    assert (nodes.isr(), outcome.error, nodes.ends()[1]) == ((1, 3), OK, (2, 2))


async def test_followers_of_a_leader_whose_disk_is_slow_are_in_sync(nodes: Nodes):
    """Followers stay in the ISR while the leader's disk is slow: they have every record on that disk, so they lack nothing
    that they could fetch."""
    nodes.create(min_isr=2)
    nodes.append(b"a")
    gate = Gate("log.write", lambda at: at.node_id == 1)
    nodes.injection.points = gate
    outcome = nodes.outcome(nodes.append(b"b"))
    changes: list[tuple[int, ...]] = []
    nodes.controller.watch_isr = changes.append
    await nodes.pass_time(2 * LAG_MS)
    assert (nodes.isr(), changes) == ((1, 2, 3), [])
    gate.release()
    await nodes.settle()
    assert outcome.error is OK


async def test_an_earlier_life_of_a_follower_may_not_join_the_isr(nodes: Nodes):
    """KIP-903: a Fetch with a former broker epoch does not add a follower to the ISR. What the broker fetched before it was
    killed does not show what is on its disk now."""
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.pause(3)
    nodes.kill(3)
    nodes.start(3)
    leading, epoch = nodes.leading, nodes.controller.brokers[3].epoch
    for broker_epoch, isr in ((None, (1, 2)), (epoch - 1, (1, 2)), (epoch, (1, 2, 3))):
        leading.fetch(FollowerFetch(3, 0, 1, 0, 0, 0, 1024, broker_epoch), lambda: None)
        await nodes.settle()
        assert nodes.isr() == isr


async def test_a_follower_below_the_start_of_the_leaders_epoch_does_not_join(nodes: Nodes):
    """A follower whose log ends below the start of the leader's epoch does not join the ISR: the former leader may have
    committed everything below that start."""
    nodes.create(min_isr=2)
    nodes.append(b"a")
    nodes.kill(3)
    nodes.injection.links.pause(3)
    nodes.start(3)
    nodes.injection.links.slow(1, 2, 100)
    outcome = nodes.outcome(nodes.append(b"b"))
    while outcome.error is None:
        await nodes.pass_time(10)
    assert (outcome.error, nodes.ends()) == (OK, {1: (2, 2), 2: (1, 2), 3: (0, 1)})
    nodes.kill(1)
    nodes.injection.links.slow(2, 3, 100)
    nodes.injection.links.resume(3)
    await nodes.pass_time(50)
    leading = nodes.leading
    assert leading.followers[3].log_end_offset == 1, "node 3 has fetched"
    assert nodes.isr() == (2,)
    for _ in range(10):
        await nodes.pass_time(100)
    assert (nodes.isr(), nodes.ends()) == ((2, 3), {2: (2, 2), 3: (2, 2)})


async def test_a_fetch_of_another_leader_epoch_is_refused_and_tells_nothing(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    await nodes.settle()
    nodes.lead(2)
    await nodes.settle()
    leading = nodes.leading
    before = copy(leading.followers[3])
    nodes.clock.advance(10)
    for epoch, error in (
        (nodes.leader.leader_epoch - 1, ErrorCode.fenced_leader_epoch),
        (nodes.leader.leader_epoch + 1, ErrorCode.unknown_leader_epoch),
    ):
        question = FollowerFetch(3, epoch, 0, -1, 0, 0, 1024, 1)
        assert leading.fetch(question, lambda: None) == LeaderResponse(error)
    assert leading.followers[3] == before


@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)], ids=["new", "duplicate"])
async def test_when_fewer_must_be_in_sync_the_next_append_commits_what_waited(
    nodes: Nodes, producer: tuple[int, int, int]
):
    """A lower min.insync.replicas alone moves no high watermark, however much time passes. The next append does, even
    if it is a duplicate, which is not written."""
    nodes.create([1, 2], min_isr=2)
    nodes.kill(2)
    nodes.append(b"a", producer=producer, acks=1)
    nodes.configure(min_insync_replicas="1")
    for _ in range(3):
        await nodes.pass_time(LAG_MS)
        assert nodes.ends() == {1: (0, 1)}
    appended = nodes.append(b"a", producer=producer, acks=1)
    end_offset = 1 if appended.duplicate else 2
    assert nodes.ends() == {1: (end_offset, end_offset)}


async def test_a_follower_that_was_about_to_join_and_is_gone_does_not_delay_appends_for_long(nodes: Nodes):
    nodes.create([1, 2])
    nodes.kill(2)
    nodes.append(b"a")
    nodes.controller.refuses_isr = True
    nodes.start(2)
    await nodes.settle()
    nodes.injection.links.pause(2)
    outcome = nodes.outcome(nodes.append(b"b"))
    assert outcome.error is None, "a caught-up follower that is about to join delays the high watermark"
    nodes.kill(2)
    await nodes.pass_time(LAG_MS // 2)
    assert outcome.error is OK


async def test_an_idle_follower_stays_in_sync(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    await nodes.pass_time(100 * LAG_MS)
    assert nodes.isr() == (1, 2, 3)


async def test_over_a_slow_link_a_follower_that_was_at_rest_is_not_taken_for_a_stuck_one(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.slow(1, 3, 1000)
    await nodes.pass_time(10 * LAG_MS)
    nodes.append(b"b")
    await nodes.pass_time(500)
    for _ in range(100):
        nodes.append(b"c")
        await nodes.pass_time(900)
    assert nodes.isr() == (1, 2, 3)
    await nodes.pass_time(3000)
    assert nodes.ends()[3] == (102, 102)


async def test_a_follower_joins_again_once_it_has_all_that_is_committed(nodes: Nodes):
    nodes.create()
    nodes.kill(3)
    nodes.append(b"a")
    assert nodes.isr() == (1, 2)
    nodes.start(3)
    await nodes.settle()
    assert nodes.isr() == (1, 2, 3)
    assert nodes.ends()[3] == (1, 1)


async def test_a_changed_isr_is_sorted_by_id(nodes: Nodes):
    nodes.create([2, 3, 1])
    assert nodes.isr() == (2, 3, 1), "a new partition's ISR has the order of its replicas"
    nodes.kill(3)
    nodes.append(b"a")
    assert nodes.isr() == (2, 1), "the controller only removes the node from it"
    nodes.start(3)
    await nodes.settle()
    assert nodes.isr() == (1, 2, 3)


async def test_one_that_could_not_join_is_looked_at_again(nodes: Nodes):
    nodes.create()
    nodes.kill(3)
    nodes.append(b"a")
    nodes.controller.refuses_isr = True
    nodes.start(3)
    await nodes.settle()
    assert nodes.isr() == (1, 2)
    nodes.controller.refuses_isr = False
    await nodes.pass_time(1000)
    assert nodes.isr() == (1, 2, 3)


async def test_a_fenced_node_cannot_join_and_does_not_hold_the_rest_up(nodes: Nodes):
    nodes.create()
    nodes.lose(3)
    assert nodes.outcome(nodes.append(b"a")).error is OK
    await nodes.settle()
    assert nodes.isr() == (1, 2)


async def test_leadership_goes_to_another_in_sync_and_back_without_a_loss(nodes: Nodes):
    nodes.create(min_isr=2)
    for turn in range(9):
        assert nodes.outcome(nodes.append(b"%d" % turn)).error is OK
        nodes.lead(1 + (turn + 1) % 3)
        await nodes.settle()
    assert nodes.values() == [b"%d" % turn for turn in range(9)]
    assert nodes.isr() == (1, 2, 3)
    assert nodes.content(1) == nodes.content(2) == nodes.content(3)
    # The leader's own epoch has no record yet, so no follower has it.
    assert nodes.on(1).log.epochs.entries()[:-1] == nodes.on(3).log.epochs.entries()


async def test_a_partition_moves_to_another_node_and_its_old_folder_goes(nodes: Nodes):
    nodes.create([1, 2])
    nodes.append(b"a")
    nodes.reassign(3, 2)
    await nodes.settle()
    state = nodes.controller.state()
    assert (state.replicas, set(state.isr), state.leader) == ((3, 2), {2, 3}, 3)
    assert nodes.values() == [b"a"]
    assert nodes.running[1].get("t", 0) is None
    assert not (nodes.path / "node-1" / "t-0").exists()
    assert nodes.outcome(nodes.append(b"b")).error is OK


async def test_an_unopened_folder_follows_when_it_is_assigned(nodes: Nodes):
    """A node that is assigned a replica copies the log, even if no node has opened this log since the start."""
    nodes.create([1, 2])
    nodes.reassign(3)
    await nodes.settle()
    assert nodes.controller.state().replicas == (3,)
    assert nodes.outcome(nodes.append(b"a")).error is OK
    assert nodes.leader.leading is None or not nodes.leading.followers


async def test_nodes_that_come_after_the_leader_has_opened_its_log_follow_it(nodes: Nodes):
    """Nodes follow a leader that has opened its log before them, as when all nodes start at once and the leader has to
    recover its logs."""
    nodes.create()
    nodes.append(b"a")
    await nodes.stop(2, tell=False)
    await nodes.stop(3, tell=False)
    nodes.kill(1, tell=False)
    nodes.start(1)
    assert nodes.leader.leading is not None
    for node_id in (2, 3):
        nodes._open(node_id)
    outcome = nodes.outcome(nodes.append(b"b"))
    assert outcome.error is None
    for node_id in (1, 2, 3):
        nodes.running[node_id].start_timers()
    await nodes.settle()
    assert outcome.error is OK


async def test_a_partition_that_is_left_with_one_replica_commits_all_that_it_has(nodes: Nodes):
    nodes.create([1, 2])
    nodes.injection.links.pause(2)
    outcome = nodes.outcome(nodes.append(b"a"))
    nodes.reassign(1)
    await nodes.settle()
    assert outcome.error is OK
    assert nodes.ends() == {1: (1, 1)}
