"""Which records replication can lose and which it cannot, as sequences of events that happen in real clusters."""

from __future__ import annotations

import pytest
import structlog

from protocol.errors import ErrorCode
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.support.nodes import Nodes

OK = ErrorCode.none
LAG_MS = 30_000


async def test_with_acks_1_what_only_the_leader_has_is_lost_with_it(nodes: Nodes):
    nodes.create()
    assert nodes.append(b"safe", acks=1).error is OK
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.cut(1, 3)
    assert nodes.append(b"lost", acks=1).error is OK
    nodes.kill(1)
    await nodes.settle()
    assert nodes.append(b"later", acks=1).error is OK
    assert nodes.values() == [b"safe", b"later"]
    nodes.injection.links.mend(1, 2)
    nodes.injection.links.mend(1, 3)
    nodes.start(1)
    await nodes.settle()
    assert nodes.content(1) == nodes.content(2) == nodes.content(3)
    assert set(nodes.isr()) == {1, 2, 3}


async def test_with_acks_all_the_same_death_loses_nothing_that_was_acknowledged(nodes: Nodes):
    nodes.create(min_isr=2)
    assert nodes.outcome(nodes.append(b"safe")).error is OK
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.cut(1, 3)
    outcome = nodes.outcome(nodes.append(b"unsure"))
    nodes.kill(1)
    assert outcome.error is ErrorCode.not_leader_or_follower
    await nodes.settle()
    assert nodes.values() == [b"safe"]


async def test_with_too_few_in_sync_acks_all_is_refused_before_anything_is_written(nodes: Nodes):
    nodes.create(min_isr=2)
    nodes.kill(2)
    nodes.kill(3)
    assert nodes.isr() == (1,)
    assert nodes.append(b"a").error is ErrorCode.not_enough_replicas
    assert nodes.leader.log_end_offset == 0
    assert nodes.append(b"a", acks=1).error is OK
    assert nodes.leader.high_watermark == 0, "nothing is committed below min.insync.replicas"
    nodes.start(2)
    await nodes.settle()
    assert nodes.isr() == (1, 2)
    assert nodes.values() == [b"a"]


async def test_a_follower_that_leaves_right_after_its_copy_leaves_the_client_unsure_and_the_data_there(
    make_nodes: MakeNodes,
):
    """A follower leaves the ISR after it has copied a record, so the client gets NOT_ENOUGH_REPLICAS_AFTER_APPEND and the
    record is committed nevertheless.

    If the follower's node ends before the record is copied, the high watermark does not move and the request times out.
    """
    nodes = make_nodes(2)
    nodes.create([1, 2], min_isr=2)
    nodes.injection.links.pause(2)
    outcome = nodes.outcome(nodes.append(b"a"))
    nodes.injection.links.resume(2)
    assert nodes.leader.high_watermark == 1
    nodes.kill(2)
    await nodes.settle()
    assert outcome.error is ErrorCode.not_enough_replicas_after_append
    assert nodes.values() == [b"a"]


async def test_a_waiting_client_gets_an_error_when_its_leader_changes(nodes: Nodes):
    nodes.create()
    nodes.injection.links.pause(3)
    outcome = nodes.outcome(nodes.append(b"a"))
    nodes.lead(2)
    assert outcome.error is ErrorCode.not_leader_or_follower
    assert nodes.running[1].leader("t", 0) is ErrorCode.not_leader_or_follower


async def test_two_leaders_wrote_different_records_at_one_offset_and_the_later_epoch_counts(nodes: Nodes):
    """KIP-101: the former leader truncates its own records and copies those of the later epoch. The former leader's log end
    offset alone would not show that the logs differ."""
    nodes.create()
    nodes.append(b"common")
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.cut(1, 3)
    nodes.append(b"x" * 10, acks=1)
    nodes.append(b"y" * 20, acks=1)
    nodes.kill(1)
    await nodes.settle()
    nodes.append(b"z" * 10)
    nodes.injection.links.mend(1, 2)
    nodes.injection.links.mend(1, 3)
    nodes.start(1)
    await nodes.settle()
    assert nodes.content(1) == nodes.content(2)
    assert nodes.on(1).log.epochs.entries() == nodes.on(2).log.epochs.entries() == [(0, 0), (1, 1)]
    assert nodes.values(1) == [b"common", b"z" * 10]


async def test_a_follower_keeps_above_its_high_watermark_what_its_leader_has_too(nodes: Nodes):
    """KIP-101: a follower keeps records above its high watermark that the new leader has too. If it truncated them,
    committed records would be lost together with the leader."""
    nodes.create([1, 3, 2])
    nodes.append(b"a")
    nodes.injection.links.pause(2)
    nodes.append(b"b", acks=1)
    nodes.injection.links.cut(1, 3)
    nodes.append(b"only at 1 and 2", acks=1)
    nodes.injection.links.slow(1, 2, 100)
    nodes.injection.links.resume(2)
    await nodes.pass_time(100)
    assert nodes.ends() == {1: (2, 3), 2: (1, 3), 3: (1, 2)}
    nodes.kill(1)
    nodes.injection.links.slow(3, 2, 100)
    ends = [nodes.on(2).log_end_offset]
    while nodes.on(2).high_watermark < 2:
        await nodes.pass_time(10)
        ends.append(nodes.on(2).log_end_offset)
    assert sorted(set(ends)) == [2, 3]
    assert nodes.values(2) == nodes.values(3) == [b"a", b"b"]


async def test_logs_that_diverged_in_several_epochs_are_truncated_step_by_step(nodes: Nodes):
    """KIP-279: two logs, each with an epoch that the other log lacks, are truncated to their common part in
    several steps."""
    nodes.create(unclean_leader_election_enable="true")
    nodes.append(b"both")
    nodes.kill(2)
    nodes.append(b"epoch 0, only 1 and 3")
    nodes.kill(3)
    nodes.append(b"epoch 0, only 1")
    nodes.kill(1)
    nodes.start(2)  # becomes leader in an unclean election
    await nodes.settle()
    nodes.append(b"by 2")
    nodes.kill(2)
    nodes.start(3)
    await nodes.settle()
    nodes.append(b"by 3")
    nodes.append(b"by 3")
    nodes.start(1)
    nodes.start(2)
    await nodes.settle()
    assert nodes.values() == [b"both", b"epoch 0, only 1 and 3", b"by 3", b"by 3"]
    assert nodes.content(1) == nodes.content(2) == nodes.content(3)
    assert set(nodes.isr()) == {1, 2, 3}


async def test_an_unclean_election_loses_what_was_acknowledged(nodes: Nodes):
    nodes.create([1, 2], unclean_leader_election_enable="true")
    nodes.append(b"kept")
    nodes.injection.links.cut(1, 2)
    nodes.append(b"waits")
    await nodes.pass_time(2 * LAG_MS)
    assert nodes.isr() == (1,)
    assert nodes.outcome(nodes.append(b"acknowledged by the only one in sync")).error is OK
    with structlog.testing.capture_logs() as lines:
        nodes.kill(1)
        await nodes.settle()
        assert nodes.controller.state().leader == 2
        assert nodes.values() == [b"kept"]
        nodes.append(b"instead")
        nodes.injection.links.mend(1, 2)
        nodes.start(1)
        await nodes.settle()
    warnings = [line for line in lines if line["log_level"] == "warning"]
    names = ("node_id", "topic", "partition", "log_end_offset", "from_offset", "to_offset")
    assert [[line.get(name) for name in names] for line in warnings] == [
        [2, "t", 0, 1, None, None],  # the log end offset of the elected node
        [1, "t", 0, None, 3, 1],  # truncated from 3 to 1
    ]
    assert nodes.values(1) == nodes.values(2) == [b"kept", b"instead"]


async def test_without_it_the_partition_waits_for_the_last_one_in_sync(nodes: Nodes):
    nodes.create([1, 2])
    nodes.append(b"kept")
    nodes.kill(2)
    nodes.append(b"acknowledged by the only one in sync")
    nodes.kill(1)
    nodes.start(2)
    await nodes.settle()
    assert nodes.controller.state().leader == -1
    nodes.start(1)
    await nodes.settle()
    assert nodes.values(1) == nodes.values(2) == [b"kept", b"acknowledged by the only one in sync"]


async def test_a_new_leader_knows_the_last_five_batches_of_each_producer(nodes: Nodes):
    nodes.create()
    for sequence in range(8):
        nodes.append(b"v", producer=(7, 0, sequence))
    nodes.kill(1)
    await nodes.settle()
    again = [nodes.append(b"v", producer=(7, 0, sequence)) for sequence in range(8)]
    assert [result.error for result in again[:3]] == [ErrorCode.out_of_order_sequence_number] * 3
    assert [(result.duplicate, result.base_offset) for result in again[3:]] == [
        (True, o) for o in range(3, 8)
    ]
    assert nodes.append(b"v", producer=(7, 0, 8)).base_offset == 8


async def test_a_returned_leader_learns_sequences_from_the_batches_that_it_copies(nodes: Nodes):
    nodes.create([1, 2])
    nodes.append(b"v", producer=(7, 0, 0))
    nodes.kill(1)
    for sequence in range(1, 7):
        nodes.append(b"v", producer=(7, 0, sequence))
    nodes.start(1)
    await nodes.settle()
    nodes.lead(1)
    await nodes.settle()
    again = [nodes.append(b"v", producer=(7, 0, sequence)) for sequence in range(2, 7)]
    assert all(result.duplicate for result in again)


async def test_an_aborted_transaction_is_known_to_the_new_leader(nodes: Nodes):
    nodes.create()
    nodes.append(b"gone", producer=(7, 0, 0), transactional=True)
    nodes.append(b"open", producer=(8, 0, 0), transactional=True)
    nodes.mark(7, committed=False)
    nodes.kill(1)
    await nodes.settle()
    leader = nodes.leader
    assert leader.last_stable_offset == 1
    nodes.mark(8, committed=True)
    read = leader.read(0, 1 << 20, read_committed=True, whole_first_batch=True)
    assert (read.aborted, read.last_stable_offset) == ([(7, 0)], 4)


async def test_a_marker_that_is_not_committed_holds_readers_of_committed_records_up(nodes: Nodes):
    nodes.create()
    nodes.append(b"v", producer=(7, 0, 0), transactional=True)
    nodes.injection.links.pause(2)
    nodes.mark(7, committed=True)
    assert (nodes.leader.high_watermark, nodes.leader.last_stable_offset) == (1, 0)
    nodes.injection.links.resume(2)
    await nodes.settle()
    assert (nodes.leader.high_watermark, nodes.leader.last_stable_offset) == (2, 2)
    assert nodes.on(3).last_stable_offset == 2


@pytest.mark.parametrize("clean", [True, False])
async def test_after_a_restart_of_all_nothing_is_exposed_that_followers_have_not_confirmed(
    nodes: Nodes, clean: bool
):
    """After all nodes have restarted, consumers see records only up to the checkpointed high watermark until
    followers have fetched more: the leader's log end does not show what is committed."""
    nodes.create([1, 2], min_isr=2)
    nodes.append(b"committed")
    nodes.injection.links.pause(2)
    nodes.append(b"not yet", acks=1)
    if clean:
        await nodes.stop(1, tell=False)
    else:
        nodes.kill(1, tell=False)
    nodes.kill(2, tell=False)
    nodes.start(1)
    leader = nodes.leader
    assert leader.high_watermark == (1 if clean else 0)
    assert leader.latest(read_committed=False).error is ErrorCode.offset_not_available
    nodes.injection.links.resume(2)
    nodes.start(2)
    await nodes.settle()
    assert nodes.ends() == {1: (2, 2), 2: (2, 2)}
    assert leader.latest(read_committed=False).offset == 2
